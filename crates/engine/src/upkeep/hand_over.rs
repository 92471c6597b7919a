//! What happens to what is pending of a pattern when another definition of its name replaces it.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::Result;
use kilim_patterns::Role;
use kilim_storage::{Durability, Space};

use crate::catalog::Collection;
use crate::layout;
use crate::maintenance::find_by_unique;
use crate::namespace::Namespace;
use crate::patterns::{Pattern, Pending, Registry, all_of};
use crate::unit::Unit;

/// Rewrites the records of what is pending of replaced patterns for their replacements, with what is due as of the sources
/// now. The collections are held. `collection` finds a collection by its name after the change.
pub(crate) fn hand_over(
    unit: &mut Unit<'_>,
    before: &Registry,
    after: &Registry,
    collection: &dyn Fn(&Namespace) -> Option<Arc<Collection>>,
) -> Result<()> {
    let engine = unit.engine;
    let is_replaced = |old: &&Arc<Pattern>| after.by_id(old.id).is_none() && engine.pending.has(old.id);
    for old in before.iter().filter(is_replaced) {
        engine.store.settle(Durability::Relaxed)?;
        let snapshot = engine.store.snapshot();
        let new = after.find(&old.target, &old.declaration.name);
        let source = new.and_then(|new| collection(new.source.as_ref()?));
        for pending in all_of(&snapshot, old.id)? {
            unit.transaction().delete(Space::Meta, &layout::pending_key(old.id, &pending.key_bytes()));
            let Some(new) = new else { continue };
            let found = match (&source, new.kind().found_by()) {
                (Some(source), Some((Role::Source, field))) => {
                    find_by_unique(&snapshot, source, field, pending.key.as_raw())?
                }
                _ => None,
            };
            // None for groups: their parents are written when the new pattern is filled.
            let Some(due) = new.kind().renewed(&pending.due, found.as_ref().map(Document::as_raw)) else {
                continue;
            };
            engine.pending.enter(new.id);
            let pending = Pending { due, version: pending.version + 1, ..pending };
            let place = layout::pending_key(new.id, &pending.key_bytes());
            unit.transaction().put(Space::Meta, place, pending.encode().into_bytes());
        }
    }
    Ok(())
}
