//! Ways into an index: which predicates become bounds, and which remain to be tested.
//!
//! In an index without arrays every predicate on a key part narrows its bounds. With arrays, two
//! predicates may be satisfied by two different elements, hence by two different keys: they combine only
//! where they share no array, or where one `$elemMatch` makes them speak of the same element. Each
//! predicate that could lead then gives an access of its own.

use std::sync::Arc;

use kilim_collation::Collation;
use kilim_query::filter::Filter;

use super::leaf::{Leaf, leaves_of};
use crate::bounds::{Bounds, IntervalList, PartTraits, Texts, Tightness};
use crate::index::{Holds, Index, Multikey};

/// One way to use one index for a conjunction.
#[derive(Debug, Clone)]
pub struct Access {
    pub index: Arc<Index>,
    /// Per key part.
    pub bounds: Vec<IntervalList>,
    /// Conjuncts that the record must still satisfy.
    pub residual: Vec<usize>,
    /// Conjuncts that can be tested on the key: the part and the conjunct.
    pub on_key: Vec<(usize, usize)>,
    /// The leaves that the bounds come from, as bits; those from the 64th on have none.
    pub leaves: u64,
}

impl Access {
    /// The whole index, everything to be tested.
    pub fn full(index: &Arc<Index>, conjuncts: usize) -> Access {
        Access {
            index: index.clone(),
            bounds: vec![IntervalList::full(); index.spec.key.len()],
            residual: (0..conjuncts).collect(),
            on_key: Vec::new(),
            leaves: 0,
        }
    }
}

impl Index {
    /// The components of a key part's path that met an array, as bits.
    pub(super) fn array_bits(&self, part: usize) -> u64 {
        self.multikey.array_bits(part)
    }
}

/// All ways to use `index` for the conjunction; none if nothing bounds the part that leads. Of an index that is seen by path
/// (a wildcard index), `index` is a view.
pub fn accesses(index: &Arc<Index>, conjuncts: &[Filter], collation: Option<&Collation>) -> Vec<Access> {
    let texts = Texts::new(index.spec.collation.as_ref(), collation);
    let kind = &index.spec.kind;
    let mut found = accesses_from(index, conjuncts, kind.leading_part(index), texts);
    for access in &mut found {
        kind.complete_bounds(index, &mut access.bounds);
    }
    found
}

/// Each access takes one of the predicates on the part that leads, which is the only one with arrays where it is not the
/// first.
fn accesses_from(index: &Arc<Index>, conjuncts: &[Filter], leading: usize, texts: Texts<'_>) -> Vec<Access> {
    let leaves = leaves_of(conjuncts);
    let assignable: Vec<Vec<Assignable<'_, '_>>> =
        (0..index.spec.key.len()).map(|part| assignable_to(index, part, &leaves, texts)).collect();
    // A path gets its bounds from those of the value behind it.
    let first = usize::from(index.spec.key[0].holds == Holds::Path);
    let leading = &assignable[leading];
    if leading.is_empty() || assignable[first].is_empty() {
        return Vec::new();
    }
    if !index.multikey.is_multikey() {
        return vec![build(index, conjuncts.len(), assignable.iter().flatten())];
    }
    let mut found: Vec<(Vec<*const Leaf<'_>>, Access)> = Vec::new();
    for first in leading {
        let mut used = Used::default();
        let mut chosen = vec![first];
        used.take(index, first);
        for other in assignable.iter().flatten() {
            if !std::ptr::eq(other, first) && used.allows(index, other) {
                used.take(index, other);
                chosen.push(other);
            }
        }
        let mut identity: Vec<*const Leaf<'_>> =
            chosen.iter().map(|one| std::ptr::from_ref(one.leaf)).collect();
        identity.sort_unstable();
        if found.iter().all(|(known, _)| *known != identity) {
            found.push((identity, build(index, conjuncts.len(), chosen)));
        }
    }
    found.into_iter().map(|(_, access)| access).collect()
}

/// A leaf that a key part can serve.
struct Assignable<'l, 'f> {
    part: usize,
    leaf: &'l Leaf<'f>,
    /// Which of the conjunction's leaves it is.
    number: usize,
    bounds: Bounds,
}

fn assignable_to<'l, 'f>(
    index: &Index,
    part: usize,
    leaves: &'l [Leaf<'f>],
    texts: Texts<'_>,
) -> Vec<Assignable<'l, 'f>> {
    if part > 0 && index.multikey.is_of_first_part_only() {
        return Vec::new();
    }
    let path = &index.spec.key[part].path;
    let traits = |leaf: &Leaf<'_>| PartTraits {
        texts,
        multikey: index.array_bits(part) != 0,
        dotted: path.components().len() > 1,
        sparse: index.spec.leaves_out_missing_at(part),
        single: index.spec.key.len() == 1,
        element: leaf.elements.last().is_some_and(|&(length, _)| length == path.components().len()),
    };
    leaves
        .iter()
        .enumerate()
        .filter(|(_, leaf)| *leaf.path == *path)
        .filter_map(|(number, leaf)| {
            let bounds = index.bounds(part, leaf.predicate, traits(leaf))?;
            Some(Assignable { part, leaf, number, bounds })
        })
        .collect()
}

/// The arrays that chosen predicates speak of: the path to the array, and the `$elemMatch` on it.
#[derive(Default)]
struct Used(Vec<(String, Option<u32>)>);

impl Used {
    fn arrays(index: &Index, one: &Assignable<'_, '_>) -> Vec<(String, Option<u32>)> {
        let bits = index.array_bits(one.part);
        let components = index.spec.key[one.part].path.components();
        let mut prefix = String::new();
        let mut arrays = Vec::new();
        for (at, component) in components.iter().enumerate() {
            prefix.push('.');
            prefix.push_str(&component.name);
            if bits & Multikey::bit_of(at) != 0 {
                let element = one.leaf.elements.iter().find(|(length, _)| *length == at + 1);
                arrays.push((prefix.clone(), element.map(|&(_, id)| id)));
            }
        }
        arrays
    }

    fn allows(&self, index: &Index, one: &Assignable<'_, '_>) -> bool {
        Used::arrays(index, one).into_iter().all(|(prefix, element)| {
            self.0.iter().all(|(used, by)| *used != prefix || (element.is_some() && *by == element))
        })
    }

    fn take(&mut self, index: &Index, one: &Assignable<'_, '_>) {
        self.0.extend(Used::arrays(index, one));
    }
}

fn build<'a, 'l: 'a, 'f: 'l + 'a>(
    index: &Arc<Index>,
    conjuncts: usize,
    chosen: impl IntoIterator<Item = &'a Assignable<'l, 'f>>,
) -> Access {
    let mut access = Access::full(index, conjuncts);
    let mut narrowed = vec![false; access.bounds.len()];
    for Assignable { part, leaf, number, bounds } in chosen {
        access.leaves |= u32::try_from(*number).ok().and_then(|bit| 1u64.checked_shl(bit)).unwrap_or(0);
        access.bounds[*part] = if narrowed[*part] {
            access.bounds[*part].intersection(&bounds.intervals)
        } else {
            bounds.intervals.clone()
        };
        narrowed[*part] = true;
        if !leaf.whole {
            continue;
        }
        match bounds.tightness {
            Tightness::Exact => access.residual.retain(|conjunct| *conjunct != leaf.conjunct),
            // With arrays, the key that satisfied the bounds need not be the value that matched.
            Tightness::InexactCovered if index.array_bits(*part) == 0 => {
                access.residual.retain(|conjunct| *conjunct != leaf.conjunct);
                access.on_key.push((*part, leaf.conjunct));
            }
            _ => {}
        }
    }
    access
}
