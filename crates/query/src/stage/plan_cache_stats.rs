//! `$planCacheStats`: which plans are remembered.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Context, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanCacheStats;

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let refuse = |what: &str| {
        let found = value.element_type().name();
        Err(Error::user(ErrorCode::FailedToParse, format!("$planCacheStats {what}. Found: {found}")))
    };
    match value {
        RawValue::Document(spec) if spec.is_empty() => {
            out.push(Stage::PlanCacheStats(PlanCacheStats));
            Ok(())
        }
        RawValue::Document(_) => refuse("parameters object must be empty"),
        _ => refuse("value must be an object"),
    }
}

impl Behaviour for PlanCacheStats {
    fn to_document(&self) -> Document {
        doc! {"$planCacheStats": {}}
    }
}
