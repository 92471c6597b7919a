//! `$skip` and `$limit`: one window instead of several, as early as can be.

use super::{
    super::{Flow, Limit, Skip},
    Stage,
};

/// Rewrites the stage at `at` and the `$limit` or `$skip` behind it.
pub(super) fn rewrite(stages: &mut Vec<Stage>, at: usize, reads: bool) -> bool {
    match (&stages[at], &stages[at + 1]) {
        (Stage::Limit(first), Stage::Limit(second)) => {
            stages[at] = Stage::Limit(Limit(first.0.min(second.0)));
            stages.remove(at + 1);
            true
        }
        // A sum that no longer fits stays two.
        (Stage::Skip(first), Stage::Skip(second)) => match first.0.checked_add(second.0) {
            Some(both) if i64::try_from(both).is_ok() => {
                stages[at] = Stage::Skip(Skip(both));
                stages.remove(at + 1);
                true
            }
            _ => false,
        },
        (Stage::Limit(limit), Stage::Skip(skip)) if limit.0 > skip.0 => {
            let (limit, skip) = (limit.0 - skip.0, *skip);
            stages[at] = Stage::Skip(skip);
            stages[at + 1] = Stage::Limit(Limit(limit));
            true
        }
        // As on MongoDB, a join lets by what ends in the read only.
        (Stage::Lookup(_), Stage::Skip(_)) if !reaches_read(&stages[..at], reads) => false,
        (stage, Stage::Skip(_)) if keeps_count(stage) => {
            stages.swap(at, at + 1);
            true
        }
        // Nothing is saved by one that goes earlier, unless it ends in a sort or in the read.
        (stage, Stage::Limit(_)) if keeps_count(stage) && is_awaited(&stages[..at], reads) => {
            stages.swap(at, at + 1);
            true
        }
        (Stage::Sort(_), _) => limit_sort(stages, at),
        _ => false,
    }
}

/// Whether as many documents come out as go in, in the same order.
pub(super) fn keeps_count(stage: &Stage) -> bool {
    match stage {
        Stage::Lookup(lookup) => lookup.unwinding.is_none(),
        stage => stage.flow() == Flow::Maps,
    }
}

/// Whether a `$limit` behind these stages would come to a `$sort`, or to the read of a collection.
fn is_awaited(before: &[Stage], reads: bool) -> bool {
    let kept = before.iter().rposition(|stage| !keeps_count(stage));
    let Some(kept) = kept else { return reads };
    match &before[kept] {
        Stage::Sort(_) => true,
        Stage::Skip(_) if matches!(before[..kept].last(), Some(Stage::Sort(_))) => true,
        _ => reaches_read(before, reads),
    }
}

/// Whether a `$skip` or `$limit` behind these stages would come to the read of a collection.
fn reaches_read(before: &[Stage], reads: bool) -> bool {
    let kept = before.iter().rposition(|stage| !keeps_count(stage)).map_or(0, |at| at + 1);
    let read = |stage: &Stage| matches!(stage, Stage::Sort(_)) || stage.flow().passes_as_is();
    reads && before[..kept].iter().all(read)
}

/// A `$sort` need not keep more than a `$limit` behind it lets by, and what is skipped before that.
pub(super) fn limit_sort(stages: &mut Vec<Stage>, at: usize) -> bool {
    let mut skipped = 0u64;
    let mut behind = at + 1;
    let limit = loop {
        match stages.get(behind) {
            Some(Stage::Skip(skip)) => skipped = skipped.saturating_add(skip.0),
            Some(Stage::Limit(limit)) => break limit.0,
            Some(stage) if keeps_count(stage) => {}
            _ => return false,
        }
        behind += 1;
    };
    let kept = limit.saturating_add(skipped);
    let Stage::Sort(sort) = &mut stages[at] else { return false };
    // Beyond what a number can say there is nothing to limit.
    if i64::try_from(kept).is_err() {
        return false;
    }
    sort.limit = Some(sort.limit.map_or(kept, |limit| limit.min(kept)));
    stages.remove(behind);
    true
}
