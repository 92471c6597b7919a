//! Indexes: what they are, which keys a document has in them, how they are built.

mod build;
mod keys;
mod request;
mod sorter;
mod spec;
mod wildcard;

pub(crate) use build::reclaim_unfinished;
pub use build::{BuildingIndex, Built};
pub use keys::{KeySet, decode_entry_key, hash_of, keys_of};
pub use request::{check_index_count, new_specs};
pub use spec::{Index, IndexId, IndexSpec, KeyPart, Multikey, NESTED, Usage};
pub use wildcard::Wildcard;
