//! Indexes: what they are, and which keys a document has in them.

mod building;
mod document;
mod duplicate;
mod entry;
mod keys;
mod sorter;
mod spec;
mod wildcard;

pub(crate) use building::PutOff;
pub use building::{BuildProgress, BuildingIndex, Phase};
pub(crate) use document::collation_of;
pub(crate) use duplicate::duplicate_key;
pub(crate) use entry::index_entry;
pub use keys::{KeySet, decode_entry_key, hash_of, keys_of};
pub(crate) use sorter::Sorter;
pub use spec::{Index, IndexSpec, KeyPart, Multikey, NESTED, Usage};
pub use wildcard::{Wildcard, projected_paths, takes};

pub use crate::ids::IndexId;
