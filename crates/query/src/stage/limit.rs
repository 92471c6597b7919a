//! `$limit`: the first documents. And how `$limit`, `$skip` and `$sample` read a number.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Stage};
use crate::expression::Dependencies;
use crate::filter::number;

/// How many documents at most; never zero as parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub u64);

pub(super) fn parse(name: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let count = parse_count(name, value, 5107201)?;
    if count == 0 {
        return Err(Error::location(15958, "the limit must be positive"));
    }
    out.push(Stage::Limit(Limit(count)));
    Ok(())
}

/// A whole number that is not negative, of any numeric type.
pub(super) fn parse_count(name: &str, value: RawValue<'_>, code: i32) -> Result<u64> {
    number::parse_non_negative_i64(name, value)
        .map(i64::unsigned_abs)
        .map_err(|what| Error::location(code, format!("invalid argument to {name} stage: {what}")))
}

impl Behaviour for Limit {
    fn to_document(&self) -> Document {
        doc! {"$limit": self.0 as i64}
    }

    fn dependencies(&self, _: &mut Dependencies) -> Beyond {
        Beyond::Later
    }
}
