//! The same pipeline, with less work: stages that can go earlier do, and those that can be one are.
//!
//! Each rule looks at a stage and the one behind it. Where it rewrites them, looking goes on one stage
//! earlier, since what is there now may go further. Every rule moves a stage towards the front or removes
//! one, so this ends.
//!
//! Invariant: the rewritten pipeline gives the same documents in the same order as the written one. What it
//! may leave out is work on documents that a later stage would have dropped, and the errors of that work.

mod filter;
mod foremost;
mod order;
mod window;

use std::sync::Arc;

use kilim_bson::RawValue;

use self::filter::Passage;
use super::lookup::Unwinding;
use super::{Facet, Group, Match, Modified, Paths, Pipeline, SortBy, Stage, UnionWith};
use crate::expression::Expression;
use crate::filter::{Filter, Predicate};

impl Pipeline {
    /// Of a pipeline that begins with the read of a collection.
    pub fn optimise(&mut self) {
        self.optimise_in(true);
    }

    fn optimise_in(&mut self, reads: bool) {
        rewrite_all(&mut self.stages, reads);
        if self.stages.iter().any(|stage| matches!(stage, Stage::Redact(_))) {
            match_before_redact(&mut self.stages);
            rewrite_all(&mut self.stages, reads);
        }
        tell_unpacking(&mut self.stages);
        foremost::mark(&mut self.stages);
        order::mark(&mut self.stages);
        for stage in &mut self.stages {
            if let Stage::Facet(facet) = stage {
                let facets = facet.facets.iter().map(|(name, pipeline)| {
                    let mut pipeline = pipeline.clone();
                    pipeline.optimise_in(false);
                    (name.clone(), pipeline)
                });
                *stage = Stage::Facet(Facet { facets: facets.collect() });
            }
        }
    }
}

fn rewrite_all(stages: &mut Vec<Stage>, reads: bool) {
    let mut at = 0;
    while at < stages.len() {
        at = match rewrite(stages, at, reads) {
            true => at.saturating_sub(1),
            false => at + 1,
        };
    }
}

/// What must be true of a document for a part of it to match goes before each `$redact`; the whole stays behind.
fn match_before_redact(stages: &mut Vec<Stage>) {
    for at in (0..stages.len()).rev() {
        if let [Stage::Redact(_), Stage::Match(behind), ..] = &stages[at..]
            && let Some(safe) = filter::safe_before_redact(&behind.filter)
        {
            stages.insert(at, Stage::Match(Match { filter: Arc::new(safe) }));
        }
    }
}

/// Divides a filter into what it asks of paths that only got new names, in their old names, and the rest.
pub(super) fn divide(
    filter: &Filter,
    renamed: Vec<(Box<str>, Box<str>)>,
) -> (Option<Filter>, Option<Filter>) {
    let modified = Modified::AllBut(Paths { paths: Vec::new(), renamed });
    let split = filter::split(filter, &modified, &Passage { predicate: |_| true, expression: |_| true });
    (split.passing, split.rest)
}

impl Match {
    /// What it asks that has nothing to do with a path, and the rest.
    pub fn apart_from(&self, path: &str) -> (Option<Match>, Option<Match>) {
        let modified = Modified::Paths(Paths { paths: vec![path.into()], renamed: Vec::new() });
        let passage = Passage { predicate: |_| true, expression: |_| true };
        let split = filter::split(&self.filter, &modified, &passage);
        let stage = |filter: Filter| Match { filter: Arc::new(filter) };
        (split.passing.map(stage), split.rest.map(stage))
    }
}

/// Tells each stage that unpacks buckets what measurements must satisfy behind it, so that buckets can be passed over. The
/// filter itself stays behind.
fn tell_unpacking(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        if let [Stage::UnpackBucket(unpacking), Stage::Match(behind), ..] = &mut stages[at..] {
            Arc::make_mut(unpacking).filter = Some(behind.filter.clone());
        }
    }
}

/// Rewrites a stage, with those behind it; whether there was something to rewrite.
fn rewrite(stages: &mut Vec<Stage>, at: usize, reads: bool) -> bool {
    if is_idle(&stages[at]) {
        stages.remove(at);
        return true;
    }
    let Some(next) = stages.get(at + 1) else { return false };
    match (&stages[at], next) {
        (Stage::Match(first), Stage::Match(second)) => {
            let both = Filter::all_of(vec![(*first.filter).clone(), (*second.filter).clone()]);
            stages[at] = Stage::Match(Match { filter: Arc::new(both) });
            stages.remove(at + 1);
            true
        }
        // The order that the first gives is lost.
        (Stage::Sort(first), Stage::Sort(_)) if first.limit.is_none() => {
            stages.remove(at);
            true
        }
        (Stage::UnionWith(union), next) if next.flow().is_of_one_document() => {
            let mut pipeline = (*union.pipeline).clone();
            pipeline.stages.push(next.clone());
            let union = UnionWith { pipeline: Arc::new(pipeline), ..union.clone() };
            stages.swap(at, at + 1);
            stages[at + 1] = Stage::UnionWith(union);
            true
        }
        (Stage::SetWindowFields(_) | Stage::Densify(_), Stage::Sort(sort))
            if sort.limit.is_none() && comes_sorted(&stages[at], sort) =>
        {
            stages.remove(at + 1);
            true
        }
        (_, Stage::Match(_)) => pass_match(stages, at),
        (_, Stage::Unwind(_)) => coalesce_unwind(stages, at),
        (_, Stage::Sort(_)) => pass_sort(stages, at),
        // What is not drawn need not be worked on.
        (stage, Stage::Sample(_)) if window::keeps_count(stage) => {
            stages.swap(at, at + 1);
            true
        }
        (Stage::Sort(_), next) if window::keeps_count(next) => window::limit_sort(stages, at),
        (_, Stage::Limit(_) | Stage::Skip(_)) => window::rewrite(stages, at, reads),
        _ => false,
    }
}

/// Whether what a stage gives is in the order of a `$sort` already.
fn comes_sorted(stage: &Stage, sort: &SortBy) -> bool {
    let order = match stage {
        Stage::SetWindowFields(stage) => {
            let written = |path: &str| stage.writes(path);
            if sort.sort.parts().iter().any(|part| written(part.path.as_str())) {
                return false;
            }
            stage.order()
        }
        Stage::Densify(stage) if stage.keeps_order() => stage.order(),
        _ => return false,
    };
    let mut order = order.iter();
    sort.sort.parts().iter().all(|part| {
        let wanted = if part.descending { -1 } else { 1 };
        matches!(order.next(), Some((path, RawValue::Int32(direction)))
            if path == part.path.as_str() && direction == wanted)
    })
}

/// Whether a stage passes on everything as it is.
fn is_idle(stage: &Stage) -> bool {
    match stage {
        Stage::Match(stage) => stage.filter.is_trivial(),
        Stage::Skip(stage) => stage.0 == 0,
        _ => false,
    }
}

/// Lets the `$match` at `at + 1` go before the stage at `at`, or as much of it as can.
fn pass_match(stages: &mut Vec<Stage>, at: usize) -> bool {
    let Some(Stage::Match(Match { filter })) = stages.get(at + 1) else { return false };
    let filter = filter.clone();
    let (modified, passage) = match &stages[at] {
        // As on MongoDB, a condition on the whole of a key of several fields holds the others back.
        Stage::Group(group)
            if matches!(&group.id, Expression::Object(fields)
                if fields.iter().any(|(_, expression)| expression.as_field().is_some()))
                && filter::asks(&filter, "_id") =>
        {
            return false;
        }
        Stage::Group(group) => (grouped_by(&group.id), group_passage(group)),
        stage => (stage.behaviour().modified(), Passage { predicate: |_| true, expression: |_| true }),
    };
    if modified == Modified::Unknown {
        return false;
    }
    let split = filter::split(&filter, &modified, &passage);
    if let Stage::Lookup(lookup) = &stages[at]
        && let Some(rest) = &split.rest
        && let Some(lookup) = lookup.with_match(rest)
    {
        stages[at] = Stage::Lookup(Arc::new(lookup));
        match split.passing {
            Some(passing) => {
                stages[at + 1] = Stage::Match(Match { filter: Arc::new(passing) });
                stages.swap(at, at + 1);
            }
            None => drop(stages.remove(at + 1)),
        }
        return true;
    }
    let Some(passing) = split.passing else { return false };
    match split.rest {
        Some(rest) => stages[at + 1] = Stage::Match(Match { filter: Arc::new(rest) }),
        None => drop(stages.remove(at + 1)),
    }
    stages.insert(at, Stage::Match(Match { filter: Arc::new(passing) }));
    true
}

/// What a `$group` leaves of its input's paths: those that are its key.
fn grouped_by(id: &Expression) -> Modified {
    let mut paths = Paths::default();
    let mut rename = |new: String, expression: &Expression| {
        if let Some(field) = expression.as_field().filter(|field| field.names().len() == 1) {
            paths.renamed.push((new.into(), field.as_str().into()));
        }
    };
    match id {
        Expression::Object(fields) => {
            for (name, expression) in fields {
                rename(format!("_id.{name}"), expression);
            }
        }
        id => rename("_id".to_owned(), id),
    }
    Modified::AllBut(paths)
}

/// In a key of several fields what is missing stays missing, so an `$expr` about them may go ahead. Under a
/// collation a group has one text for all that are equal to it, so only those may go ahead that do not tell them apart.
fn group_passage(group: &Group) -> Passage {
    match &group.id {
        _ if group.collation.is_some() => Passage {
            predicate: |predicate| passes_group(predicate) && compares(predicate),
            expression: |_| false,
        },
        Expression::Object(_) => Passage {
            predicate: |predicate| matches!(predicate, Predicate::Expr(..)) || passes_group(predicate),
            expression: |_| true,
        },
        _ => Passage { predicate: passes_group, expression: |_| false },
    }
}

/// A missing key becomes null in a group, so predicates that tell the two apart do not pass; nor does what
/// an expression implies.
fn passes_group(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Exists | Predicate::Type(_) | Predicate::Expr(..) => false,
        Predicate::Not(inner) => passes_group(inner),
        Predicate::All(list) => list.iter().all(passes_group),
        _ => true,
    }
}

/// Whether a predicate answers alike for all values that its collation takes for equal.
fn compares(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(..) => true,
        Predicate::In(list) => list.regexes().is_empty(),
        Predicate::Not(inner) => compares(inner),
        Predicate::All(list) => list.iter().all(compares),
        _ => false,
    }
}

/// Makes a `$lookup` unwind its own result.
fn coalesce_unwind(stages: &mut Vec<Stage>, at: usize) -> bool {
    let Some(Stage::Unwind(unwind)) = stages.get(at + 1) else { return false };
    let unwinding = Unwinding {
        preserve_null_and_empty_arrays: unwind.preserve,
        include_array_index: unwind.index.clone(),
    };
    let path = unwind.path.as_str();
    let coalesced = match &stages[at] {
        Stage::Lookup(lookup) => {
            lookup.with_unwind(path, unwinding).map(|lookup| Stage::Lookup(Arc::new(lookup)))
        }
        Stage::GraphLookup(lookup) => {
            lookup.with_unwind(path, unwinding).map(|lookup| Stage::GraphLookup(Arc::new(lookup)))
        }
        _ => None,
    };
    let Some(coalesced) = coalesced else { return false };
    stages[at] = coalesced;
    stages.remove(at + 1);
    true
}

/// Lets a `$sort` go before a stage that makes of one document none or several, next to each other.
fn pass_sort(stages: &mut [Stage], at: usize) -> bool {
    let [first, Stage::Sort(sort), ..] = &stages[at..] else { return false };
    let passes = match first {
        Stage::Unwind(_) => true,
        Stage::Lookup(lookup) => lookup.unwinding.is_none(),
        _ => false,
    };
    let Modified::Paths(modified) = first.behaviour().modified() else { return false };
    let untouched = |key: &str| modified.paths.iter().all(|path| !filter::overlap(path, key));
    if !passes || sort.limit.is_some() || !sort.sort.parts().iter().all(|part| untouched(part.path.as_str()))
    {
        return false;
    }
    stages.swap(at, at + 1);
    true
}

#[cfg(test)]
mod tests;
