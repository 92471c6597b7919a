//! What is pending of a pattern that gives way to another of its name.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::Result;
use kilim_patterns::Place;
use kilim_storage::{Durability, Space};

use crate::catalog::Collection;
use crate::layout;
use crate::maintenance::find_by_unique;
use crate::namespace::Namespace;
use crate::patterns::{Pattern, Pending, Registry, all_of};
use crate::unit::Unit;

/// What patterns that are about to give way to others of their name have pending, written for those: with what their
/// sources are now. The collections are held; `collection` tells what a name means by then.
pub(crate) fn hand_over(
    unit: &mut Unit<'_>,
    before: &Registry,
    after: &Registry,
    collection: &dyn Fn(&Namespace) -> Option<Arc<Collection>>,
) -> Result<()> {
    let engine = unit.engine;
    let gives_way = |old: &&Arc<Pattern>| after.by_id(old.id).is_none() && engine.lag.is_open(old.id);
    for old in before.iter().filter(gives_way) {
        engine.store.settle(Durability::Relaxed)?;
        let snapshot = engine.store.snapshot();
        let new = after.find(&old.target, &old.declaration.name);
        let source = new.and_then(|new| collection(new.source.as_ref()?));
        for pending in all_of(&snapshot, old.id)? {
            unit.transaction().delete(Space::Meta, &layout::pending_key(old.id, &pending.key_bytes()));
            let Some(new) = new else { continue };
            let found = match (&source, new.kind().found_by()) {
                (Some(source), Some((Place::Source, field))) => {
                    find_by_unique(&snapshot, source, field, pending.key.as_raw())?
                }
                _ => None,
            };
            // Groups are shown as the new one is filled.
            let Some(due) = new.kind().renewed(&pending.due, found.as_ref().map(Document::as_raw)) else {
                continue;
            };
            engine.lag.enter(new.id);
            let pending = Pending { due, version: pending.version + 1, ..pending };
            let place = layout::pending_key(new.id, &pending.key_bytes());
            unit.transaction().put(Space::Meta, place, pending.encode().into_bytes());
        }
    }
    Ok(())
}
