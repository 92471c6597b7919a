//! `$set`: the value becomes the argument.

use std::sync::Arc;

use kilim_bson::{RawValue, Value, identical};
use kilim_collation::Collation;
use kilim_error::Result;

use super::change::Change;
use super::operator::{Missing, Operator, Site};

#[derive(Debug)]
struct Set(Value);

pub(super) fn parse(_path: &str, argument: RawValue<'_>, _: &Option<Collation>) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Set(argument.to_value())))
}

impl Operator for Set {
    fn update<'a>(&'a self, value: RawValue<'a>, _site: &Site<'a, '_>) -> Result<Change<'a>> {
        Ok(set(value, self.0.as_raw()))
    }

    fn assigns(&self) -> Option<RawValue<'_>> {
        Some(self.0.as_raw())
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Create(Change::Set(self.0.as_raw())))
    }
}

/// Puts `new` in the place of `old`, if that changes anything.
pub(super) fn set<'a>(old: RawValue<'_>, new: RawValue<'a>) -> Change<'a> {
    if identical(old, new) { Change::Keep } else { Change::Set(new) }
}
