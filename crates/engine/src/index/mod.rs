//! Indexes: what they are, which keys a document has in them, how they are built.

mod build;
mod keys;
mod sorter;
mod spec;

pub use build::{BuildingIndex, check_index_count};
pub use keys::{KeySet, decode_entry_key, keys_of};
pub use spec::{Index, IndexId, IndexSpec, KeyPart, Multikey};
