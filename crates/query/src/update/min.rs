//! `$min`: the value becomes the argument where that is less in comparison order.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{RawValue, Value, compare};
use kilim_error::Result;

use super::change::Change;
use super::operator::{Missing, Operator, Place};

#[derive(Debug)]
struct Min(Value);

pub(super) fn parse(_path: &str, argument: RawValue<'_>) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Min(argument.to_value())))
}

impl Operator for Min {
    fn update<'a>(&'a self, value: RawValue<'a>, _place: &Place<'a, '_>) -> Result<Change<'a>> {
        let bound = self.0.as_raw();
        Ok(if compare(bound, value) == Ordering::Less { Change::Set(bound) } else { Change::Keep })
    }

    fn missing<'a>(&'a self, _place: &Place<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Create(Change::Set(self.0.as_raw())))
    }
}
