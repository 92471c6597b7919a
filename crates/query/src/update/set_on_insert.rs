//! `$setOnInsert`: `$set` for a document that is being inserted, nothing otherwise.

use std::sync::Arc;

use kilim_bson::{RawValue, Value};
use kilim_collation::Collation;
use kilim_error::Result;

use super::change::Change;
use super::operator::{Missing, Operator, Site};
use super::set::set;

#[derive(Debug)]
struct SetOnInsert(Value);

pub(super) fn parse(_path: &str, argument: RawValue<'_>, _: &Option<Collation>) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(SetOnInsert(argument.to_value())))
}

impl Operator for SetOnInsert {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        Ok(if site.context.inserting { set(value, self.0.as_raw()) } else { Change::Keep })
    }

    fn missing<'a>(&'a self, site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(match site.context.inserting {
            true => Missing::Create(Change::Set(self.0.as_raw())),
            false => Missing::Ignore,
        })
    }
}
