//! What an operation did to get its answer: what it looked at, what it wrote, by which plan.
//!
//! Counted along the way by whoever does it, at the cost of an addition, and shown where somebody asks: in slow-query
//! lines and profiles.

use std::sync::Arc;

use crate::plan::Followed;

#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub keys_examined: u64,
    pub docs_examined: u64,
    pub keys_inserted: u64,
    pub keys_deleted: u64,
    /// Documents that were changed in place.
    pub changed: u64,
    /// A stage of a pipeline sorted.
    pub sorted: bool,
    /// Something did not fit into memory.
    pub used_disk: bool,
    /// The first plan: that of the collection that was asked for, where others were read for it.
    pub plan: Option<Arc<Followed>>,
}

impl Figures {
    pub fn add(&mut self, other: Figures) {
        self.keys_examined += other.keys_examined;
        self.docs_examined += other.docs_examined;
        self.keys_inserted += other.keys_inserted;
        self.keys_deleted += other.keys_deleted;
        self.changed += other.changed;
        self.sorted |= other.sorted;
        self.used_disk |= other.used_disk;
        self.plan = self.plan.take().or(other.plan);
    }
}
