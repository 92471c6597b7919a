//! Indexes: what they are, and which keys a document has in them.

mod building;
mod document;
mod duplicate;
mod entry;
mod keys;
mod kind;
mod measurements;
mod parts;
mod sorter;
mod spec;

pub(crate) use building::PutOff;
pub use building::{BuildProgress, BuildingIndex, Phase};
pub(crate) use document::collation_of;
pub(crate) use duplicate::duplicate_key;
pub(crate) use entry::{Entries, OneEntry, index_entry};
pub use keys::{KeySet, decode_entry_key, keys_of};
pub(crate) use kind::geo;
pub use kind::{
    BoundSearch, Hashed, IndexKind, KindOptions, Ordered, Text, TwoD, TwoDSphere, Wildcard, hash_of,
};
pub use measurements::OverMeasurements;
pub(crate) use parts::{keys_of_parts, keys_of_row};
pub(crate) use sorter::Sorter;
pub(crate) use spec::PATTERN_PREFIX;
pub use spec::{Holds, Index, IndexSpec, KeyPart, Multikey, NESTED, Usage};

pub use crate::ids::IndexId;
