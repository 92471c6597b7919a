//! Those who hold copies: found and written when a source changes.

use std::sync::Arc;

use kilim_bson::{Document, Path, RawValue, Value, compare};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Copied, FanOut, OnSourceDelete, Reference};
use kilim_query::filter::{Comparison, Filter, Predicate};

use super::Pattern;
use super::carry::Work;
use super::sources::hold_unique;
use crate::catalog::{Collection, RecordId};
use crate::operator::{self, ExecContext};
use crate::planner::ReadRequest;
use crate::write::{Unit, shell_text};

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
        let copied = match change {
            FanOut::To(copy) => Copied::To(copy),
            FanOut::Gone => match (reference.when_gone(), reference.on_source_delete) {
                (Some(copied), _) => copied,
                (None, OnSourceDelete::Cascade | OnSourceDelete::Restrict) => Copied::Unset,
                (None, _) => continue,
            },
        };
        let gone = matches!(copied, Copied::Unset | Copied::Null);
        let Some((collection, holders)) = holders_of(unit, pattern, reference, key.as_raw())? else {
            continue;
        };
        for record in holders {
            unit.operation.check()?;
            let Some(at) = work.touch(unit, pattern, &collection, record)? else { continue };
            let Some(holder) = work.touched[at].after.clone() else { continue };
            let refers = reference.references(holder.as_raw()).iter().any(|own| same(own, &key));
            if !refers {
                continue;
            }
            match reference.on_source_delete {
                OnSourceDelete::Restrict if gone => {
                    return Err(restricted(pattern, reference, &holder, &key));
                }
                OnSourceDelete::Cascade if gone => work.touched[at].after = None,
                _ if reference.is_live(holder.as_raw())? => {
                    if let Some(made) = reference.patched(holder.as_raw(), key.as_raw(), &copied)? {
                        work.touched[at].after = Some(made);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn same(left: &Value, right: &Value) -> bool {
    kilim_bson::compare(left.as_raw(), right.as_raw()).is_eq()
}

/// The documents that refer to a key. The source is held, so nobody new begins to.
fn holders_of(
    unit: &mut Unit<'_>,
    pattern: &Pattern,
    reference: &Reference,
    key: RawValue<'_>,
) -> Result<Option<(Arc<Collection>, Vec<RecordId>)>> {
    let Some(collection) = unit.join(&pattern.target)? else { return Ok(None) };
    let snapshot = unit.newest_snapshot()?;
    let filter = Filter::Field {
        path: Path::parse(&reference.local_field),
        predicate: Predicate::Compare(Comparison::Eq, key.to_value()),
    };
    let plan =
        crate::read::plan_collection(unit, &collection, ReadRequest::new(Arc::new(filter)), &snapshot)?;
    let mut executor = operator::execute(plan, snapshot);
    let operation = unit.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut holders = Vec::new();
    while let Some(row) = executor.next_record(&mut context)? {
        holders.push(row.record);
    }
    holders.sort_unstable();
    Ok(Some((collection, holders)))
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
