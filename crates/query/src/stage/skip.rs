//! `$skip`: all but the first documents.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::Result;

use super::limit::parse_count;
use super::{Behaviour, Beyond, Context, Stage};
use crate::expression::Dependencies;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip(pub u64);

pub(super) fn parse(name: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    out.push(Stage::Skip(Skip(parse_count(name, value, 5107200)?)));
    Ok(())
}

impl Behaviour for Skip {
    fn to_document(&self) -> Document {
        doc! {"$skip": self.0 as i64}
    }

    fn dependencies(&self, _: &mut Dependencies) -> Beyond {
        Beyond::Later
    }
}
