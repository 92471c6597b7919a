//! The last or the first measurement of each series.
//!
//! A `$group` by the meta that takes of each group what sorts first by time needs, of each meta, only measurements of the
//! latest time, or of the earliest. The stage that unpacks buckets is told so, and passes over buckets whose bounds are worse
//! than what it has met. All measurements of the best time stay, so what decides between them decides as before.

use std::sync::Arc;

use super::super::{Foremost, Group, Stage, UnpackBucket};
use crate::accumulator::{Accumulator, Kind};
use crate::expression::Expression;
use crate::filter::{Comparison, Filter, Predicate};
use crate::sort::Sort;
use kilim_bson::Value;

/// Tells each stage that unpacks buckets which measurements are looked at behind it.
pub(super) fn mark(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        let (before, behind) = stages.split_at_mut(at + 1);
        if let Some(Stage::UnpackBucket(unpacking)) = before.last_mut()
            && let Some(foremost) = wanted(unpacking, behind)
        {
            Arc::make_mut(unpacking).foremost = Some(foremost);
        }
    }
}

fn wanted(unpacking: &UnpackBucket, behind: &[Stage]) -> Option<Foremost> {
    let (filter, behind) = match behind {
        [Stage::Match(stage), rest @ ..] => (Some(&*stage.filter), rest),
        rest => (None, rest),
    };
    let foremost = match behind {
        [Stage::Sort(sort), Stage::Group(group), ..] if sort.limit.is_none() => {
            let first = first_by(unpacking, &sort.sort)?;
            of_group(unpacking, group, |accumulator| match accumulator.kind {
                Kind::First => Some(first),
                Kind::Last => Some(first.opposite()),
                _ => None,
            })
        }
        [Stage::Group(group), ..] => of_group(unpacking, group, |_| None),
        _ => None,
    }?;
    filter.is_none_or(|filter| keeps(unpacking, filter, foremost)).then_some(foremost)
}

/// Whether a filter that lets a measurement pass lets all of the same meta pass that are better.
fn keeps(unpacking: &UnpackBucket, filter: &Filter, foremost: Foremost) -> bool {
    match filter {
        Filter::And(children) => children.iter().all(|child| keeps(unpacking, child, foremost)),
        Filter::Field { path, predicate: Predicate::Compare(comparison, operand) } => {
            let outwards = match comparison {
                Comparison::Gt | Comparison::Gte => foremost == Foremost::Latest,
                Comparison::Lt | Comparison::Lte => foremost == Foremost::Earliest,
                Comparison::Eq => false,
            };
            outwards && *path.as_str() == *unpacking.time_field && matches!(**operand, Value::DateTime(_))
        }
        _ => false,
    }
}

/// Which measurements of a meta sort first: the order is by fields of the meta, then by the time.
fn first_by(unpacking: &UnpackBucket, sort: &Sort) -> Option<Foremost> {
    let mut parts = sort.parts().iter().skip_while(|part| is_of_meta(unpacking, part.path.as_str()));
    let time = parts.next().filter(|part| *part.path.as_str() == *unpacking.time_field)?;
    Some(if time.descending { Foremost::Latest } else { Foremost::Earliest })
}

/// What all accumulators of a group by the meta agree on. `in_order` knows those that depend on the order of documents.
fn of_group(
    unpacking: &UnpackBucket,
    group: &Group,
    in_order: impl Fn(&Accumulator) -> Option<Foremost>,
) -> Option<Foremost> {
    let of_meta = |expression: &Expression| match expression {
        Expression::Constant(_) => true,
        expression => expression.as_field().is_some_and(|path| is_of_meta(unpacking, path.as_str())),
    };
    let by_meta = match &group.id {
        Expression::Object(fields) => fields.iter().all(|(_, expression)| of_meta(expression)),
        id => of_meta(id),
    };
    let is_time = |accumulator: &Accumulator| {
        accumulator.input.as_field().is_some_and(|path| *path.as_str() == *unpacking.time_field)
    };
    let mut wanted = group.fields.iter().map(|(_, accumulator)| match accumulator.kind {
        Kind::Top => first_by(unpacking, accumulator.sort()?),
        Kind::Bottom => first_by(unpacking, accumulator.sort()?).map(Foremost::opposite),
        Kind::Max if is_time(accumulator) => Some(Foremost::Latest),
        Kind::Min if is_time(accumulator) => Some(Foremost::Earliest),
        _ => in_order(accumulator),
    });
    let first = wanted.next().filter(|_| by_meta)??;
    wanted.all(|other| other == Some(first)).then_some(first)
}

pub(super) fn is_of_meta(unpacking: &UnpackBucket, path: &str) -> bool {
    let below =
        |meta: &str| path.strip_prefix(meta).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    unpacking.meta_field.as_deref().is_some_and(below)
}
