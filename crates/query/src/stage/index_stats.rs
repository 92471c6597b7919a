//! `$indexStats`: how often each index was used.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{Error, Result};

use super::{Behaviour, Context, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexStats;

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    match value {
        RawValue::Document(spec) if spec.is_empty() => out.push(Stage::IndexStats(IndexStats)),
        _ => {
            return Err(Error::location(
                28803,
                "The $indexStats stage specification must be an empty object",
            ));
        }
    }
    Ok(())
}

impl Behaviour for IndexStats {
    fn to_document(&self) -> Document {
        doc! {"$indexStats": {}}
    }
}
