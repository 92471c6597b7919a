//! Whether an index scan already gives the order that a sort asks for.
//!
//! Key parts fixed to one value order nothing and are passed over, so equality, then sort, then range
//! (ESR) needs no sort. A part with arrays gives a document's place by the first of its keys that the
//! scan meets: that is the sort's least (or greatest) element only if no bounds hide elements.

use kilim_query::sort::Sort;

use super::access::Access;
use crate::bounds::{Interval, IntervalList, Texts};
use crate::index::{Holds, Index};

/// Scan backward (`true`) or forward for the sort's order; `None` where neither gives it.
pub fn direction_for(index: &Index, bounds: &[IntervalList], sort: &Sort) -> Option<bool> {
    let texts = Texts::new(index.spec.collation.as_ref(), sort.collation().as_ref());
    if index.multikey.has_long_keys() {
        return None;
    }
    let parts = &index.spec.key;
    let fixed = |part: usize| bounds[part].is_point();
    let constant = |part: usize| fixed(part) && index.array_bits(part) == 0;
    let mut backward = None;
    let mut arrays = 0;
    let mut part = 0;
    for wanted in sort.parts() {
        if (0..parts.len()).any(|part| constant(part) && parts[part].path == wanted.path) {
            continue;
        }
        while part < parts.len() && parts[part].path != wanted.path && fixed(part) {
            part += 1;
        }
        if part == parts.len() || parts[part].path != wanted.path {
            return None;
        }
        if parts[part].holds != Holds::Value
            || parts[part].path.components().iter().any(|component| component.index.is_some())
        {
            return None;
        }
        if !texts.order(&bounds[part]) {
            return None;
        }
        if index.array_bits(part) != 0 {
            arrays += 1;
            if !bounds[part].is_full() {
                return None;
            }
        }
        let reversed = wanted.descending != parts[part].descending;
        if backward.is_some_and(|backward| backward != reversed) {
            return None;
        }
        backward = Some(reversed);
        part += 1;
    }
    // With arrays in the order, bounds on another part with arrays hide some of the elements; and two parts
    // with arrays order by pairs, which a sort need not do.
    let hidden = (0..parts.len()).any(|part| index.array_bits(part) != 0 && !bounds[part].is_full());
    if arrays > 1 || (arrays == 1 && hidden) {
        return None;
    }
    Some(backward.unwrap_or(false))
}

/// Scans into which one is split at most; each holds an open cursor of the store.
const EXPLODED_SCANS_MAX: usize = 200;

/// Scans that together are one access: the bounds of each, and whether it runs backward.
pub type Exploded = Vec<(Vec<IntervalList>, bool)>;

/// Splits an access whose first parts are lists of points into one scan a point, each of which then has
/// the sort's order: `{a: {$in: [1, 2]}}` sorted by `b` over an index on `a, b`.
pub fn explode(access: &Access, sort: &Sort) -> Option<Exploded> {
    let index = &access.index;
    if index.multikey.is_multikey() || index.multikey.has_long_keys() {
        return None;
    }
    let points = |list: &IntervalList| !list.is_empty() && list.intervals().iter().all(Interval::is_point);
    let fixed = access.bounds.iter().take_while(|list| points(list)).count();
    let scans = access.bounds[..fixed]
        .iter()
        .map(|list| list.intervals().len())
        .try_fold(1usize, usize::checked_mul)?;
    if !(2..=EXPLODED_SCANS_MAX).contains(&scans) {
        return None;
    }
    let mut exploded: Vec<Vec<IntervalList>> = vec![access.bounds.clone()];
    for part in 0..fixed {
        exploded = exploded
            .into_iter()
            .flat_map(|bounds| {
                bounds[part]
                    .clone()
                    .intervals()
                    .iter()
                    .map(|interval| {
                        let mut bounds = bounds.clone();
                        bounds[part] = IntervalList::one(interval.clone());
                        bounds
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    // A sort on a part with several points is not constant over the scans, so it may not be passed over.
    let varies = |part: usize| access.bounds[part].intervals().len() > 1;
    if sort
        .parts()
        .iter()
        .any(|wanted| (0..fixed).any(|part| varies(part) && index.spec.key[part].path == wanted.path))
    {
        return None;
    }
    exploded
        .into_iter()
        .map(|bounds| direction_for(index, &bounds, sort).map(|backward| (bounds, backward)))
        .collect::<Option<Vec<_>>>()
        .map(|mut scans| {
            if scans.first().is_some_and(|(_, backward)| *backward) {
                scans.reverse();
            }
            scans
        })
}
