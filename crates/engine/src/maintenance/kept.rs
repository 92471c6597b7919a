//! The note that a document kept an old value of a maintained field.

use std::sync::atomic::Ordering;

use kilim_storage::Space;

use crate::layout;
use crate::patterns::Pattern;
use crate::unit::Unit;

impl Pattern {
    /// Notes that a document kept its old fields, because with the new ones it would have become too large. The note is
    /// part of the same commit. A regular pass then makes the pattern suspect.
    pub(crate) fn note_kept(&self, unit: &mut Unit<'_>) {
        unit.transaction().put(Space::Meta, layout::kept_key(self.id).to_vec(), Vec::new());
        self.counters.has_kept.store(true, Ordering::Relaxed);
    }
}
