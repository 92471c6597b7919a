//! `$meta`: what is known of a document beside its fields.
//!
//! A score is known of documents that a `$text` found, a distance of those that were found by it. Elsewhere asking for them is
//! refused. What a search service makes is always missing.

use std::sync::Arc;

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, Result};

use crate::expression::Arguments::Special;
use crate::expression::{Call, Env, Evaluated, Expression, Fold, FoundBy, Operator, Scope};
use crate::sort::Sort;

pub(super) const META: Operator =
    Operator::new("$meta", "what is known of a document beside its fields", Special(parse), evaluate)
        .folds(Fold::Never)
        .shown_by(|call| {
            call.expression(0).and_then(Expression::as_constant).cloned().unwrap_or(Value::Null)
        });

/// Made by stages of a search service or for the server itself: never there.
const MISSING: [&str; 6] = [
    "randVal",
    "searchHighlights",
    "searchScore",
    "searchScoreDetails",
    "timeseriesBucketMaxTime",
    "timeseriesBucketMinTime",
];

/// What documents were sorted by, as an array.
const SORT_KEY: &str = "sortKey";
/// The key of the index by which the document was found.
const INDEX_KEY: &str = "indexKey";
/// The number of the document's record.
const RECORD_ID: &str = "recordId";

/// How well the document matches a `$text`.
const TEXT_SCORE: &str = "textScore";
/// How far the document is, where it was found by that, and which of its places.
const DISTANCE: &str = "geoNearDistance";
const PLACE: &str = "geoNearPoint";

/// What only documents found in some way have, and what messages call it.
const OF_FOUND: [(&str, FoundBy, &str); 3] = [
    (TEXT_SCORE, FoundBy::Text, "text score"),
    (DISTANCE, FoundBy::Distance, "$geoNear distance"),
    (PLACE, FoundBy::Distance, "$geoNear point"),
];

/// What no `$match` can ask for, and what messages call it.
const BESIDE_DOCUMENTS: [(&str, &str); 8] = [
    (DISTANCE, "$geoNear distance"),
    (PLACE, "$geoNear point"),
    (SORT_KEY, "sort key"),
    (INDEX_KEY, "index key"),
    (RECORD_ID, "record ID"),
    ("randVal", "rand val"),
    ("timeseriesBucketMinTime", "timeseries bucket min time"),
    ("timeseriesBucketMaxTime", "timeseries bucket max time"),
];

fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    match name(call) {
        Some(SORT_KEY) => match call.prepared::<Arc<Sort>>() {
            Some(sort) => sort.values_of(env.root).map(Evaluated::from),
            None => Ok(Evaluated::Missing),
        },
        Some(INDEX_KEY) => {
            Ok(env.key.map_or(Evaluated::Missing, |key| Evaluated::from(RawValue::Document(key))))
        }
        Some(PLACE) => Ok(env.place.map_or(Evaluated::Missing, Evaluated::from)),
        Some(TEXT_SCORE | DISTANCE) => Ok(env.score.map_or(Evaluated::Missing, Evaluated::from)),
        Some(RECORD_ID) => Ok(env.record.map_or(Evaluated::Missing, Evaluated::from)),
        _ => Ok(Evaluated::Missing),
    }
}

fn name(call: &Call) -> Option<&str> {
    match call.expression(0)?.as_constant()? {
        Value::String(name) => Some(name),
        _ => None,
    }
}

impl Expression {
    /// Whether the key is asked for by which documents were sorted.
    pub fn wants_sort_key(&self) -> bool {
        self.wants(SORT_KEY)
    }

    /// Whether something is asked for that is known of a document and not in it.
    pub fn asks_beside_document(&self) -> bool {
        match self {
            Expression::Call(call) if call.operator.name == META.name => true,
            _ => self.children().any(Expression::asks_beside_document),
        }
    }

    /// Whether it is that key.
    pub fn is_sort_key(&self) -> bool {
        matches!(self, Expression::Call(call) if call.operator.name == META.name) && self.wants(SORT_KEY)
    }

    /// Whether the key is asked for by which documents were found.
    pub fn wants_index_key(&self) -> bool {
        self.wants(INDEX_KEY)
    }

    /// Whether the score of a `$text` is asked for.
    pub fn wants_text_score(&self) -> bool {
        self.wants(TEXT_SCORE)
    }

    /// Refuses what a `$match` cannot ask for: it looks at documents alone.
    pub(crate) fn check_asks_document_alone(&self) -> Result<()> {
        if let Expression::Call(call) = self
            && call.operator.name == META.name
            && let Some((_, what)) = BESIDE_DOCUMENTS.iter().find(|(own, _)| Some(*own) == name(call))
        {
            return Err(unavailable(what));
        }
        self.children().try_for_each(Expression::check_asks_document_alone)
    }

    fn wants(&self, what: &str) -> bool {
        match self {
            Expression::Call(call) if call.operator.name == META.name => name(call) == Some(what),
            _ => self.children().any(|child| child.wants(what)),
        }
    }

    /// Tells what the documents are sorted by, from which their keys follow.
    pub fn give_sort(&mut self, sort: &Arc<Sort>) {
        if let Expression::Call(call) = self
            && call.operator.name == META.name
        {
            call.prepare(sort.clone());
        }
        self.children_mut().for_each(|child| child.give_sort(sort));
    }
}

fn unavailable(what: &str) -> Error {
    Error::location(40_218, format!("query requires {what} metadata, but it is not available"))
}

/// Refuses what documents that were found in this way do not have.
pub(crate) fn check_available(name: &str, found_by: FoundBy) -> Result<()> {
    match OF_FOUND.iter().find(|(of_found, by, _)| *of_found == name && *by != found_by) {
        Some((_, _, what)) => Err(unavailable(what)),
        None => Ok(()),
    }
}

fn parse(operator: &'static Operator, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    let RawValue::String(name) = operand else {
        return Err(Error::location(17_307, "$meta only supports string arguments"));
    };
    match name {
        _ if [SORT_KEY, INDEX_KEY, RECORD_ID, TEXT_SCORE, DISTANCE, PLACE].contains(&name)
            || MISSING.contains(&name) =>
        {
            check_available(name, scope.found_by())?;
            let arguments = vec![Some(Expression::Constant(name.into()))];
            Ok(Expression::Call(Box::new(Call::new(operator, arguments))))
        }
        _ => Err(Error::location(17_308, format!("Unsupported argument to $meta: {name}"))),
    }
}
