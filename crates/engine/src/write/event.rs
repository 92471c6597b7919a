//! The last step of a change: what is told of it.
//!
//! Change events will be made here, of the whole change and its cause. Until then a change is counted.

use crate::change::{Cause, Change};
use crate::unit::Unit;

pub(super) fn tell(unit: &mut Unit<'_>, change: &Change<'_>) {
    let metrics = &unit.engine.metrics;
    match (change.before, change.after) {
        (None, _) => metrics.documents_inserted.add(1),
        (Some(_), Some(_)) => {
            metrics.documents_updated.add(1);
            unit.figures.changed += 1;
        }
        (Some(_), None) => metrics.documents_deleted.add(1),
    }
    match change.cause {
        Cause::Pattern(pattern) => {
            pattern.counters.maintained.add(1);
            unit.caused.maintained += 1;
        }
        Cause::Expiry => unit.engine.expiry.removed.add(1),
        Cause::User | Cause::Eviction | Cause::Import | Cause::Job => {}
    }
}
