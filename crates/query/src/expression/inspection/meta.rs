//! `$meta`: what is known of a document beside its fields.
//!
//! Nothing computes scores, distances or highlights, so what depends on them is refused or missing, as it is
//! in mongod where no stage has made them.

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::Arguments::Special;
use crate::expression::{Call, Evaluated, Expression, Fold, Operator, Scope};

pub(super) const META: Operator =
    Operator::new("$meta", "what is known of a document beside its fields", Special(parse), |_, _| {
        Ok(Evaluated::Missing)
    })
    .folds(Fold::Never)
    .shown_by(|call| call.expression(0).and_then(Expression::as_constant).cloned().unwrap_or(Value::Null));

/// Made by stages of a search service or for the server itself: never there.
const MISSING: [&str; 7] = [
    "indexKey",
    "randVal",
    "searchHighlights",
    "searchScore",
    "searchScoreDetails",
    "timeseriesBucketMaxTime",
    "timeseriesBucketMinTime",
];

fn parse(operator: &'static Operator, operand: RawValue<'_>, _scope: &Scope<'_>) -> Result<Expression> {
    let RawValue::String(name) = operand else {
        return Err(Error::location(17_307, "$meta only supports string arguments"));
    };
    let unavailable = |what: &str| {
        Err(Error::location(40_218, format!("query requires {what} metadata, but it is not available")))
    };
    match name {
        "textScore" => unavailable("text score"),
        "geoNearDistance" => unavailable("$geoNear distance"),
        "geoNearPoint" => unavailable("$geoNear point"),
        "sortKey" | "recordId" => Err(Error::user(
            ErrorCode::NotImplemented,
            format!("the expression {{$meta: \"{name}\"}} is not supported"),
        )),
        _ if MISSING.contains(&name) => {
            let arguments = vec![Some(Expression::Constant(name.into()))];
            Ok(Expression::Call(Box::new(Call::new(operator, arguments))))
        }
        _ => Err(Error::location(17_308, format!("Unsupported argument to $meta: {name}"))),
    }
}
