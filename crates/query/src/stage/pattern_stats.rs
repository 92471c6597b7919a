//! `$patternStats`: what the patterns of a collection or database did, and how they are doing.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Context, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternStats;

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    match value {
        RawValue::Document(spec) if spec.is_empty() => out.push(Stage::PatternStats(PatternStats)),
        _ => return Err(Error::user(ErrorCode::FailedToParse, "$patternStats takes an empty document")),
    }
    Ok(())
}

impl Behaviour for PatternStats {
    fn to_document(&self) -> Document {
        doc! {"$patternStats": {}}
    }
}
