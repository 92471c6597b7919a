//! `subset` as it is written: shorthand for `computed` with `$topN`.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::Kind;
use crate::argument;
use crate::path::{overlap, with_value};
use crate::rollup::{Parts, Rollup, WhenNotMatched};

const PLACE: &str = "subset";

/// What the list is called within the pipeline.
const LIST: &str = "subset";

pub(super) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    let (mut from, mut foreign, mut as_path, mut sort, mut limit) = (None, None, None, None, None);
    let (mut local, mut filter, mut fields) = ("_id", None, None);
    for (name, value) in spec {
        match name {
            "from" => from = Some(argument::text(PLACE, name, value)?),
            "localField" => local = argument::text(PLACE, name, value)?,
            "foreignField" => foreign = Some(argument::text(PLACE, name, value)?),
            "as" => as_path = Some(argument::text(PLACE, name, value)?),
            "sort" => sort = Some(argument::document(PLACE, name, value)?),
            "limit" => limit = Some(argument::whole(PLACE, name, value, 1, 10_000)?),
            "match" => filter = Some(argument::document(PLACE, name, value)?),
            "fields" => fields = Some(argument::document(PLACE, name, value)?),
            _ => return Err(argument::unknown(PLACE, name)),
        }
    }
    let missing = |name| argument::missing(PLACE, name);
    let from = from.ok_or_else(|| missing("from"))?;
    let foreign = foreign.ok_or_else(|| missing("foreignField"))?;
    let as_path = as_path.ok_or_else(|| missing("as"))?;
    let sort = sort.ok_or_else(|| missing("sort"))?;
    let limit = limit.ok_or_else(|| missing("limit"))?;

    // Ties go by `_id`, so that there is one right answer.
    let mut order = sort.to_document();
    if sort.get("_id").is_none() {
        order.push("_id", 1);
    }
    let output = match fields {
        None => RawValue::String("$$ROOT").to_value(),
        Some(fields) => kilim_bson::Value::Document(shown(fields)?),
    };
    let best = doc! {"n": limit, "sortBy": order, "output": output};
    let mut pipeline = Vec::new();
    if let Some(filter) = filter {
        pipeline.push(doc! {"$match": filter});
    }
    pipeline.push(doc! {"$group": {"_id": format!("${foreign}"), LIST: {"$topN": best}}});
    let pipeline: kilim_bson::Array = pipeline.into_iter().map(kilim_bson::Value::Document).collect();
    let parts = Parts {
        place: PLACE,
        from,
        pipeline: pipeline.as_raw(),
        on: local,
        when_not_matched: WhenNotMatched::Discard,
        outputs: Some(vec![(LIST.into(), as_path.into())]),
    };
    Ok(Arc::new(Rollup::parse(&parts)?))
}

/// `{userId: 1}` as expressions, the `_id` always among them.
fn shown(fields: RawDocument<'_>) -> Result<Document> {
    let mut output = doc! {"_id": "$_id"};
    let mut shown: Vec<&str> = Vec::new();
    for (name, value) in fields {
        if name == "_id" {
            continue;
        }
        if let Some(other) = shown.iter().find(|other| overlap(other, name)) {
            return Err(Error::user(
                ErrorCode::PatternFieldConflict,
                format!(
                    "'{PLACE}.fields.{name}' and '{PLACE}.fields.{other}' lie in each other: leave one of them out"
                ),
            ));
        }
        shown.push(name);
        let path = format!("${name}");
        let value = match value {
            RawValue::Bool(true) => RawValue::String(&path),
            value if value.is_number() && !matches!(value, RawValue::Int32(0) | RawValue::Int64(0)) => {
                RawValue::String(&path)
            }
            value if value.is_number() || matches!(value, RawValue::Bool(_)) => {
                return Err(Error::user(
                    ErrorCode::BadValue,
                    format!(
                        "'{PLACE}.fields.{name}' is neither 1 nor an expression: leave out what is not to be shown"
                    ),
                ));
            }
            value => value,
        };
        // A dotted name makes a document.
        output = with_value(output.as_raw(), name, Some(value));
    }
    Ok(output)
}
