//! Indexes: what they are, which keys a document has in them, how they are built.

mod spec;

pub use spec::{Index, IndexId, IndexSpec, KeyPart, Multikey};
