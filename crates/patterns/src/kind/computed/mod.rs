//! `computed` as it is written: over another collection, or within the document.

mod derived;

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use self::derived::Derived;
use super::Kind;
use crate::argument;
use crate::expression::refuse_chance;
use crate::rollup::{Parts, Rollup, WhenNotMatched};

const PLACE: &str = "computed";

const WHEN_NOT_MATCHED: [(&str, WhenNotMatched); 2] =
    [("discard", WhenNotMatched::Discard), ("insert", WhenNotMatched::Insert)];

pub(super) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    let (mut from, mut pipeline, mut set, mut when_not_matched) = (None, None, None, None);
    let mut on = None;
    for (name, value) in spec {
        match name {
            "from" => from = Some(argument::text(PLACE, name, value)?),
            "pipeline" => {
                pipeline = Some(value.as_array().ok_or_else(|| {
                    Error::user(ErrorCode::TypeMismatch, "'computed.pipeline' must be an array of stages")
                })?);
            }
            "on" => on = Some(argument::text(PLACE, name, value)?),
            "whenNotMatched" => {
                when_not_matched = Some(argument::choice(PLACE, name, value, &WHEN_NOT_MATCHED)?);
            }
            "set" => set = Some(argument::document(PLACE, name, value)?),
            _ => return Err(argument::unknown(PLACE, name)),
        }
    }
    match (set, from, pipeline) {
        (Some(set), None, None) if on.is_none() && when_not_matched.is_none() => {
            refuse_chance(PLACE, RawValue::Document(set))?;
            Ok(Arc::new(Derived::parse(set)?))
        }
        (None, Some(from), Some(pipeline)) => Ok(Arc::new(Rollup::parse(&Parts {
            place: PLACE,
            from,
            pipeline,
            on: on.unwrap_or("_id"),
            when_not_matched: when_not_matched.unwrap_or(WhenNotMatched::Discard),
            outputs: None,
        })?)),
        (None, None, _) => Err(argument::missing(PLACE, "from")),
        (None, Some(_), None) => Err(argument::missing(PLACE, "pipeline")),
        _ => Err(Error::user(
            ErrorCode::FailedToParse,
            "'computed' takes either 'from' and 'pipeline' or 'set', not both",
        )),
    }
}
