//! Indexes: what they are, which keys a document has in them, how they are built.

mod build;
mod building;
mod convert;
mod keys;
mod request;
mod sorter;
mod spec;
mod wildcard;

pub use build::Built;
pub(crate) use build::reclaim_unfinished;
pub use building::{BuildProgress, BuildingIndex, Phase};
pub use convert::{Conversion, Violations};
pub use keys::{KeySet, decode_entry_key, hash_of, keys_of};
pub use request::{check_for_new_collection, check_index_count, new_specs};
pub(crate) use sorter::Sorter;
pub use spec::{Index, IndexId, IndexSpec, KeyPart, Multikey, NESTED, Usage};
pub use wildcard::{Wildcard, projected_paths, takes};
