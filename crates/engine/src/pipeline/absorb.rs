//! What the head of a pipeline becomes: one read of the collection.
//!
//! A read filters, then sorts, then skips, then limits, then projects; the head ends where the stages leave
//! that order. Of what follows, the fields that it reads are known: where an index holds all of them, the
//! records are not read at all.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_query::accumulator::{Accumulator, Kind};
use kilim_query::expression::{Dependencies, Expression};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;
use kilim_query::stage::{Behaviour, Beyond, Group, Project, Stage};

use super::counting::Counting;
use crate::plan::{Distinct, Purpose, ReadRequest};

/// The read that does the work of the first stages.
pub(super) struct Absorbed {
    pub request: ReadRequest,
    /// How many stages those are.
    pub count: usize,
    /// The read's projection as explain shows it.
    pub shown: Option<Document>,
}

/// `outermost`: in no other pipeline, so that nothing is bound when its expressions are evaluated.
pub(super) fn absorb(stages: &[Stage], outermost: bool) -> Absorbed {
    let mut filters = Vec::new();
    let mut sort = None::<Arc<Sort>>;
    let (mut skip, mut limit) = (0u64, None::<u64>);
    let mut count = 0;
    for stage in stages {
        let windowed = skip > 0 || limit.is_some();
        match stage {
            Stage::Match(stage) if sort.is_none() && !windowed => filters.push((*stage.filter).clone()),
            Stage::Sort(stage) if sort.is_none() && !windowed => {
                sort = Some(stage.sort.clone());
                limit = stage.limit;
            }
            Stage::Skip(more) => {
                skip = skip.saturating_add(more.0);
                limit = limit.map(|limit| limit.saturating_sub(more.0));
            }
            Stage::Limit(most) => limit = Some(limit.map_or(most.0, |limit| limit.min(most.0))),
            _ => break,
        }
        count += 1;
    }
    let filter = match limit {
        // A limit of which nothing is left is not the planner's "no limit".
        Some(0) => Filter::False,
        _ => Filter::all_of(filters),
    };
    let plain = sort.is_none() && skip == 0 && limit.is_none();
    let sort = sort.map(|sort| (*sort).clone());
    let mut request = ReadRequest { sort, skip, limit, ..ReadRequest::new(Arc::new(filter)) };
    let mut shown = None;
    match &stages[count..] {
        [Stage::Project(stage), ..] if is_absorbed(stage, plain && outermost) => {
            request.projection = Some((*stage.projection).clone());
            shown = Some(stage.projection.to_document());
            count += 1;
        }
        // Only their number is looked at, so neither their order nor their fields.
        [Stage::Group(group), ..] if Counting::serves(group) => {
            request.purpose = Purpose::Count;
            request.sort = None;
        }
        rest => {
            if let [Stage::Group(group), ..] = rest
                && skip == 0
                && limit.is_none()
            {
                request.distinct = distinct(group, request.sort.as_ref());
            }
            if let Some((projection, written)) = narrowed(rest) {
                request.projection = Some(projection);
                request.narrowing = true;
                shown = Some(written);
            }
        }
    }
    Absorbed { request, count, shown }
}

/// Whether the planner can be given a `$project`: what it includes it can do, what it computes only where
/// nothing else is to be done.
fn is_absorbed(stage: &Project, computes: bool) -> bool {
    let includes = stage.dependencies(&mut Dependencies::default()) == Beyond::Nothing;
    includes && (computes || stage.projection.needed_fields().is_some())
}

/// The field by which documents are grouped, if one document of each group will do: where there is nothing to
/// accumulate, or only what the first of each has.
fn distinct(group: &Group, sort: Option<&Sort>) -> Option<Distinct> {
    let key = match &group.id {
        Expression::Object(fields) => match &fields[..] {
            [(_, expression)] => expression.as_field()?,
            _ => return None,
        },
        id => id.as_field()?,
    };
    let leads =
        sort.and_then(|sort| sort.parts().first()).is_some_and(|part| part.path.as_str() == key.as_str());
    let first = |accumulator: &Accumulator| accumulator.kind == Kind::First && leads;
    let enough = group.fields.iter().all(|(_, accumulator)| first(accumulator));
    // In a group, what is missing and what is null are one.
    enough.then(|| Distinct { path: key.as_str().into(), nulls_apart: false })
}

/// The fields that stages read of their input, if that is not everything.
pub(super) fn narrowed(stages: &[Stage]) -> Option<(Projection, Document)> {
    let mut needed = Dependencies::default();
    stages.iter().find(|stage| stage.behaviour().dependencies(&mut needed) == Beyond::Nothing)?;
    if needed.whole_document || needed.fields.is_empty() {
        return None;
    }
    let mut written = Document::new();
    if needed.fields.contains("_id") {
        written.push("_id", 1);
    }
    let mut last = "";
    // In order, so that what lies below a field comes right after it.
    for path in needed.fields.iter().filter(|path| ***path != *"_id") {
        let below = |above: &str| path.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'));
        if (!last.is_empty() && below(last)) || below("_id") {
            continue;
        }
        written.push(path, 1);
        last = path;
    }
    if !needed.fields.iter().any(|path| &**path == "_id" || path.starts_with("_id.")) {
        written.push("_id", 0);
    }
    let projection = Projection::parse(written.as_raw()).ok()?;
    Some((projection, written))
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Array, Value, doc};
    use kilim_query::expression::{Scope, Variables};
    use kilim_query::stage::{Context, Owner, Pipeline};

    use super::*;

    #[test]
    fn fields_that_are_read_are_asked_for() {
        for (stages, count, shown) in [
            (vec![doc! {"$match": {"a": 1}}], 1, None),
            (vec![doc! {"$project": {"a": 1}}], 1, Some(doc! {"_id": true, "a": true})),
            (vec![doc! {"$limit": 1}, doc! {"$project": {"x": "$a.b"}}], 1, Some(doc! {"_id": 1, "a.b": 1})),
            (vec![doc! {"$addFields": {"x": 1}}], 0, None),
            (
                vec![doc! {"$group": {"_id": "$a.b", "n": {"$sum": "$c"}}}],
                0,
                Some(doc! {"a.b": 1, "c": 1, "_id": 0}),
            ),
            (vec![doc! {"$match": {"a": 1}}, doc! {"$count": "n"}], 1, None),
            (
                vec![doc! {"$unwind": "$b"}, doc! {"$project": {"_id": 0, "b.c": 1, "d": 1}}],
                0,
                Some(doc! {"b": 1, "d": 1, "_id": 0}),
            ),
        ] {
            let stages: Array = stages.into_iter().map(Value::Document).collect();
            let variables = Variables::default();
            let scope = Scope::new(&variables);
            let context = Context::new(&scope, "test", Owner::Collection);
            let pipeline = Pipeline::parse(stages.as_raw(), &context).expect("a pipeline");
            let absorbed = absorb(&pipeline.stages, true);
            assert_eq!((absorbed.count, absorbed.shown), (count, shown));
        }
    }
}
