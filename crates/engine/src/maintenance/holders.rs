//! Holders: the documents that refer to a source. They are found and written when the source changes.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue, Value};
use kilim_error::{Error, Result};
use kilim_patterns::{Due, Sight, Title, key_bytes};
use kilim_storage::Space;

use super::evaluation::{Evaluation, Store};
use super::holder_walk::HolderWalk;
use super::pending::Room;
use super::pending::is_async;
use super::pending::is_read_by_others;
use super::pending::room;
use super::pending::wait_for_room;
use super::sources::hold_unique;
use super::trees;
use crate::catalog::{Collection, RecordId};
use crate::layout;
use crate::limits;
use crate::operation::Operation;
use crate::patterns::{Pattern, Pending, about};
use crate::unit::pending::wait_for_key;
use crate::unit::{Unit, pending};

/// Gives the holders of a key what is due to them: now, or later by a job.
pub(crate) fn spread(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    key: Value,
    due: Due,
    is_new: bool,
) -> Result<()> {
    // A writer that looks for this source shares its key until its commit. The key is held alone before the holders are
    // searched, so a document that found no source has committed by then, and is among them.
    if is_new
        && let Some((source, field)) = pattern.sources_found_by()
        && let Some(collection) = unit.join(source)?
    {
        hold_unique(unit, &collection, field, key.as_raw())?;
    }
    if unit.engine.pending.has(pattern.id) {
        let key_bytes = key_bytes(key.as_raw());
        unit.hold_alone(Space::Meta, &layout::pending_key(pattern.id, &key_bytes))?;
        match pending::newest(unit, pattern.id, &key_bytes)? {
            // The holders of the deleted source are still being deleted. With the new source they would stay.
            Some(Pending { due: Due::Remove, .. }) if !matches!(due, Due::Remove) => {
                return Err(wait_for_key(unit, pattern, key_bytes));
            }
            Some(_) => return evaluation.new_pending.add(unit, pattern, key.as_raw(), due, 0),
            None => {}
        }
    }
    let Some(collection) = unit.join(&pattern.target)? else { return Ok(()) };
    let options = &pattern.declaration.options;
    let most = match is_async(pattern) {
        true => 0,
        false => options.max_sync as usize,
    };
    let may_be_pending = !is_read_by_others(evaluation.patterns(), pattern);
    let operation = unit.operation.clone();
    // The source is held, so no other writer makes a new holder meanwhile.
    let snapshot = unit.newest_snapshot()?;
    let mut walk = HolderWalk::open(&collection, pattern.kind(), key.as_raw(), &snapshot, None);
    let mut holders = Vec::new();
    while let Some(record) = walk.next()? {
        operation.check()?;
        holders.push(record);
        if holders.len() > most && may_be_pending {
            match room(unit, pattern, &evaluation.new_pending, 1)? {
                Room::Free => {
                    let documents = holders.len() as u64 + count_on(&mut walk, &operation)?;
                    return evaluation.new_pending.add(unit, pattern, key.as_raw(), due, documents);
                }
                Room::Later => return Err(wait_for_room(unit, pattern, &evaluation.new_pending, 1)),
                Room::Never => {}
            }
            // Nothing can be pending now, so all holders are written with the change.
            while let Some(record) = walk.next()? {
                operation.check()?;
                holders.push(record);
            }
        }
    }
    holders.sort_unstable();
    holders.dedup();
    for record in holders {
        operation.check()?;
        apply(unit, evaluation, pattern, &collection, record, key.as_raw(), &due)?;
    }
    Ok(())
}

/// About how many more holders there are; the count stops at a bound.
fn count_on(walk: &mut HolderWalk<'_>, operation: &Operation) -> Result<u64> {
    let mut count = 0;
    while count < limits::PENDING_DOCUMENTS_COUNTED && walk.next()?.is_some() {
        operation.check()?;
        count += 1;
    }
    Ok(count)
}

/// Applies what is due to one holder. True if that changed it.
fn apply(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    key: RawValue<'_>,
    due: &Due,
) -> Result<bool> {
    let Some(at) = evaluation.touch(unit, pattern, collection, record)? else { return Ok(false) };
    let Some(holder) = &evaluation.touched[at].after else { return Ok(false) };
    match pattern.kind().becomes(holder.as_raw(), key, due)? {
        Sight::AsStored => Ok(false),
        Sight::Gone => {
            evaluation.write(pattern, at, None);
            Ok(true)
        }
        Sight::Other(made) => {
            evaluation.write(pattern, at, Some(made));
            Ok(true)
        }
    }
}

/// Writes one holder, for a job, with what is pending as of the newest commit.
pub(crate) fn catch_up_holder(
    unit: &mut Unit<'_>,
    pattern: &Arc<Pattern>,
    collection: &Arc<Collection>,
    record: RecordId,
    pending: &Pending,
    store: Store<'_>,
) -> Result<()> {
    if pattern.kind().tree().is_some() {
        return trees::catch_up_node(unit, pattern, collection, record, store);
    }
    let key_bytes = pending.key_bytes();
    unit.hold_shared(Space::Meta, &layout::pending_key(pattern.id, &key_bytes))?;
    let Some(newest) = pending::newest(unit, pattern.id, &key_bytes)? else { return Ok(()) };
    let patterns = unit.engine.patterns().of(&pattern.target.database).to_vec().into();
    let mut evaluation = Evaluation::new(patterns);
    let key = pending.key.as_raw();
    if apply(unit, &mut evaluation, pattern, collection, record, key, &newest.due)? {
        evaluation.finish(unit, store)?;
    }
    Ok(())
}

/// Refuses to delete a source that has holders.
pub(crate) fn refuse_if_held(
    unit: &mut Unit<'_>,
    evaluation: &mut Evaluation,
    pattern: &Arc<Pattern>,
    key: &Value,
) -> Result<()> {
    let Some(collection) = unit.join(&pattern.target)? else { return Ok(()) };
    let snapshot = unit.newest_snapshot()?;
    let operation = unit.operation.clone();
    let mut walk = HolderWalk::open(&collection, pattern.kind(), key.as_raw(), &snapshot, None);
    while let Some(record) = walk.next()? {
        operation.check()?;
        let Some(at) = evaluation.touch(unit, pattern, &collection, record)? else { continue };
        let Some(holder) = &evaluation.touched[at].after else { continue };
        if pattern.kind().refers(holder.as_raw(), key.as_raw()) {
            return Err(restricted(pattern, holder.as_raw(), key.as_raw()));
        }
    }
    Ok(())
}

/// The error for the deletion of a source that has this holder.
pub(crate) fn restricted(pattern: &Pattern, holder: RawDocument<'_>, key: RawValue<'_>) -> Error {
    let source = pattern.source.as_ref().map_or(String::new(), ToString::to_string);
    let (target, name) = (pattern.target.to_string(), &*pattern.declaration.name);
    let title = Title { target: &target, source: &source, name };
    match pattern.kind().restricted(&title, holder, key) {
        Some(error) => about(error, &pattern.target, name, pattern.kind().key_path()),
        None => Error::bug("a pattern restricts deletions and does not say so"),
    }
}
