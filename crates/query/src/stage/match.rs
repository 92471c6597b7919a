//! `$match`: the documents that match a filter.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Stage};
use crate::expression::Dependencies;
use crate::filter::Filter;

#[derive(Debug, Clone)]
pub struct Match {
    pub filter: Arc<Filter>,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(filter) = value else {
        return Err(Error::location(15959, "the match filter must be an expression in an object"));
    };
    let filter = Arc::new(Filter::parse_for_stage(filter, context.scope)?);
    out.push(Stage::Match(Match { filter }));
    Ok(())
}

impl Behaviour for Match {
    fn to_document(&self) -> Document {
        [("$match", Value::Document(self.filter.to_document()))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        self.filter.dependencies(needed);
        Beyond::Later
    }
}
