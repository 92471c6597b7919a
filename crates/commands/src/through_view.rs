//! Reads of a view: `find`, `count` and `distinct` as the pipelines that they stand for.

use kilim_bson::{Array, ArrayBuilder, Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

/// Options of `find` that no pipeline has.
const NOT_IN_PIPELINES: [&str; 9] = [
    "min",
    "max",
    "returnKey",
    "showRecordId",
    "tailable",
    "noCursorTimeout",
    "allowPartialResults",
    "readOnce",
    "singleBatch",
];

/// The pipeline of a checked `find`.
pub fn find(body: RawDocument<'_>) -> Result<Array> {
    for name in NOT_IN_PIPELINES {
        let given = match body.get(name) {
            Some(RawValue::Bool(given)) => given,
            Some(RawValue::Document(range)) => !range.is_empty(),
            _ => false,
        };
        // One document is one batch anyway: what drivers ask for to find one.
        let finds_one = name == "singleBatch" && number(body.get("limit")) == 1;
        if given && !finds_one {
            let message = match name {
                "tailable" => "Tailable cursors are not supported in aggregation.".to_owned(),
                name => format!("Option {name} not supported in aggregation."),
            };
            return Err(Error::user(ErrorCode::InvalidPipelineOperator, message));
        }
    }
    let mut stages = ArrayBuilder::new();
    push_document(&mut stages, "$match", body.get("filter"));
    let natural = body.get("sort").and_then(RawValue::as_document).is_some_and(is_natural);
    if !natural {
        push_document(&mut stages, "$sort", body.get("sort"));
    }
    push_number(&mut stages, "$skip", body.get("skip"));
    push_number(&mut stages, "$limit", body.get("limit"));
    push_document(&mut stages, "$project", body.get("projection"));
    Ok(stages.finish())
}

pub fn is_natural(sort: RawDocument<'_>) -> bool {
    sort.get("$natural").is_some()
}

/// The pipeline of a checked `count`; what it counts is in the field `count`.
pub fn count(body: RawDocument<'_>, limit: Option<u64>) -> Array {
    let mut stages = ArrayBuilder::new();
    push_document(&mut stages, "$match", body.get("query"));
    push_number(&mut stages, "$skip", body.get("skip"));
    if let Some(limit) = limit {
        stages.push(doc! {"$limit": limit as i64});
    }
    stages.push(doc! {"$count": "count"});
    stages.finish()
}

/// The documents that a checked `distinct` takes its values from.
pub fn distinct(body: RawDocument<'_>) -> Array {
    let mut stages = ArrayBuilder::new();
    push_document(&mut stages, "$match", body.get("query"));
    stages.finish()
}

fn push_document(stages: &mut ArrayBuilder, name: &str, value: Option<RawValue<'_>>) {
    if let Some(RawValue::Document(document)) = value
        && !document.is_empty()
    {
        stages.push(one(name, Value::Document(document.to_document())));
    }
}

fn number(value: Option<RawValue<'_>>) -> i64 {
    match value {
        Some(RawValue::Int32(number)) => i64::from(number),
        Some(RawValue::Int64(number)) => number,
        Some(RawValue::Double(number)) => number as i64,
        Some(RawValue::Decimal128(number)) => number.to_f64() as i64,
        _ => 0,
    }
}

fn push_number(stages: &mut ArrayBuilder, name: &str, value: Option<RawValue<'_>>) {
    let number = number(value);
    if number > 0 {
        stages.push(one(name, Value::Int64(number)));
    }
}

fn one(name: &str, value: Value) -> Document {
    [(name, value)].into_iter().collect()
}
