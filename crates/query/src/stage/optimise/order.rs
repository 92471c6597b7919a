//! A `$sort` by the time, or by fields of the meta and the time.
//!
//! The stage that unpacks buckets is told to take them in the order of their bounds. Then what it gives is nearly sorted: no
//! measurement comes that sorts before the bound of its bucket. The `$sort` gives away what lies before that bound, and
//! holds only measurements of buckets that overlap.

use std::sync::Arc;

use super::super::{InOrder, Stage, UnpackBucket};
use super::foremost::is_of_meta;
use crate::sort::Sort;

/// Tells each stage that unpacks buckets in which order they are wanted behind it.
pub(super) fn mark(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        let (before, behind) = stages.split_at_mut(at + 1);
        let Some(Stage::UnpackBucket(unpacking)) = before.last_mut() else { continue };
        let sort = match behind {
            [Stage::Sort(sort), ..] | [Stage::Match(_), Stage::Sort(sort), ..] => sort,
            _ => continue,
        };
        if unpacking.foremost.is_none()
            && let Some(order) = wanted(unpacking, &sort.sort)
        {
            sort.bounded = true;
            Arc::make_mut(unpacking).order = Some(order);
        }
    }
}

/// The first fields of a sort, where these are of the meta and the next is the time.
fn wanted(unpacking: &UnpackBucket, sort: &Sort) -> Option<InOrder> {
    let parts = sort.parts();
    let of_meta = parts.iter().take_while(|part| is_of_meta(unpacking, part.path.as_str())).count();
    let time = parts.get(of_meta).filter(|part| *part.path.as_str() == *unpacking.time_field)?;
    let has_score = parts.iter().any(|part| part.score.is_some());
    let sort = Arc::new(sort.leading(of_meta + 1));
    (!has_score).then_some(InOrder { sort, is_backward: time.descending })
}
