//! Those who hold copies: found and written when a source changes.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, compare};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Copied, FanOut, OnSourceDelete, Reference, Rollup};
use kilim_storage::Space;

use super::Pattern;
use super::carry::Work;
use super::holder_walk::{HolderWalk, refers};
use super::pending::{
    self, Left, Pending, Room, is_async, is_read_by_others, room, wait_for_key, wait_for_room,
};
use super::sources::hold_unique;
use crate::catalog::{Collection, RecordId};
use crate::layout;
use crate::limits;
use crate::operation::Operation;
use crate::unit::Unit;
use kilim_query::text::document as shell_text;

/// Writes the copies of touched sources into the documents that refer to them.
pub(super) fn fan_out(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    reference: &Reference,
) -> Result<()> {
    let Some(source) = &pattern.source else { return Ok(()) };
    let mut changes = Vec::new();
    for at in work.places(source) {
        let touched = &work.touched[at];
        let before = touched.before.as_ref().map(Document::as_raw);
        let after = touched.after.as_ref().map(Document::as_raw);
        let own = reference.fan_out(before, after);
        // Before holders are looked for: one who found no source must not come in between.
        let new_key = after.and_then(|after| reference.key_of(after));
        let had = before.and_then(|before| reference.key_of(before));
        if let Some(key) = new_key
            && had.is_none_or(|had| compare(had, key).is_ne())
        {
            let (collection, key) = (touched.collection.clone(), key.to_value());
            hold_unique(unit, &collection, &reference.foreign_field, key.as_raw())?;
        }
        changes.extend(own);
    }
    for (key, change) in changes {
        let left = match (change, reference.on_source_delete) {
            (FanOut::To(copy), _) => Left::Copy(Copied::To(copy)),
            (FanOut::Gone, OnSourceDelete::Cascade) => Left::Remove,
            (FanOut::Gone, OnSourceDelete::Restrict) => {
                refuse_if_held(unit, work, pattern, reference, &key)?;
                continue;
            }
            (FanOut::Gone, _) => match reference.when_gone() {
                Some(copied) => Left::Copy(copied),
                // The copies stay; those that are not there yet become what they would have.
                None => continue,
            },
        };
        spread(unit, work, pattern, reference, key, left)?;
    }
    Ok(())
}

/// Brings what a change of a source means to those who refer to it: now, or by a job.
fn spread(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    reference: &Reference,
    key: Value,
    left: Left,
) -> Result<()> {
    if unit.engine.lag.is_open(pattern.id) {
        let key_bytes = Rollup::key_bytes(key.as_raw());
        unit.hold_alone(Space::Meta, &layout::pending_key(pattern.id, &key_bytes))?;
        match pending::newest(unit, pattern.id, &key_bytes)? {
            // Those who are to go must not come back with a new source.
            Some(Pending { left: Left::Remove, .. }) if !matches!(left, Left::Remove) => {
                return Err(wait_for_key(unit, pattern, key_bytes));
            }
            Some(_) => return work.leaving.leave(unit, pattern, key.as_raw(), left, 0),
            None => {}
        }
    }
    let Some(collection) = unit.join(&pattern.target)? else { return Ok(()) };
    let options = &pattern.declaration.options;
    let most = match is_async(pattern) {
        true => 0,
        false => options.max_sync as usize,
    };
    let may_leave = !is_read_by_others(work.patterns(), pattern);
    let operation = unit.operation.clone();
    // The source is held, so nobody new begins to refer to it.
    let snapshot = unit.newest_snapshot()?;
    let mut walk = HolderWalk::open(&collection, reference, key.as_raw(), &snapshot, None);
    let mut holders = Vec::new();
    while let Some(record) = walk.next()? {
        operation.check()?;
        holders.push(record);
        if holders.len() > most && may_leave {
            match room(unit, pattern, &work.leaving)? {
                Room::Free => {
                    let documents = holders.len() as u64 + count_on(&mut walk, &operation)?;
                    return work.leaving.leave(unit, pattern, key.as_raw(), left, documents);
                }
                Room::Later => return Err(wait_for_room(unit, pattern, &work.leaving)),
                Room::Never => {}
            }
            // All of them, then.
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
        apply(unit, work, pattern, reference, &collection, record, key.as_raw(), &left)?;
    }
    Ok(())
}

/// About how many more there are.
fn count_on(walk: &mut HolderWalk<'_>, operation: &Operation) -> Result<u64> {
    let mut count = 0;
    while count < limits::PENDING_DOCUMENTS_COUNTED && walk.next()?.is_some() {
        operation.check()?;
        count += 1;
    }
    Ok(count)
}

/// Makes one holder what a change of its source means for it; whether it was another.
#[expect(clippy::too_many_arguments)]
fn apply(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    reference: &Reference,
    collection: &Arc<Collection>,
    record: RecordId,
    key: RawValue<'_>,
    left: &Left,
) -> Result<bool> {
    let Some(at) = work.touch(unit, pattern, collection, record)? else { return Ok(false) };
    let Some(holder) = &work.touched[at].after else { return Ok(false) };
    match becomes(reference, holder.as_raw(), key, left)? {
        Becomes::Same => Ok(false),
        Becomes::Gone => {
            work.touched[at].after = None;
            Ok(true)
        }
        Becomes::Other(made) => {
            work.touched[at].after = Some(made);
            Ok(true)
        }
    }
}

/// What a document becomes by what is left to do for a key.
pub(super) enum Becomes {
    Same,
    Other(Document),
    Gone,
}

pub(super) fn becomes(
    reference: &Reference,
    holder: RawDocument<'_>,
    key: RawValue<'_>,
    left: &Left,
) -> Result<Becomes> {
    if !refers(reference, holder, key) {
        return Ok(Becomes::Same);
    }
    match left {
        Left::Remove => Ok(Becomes::Gone),
        Left::Copy(copied) if reference.is_live(holder)? => {
            Ok(reference.patched(holder, key, copied)?.map_or(Becomes::Same, Becomes::Other))
        }
        Left::Copy(_) | Left::Group => Ok(Becomes::Same),
    }
}

/// Writes one holder for a job, by what is pending as of the newest commit.
pub(super) fn catch_up_holder(
    unit: &mut Unit<'_>,
    pattern: &Arc<Pattern>,
    reference: &Reference,
    collection: &Arc<Collection>,
    record: RecordId,
    pending: &Pending,
) -> Result<()> {
    let key_bytes = pending.key_bytes();
    unit.hold_shared(Space::Meta, &layout::pending_key(pattern.id, &key_bytes))?;
    let Some(newest) = pending::newest(unit, pattern.id, &key_bytes)? else { return Ok(()) };
    let patterns = unit.engine.patterns().of(&pattern.target.database).to_vec().into();
    let mut work = Work::new(patterns);
    let key = pending.key.as_raw();
    if apply(unit, &mut work, pattern, reference, collection, record, key, &newest.left)? {
        work.finish(unit)?;
    }
    Ok(())
}

/// Refuses that a source goes while somebody refers to it.
fn refuse_if_held(
    unit: &mut Unit<'_>,
    work: &mut Work,
    pattern: &Arc<Pattern>,
    reference: &Reference,
    key: &Value,
) -> Result<()> {
    let Some(collection) = unit.join(&pattern.target)? else { return Ok(()) };
    let snapshot = unit.newest_snapshot()?;
    let operation = unit.operation.clone();
    let mut walk = HolderWalk::open(&collection, reference, key.as_raw(), &snapshot, None);
    while let Some(record) = walk.next()? {
        operation.check()?;
        let Some(at) = work.touch(unit, pattern, &collection, record)? else { continue };
        let Some(holder) = &work.touched[at].after else { continue };
        if refers(reference, holder.as_raw(), key.as_raw()) {
            return Err(restricted(pattern, reference, holder, key));
        }
    }
    Ok(())
}

pub(super) fn restricted(pattern: &Pattern, reference: &Reference, holder: &Document, key: &Value) -> Error {
    let id = holder.get("_id").map(RawValue::to_value);
    let shown = shell_text(kilim_bson::doc! {"_id": id}.as_raw());
    let mut source = Document::new();
    source.push(&reference.foreign_field, key.clone());
    let source = shell_text(source.as_raw());
    pattern.refusal(
        ErrorCode::PatternRestrict,
        Some(&reference.local_field),
        format!(
            "{} {source} cannot be deleted: {} {shown} refers to it by '{}' (extendedReference '{}', onSourceDelete: \
             \"restrict\"). Delete or change what refers to it first",
            pattern.source.as_ref().map_or(String::new(), ToString::to_string),
            pattern.target,
            reference.local_field,
            pattern.declaration.name
        ),
    )
}
