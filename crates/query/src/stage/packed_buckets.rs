//! `$_internalPackedBuckets`: the buckets of a collection whose measurements the pattern `bucket` packs. It is what
//! `<name>.buckets` puts before a pipeline.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Context, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedBuckets;

pub(super) fn parse(name: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    match value {
        RawValue::Document(spec) if spec.is_empty() => out.push(Stage::PackedBuckets(PackedBuckets)),
        _ => return Err(Error::user(ErrorCode::FailedToParse, format!("{name} takes an empty document"))),
    }
    Ok(())
}

impl Behaviour for PackedBuckets {
    fn to_document(&self) -> Document {
        doc! {"$_internalPackedBuckets": {}}
    }
}
