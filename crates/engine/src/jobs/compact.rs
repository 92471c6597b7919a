//! Compaction: the trees of a collection and its indexes, written anew by the store.

use kilim_error::Result;
use kilim_storage::{Compacted, Space};

use crate::catalog::Collection;
use crate::engine::Engine;
use crate::layout;
use crate::operation::{Operation, Progress};

impl Engine {
    /// Writes a collection and its indexes anew, densely, and gives what that frees back. `currentOp` shows how far
    /// it is; an operation that is ended leaves whole trees.
    pub fn compact(&self, collection: &Collection, operation: &Operation) -> Result<Compacted> {
        self.store.compact(&trees_of(collection), &mut |done, total| {
            operation.set_progress(Progress { what: "Compact: rewriting blocks", done, total });
            operation.check()
        })
    }
}

/// The trees of a collection: its records, then its indexes.
pub(crate) fn trees_of(collection: &Collection) -> Vec<(Space, [u8; 4])> {
    let indexes = collection.indexes.iter().map(|index| (Space::Index, layout::index_prefix(index.id)));
    std::iter::once(collection.home().tree()).chain(indexes).collect()
}
