//! The note that a document kept an old value.

use std::sync::atomic::Ordering;

use kilim_storage::Space;

use crate::layout;
use crate::patterns::Pattern;
use crate::unit::Unit;

impl Pattern {
    /// A document kept what it had, because it would have become too large. The commit at hand takes the note along;
    /// the state follows.
    pub(crate) fn note_kept(&self, unit: &mut Unit<'_>) {
        unit.transaction().put(Space::Meta, layout::kept_key(self.id).to_vec(), Vec::new());
        self.counters.has_kept.store(true, Ordering::Relaxed);
    }
}
