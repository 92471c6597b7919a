//! `$meta`: what is known of a document beside its fields.
//!
//! Nothing computes distances or highlights, so what depends on them is refused or missing, as it is
//! in mongod where no stage has made them.

use std::sync::Arc;

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, Result};

use crate::expression::Arguments::Special;
use crate::expression::{Call, Env, Evaluated, Expression, Fold, Operator, Scope};
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

/// What no `$match` can ask for, and what messages call it.
const BESIDE_DOCUMENTS: [(&str, &str); 6] = [
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
        Some(TEXT_SCORE) => Ok(env.score.map_or(Evaluated::Missing, Evaluated::from)),
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

fn parse(operator: &'static Operator, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    let RawValue::String(name) = operand else {
        return Err(Error::location(17_307, "$meta only supports string arguments"));
    };
    match name {
        TEXT_SCORE if !scope.has_text_score() => Err(unavailable("text score")),
        "geoNearDistance" => Err(unavailable("$geoNear distance")),
        "geoNearPoint" => Err(unavailable("$geoNear point")),
        _ if [SORT_KEY, INDEX_KEY, RECORD_ID, TEXT_SCORE].contains(&name) || MISSING.contains(&name) => {
            let arguments = vec![Some(Expression::Constant(name.into()))];
            Ok(Expression::Call(Box::new(Call::new(operator, arguments))))
        }
        _ => Err(Error::location(17_308, format!("Unsupported argument to $meta: {name}"))),
    }
}
