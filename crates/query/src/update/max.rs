//! `$max`: the value becomes the argument where that is greater in comparison order.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{RawValue, Value, compare};
use kilim_error::Result;

use super::change::Change;
use super::operator::{Missing, Operator, Place};

#[derive(Debug)]
struct Max(Value);

pub(super) fn parse(_path: &str, argument: RawValue<'_>) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Max(argument.to_value())))
}

impl Operator for Max {
    fn update<'a>(&'a self, value: RawValue<'a>, _place: &Place<'a, '_>) -> Result<Change<'a>> {
        let bound = self.0.as_raw();
        Ok(if compare(bound, value) == Ordering::Greater { Change::Set(bound) } else { Change::Keep })
    }

    fn missing<'a>(&'a self, _place: &Place<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Create(Change::Set(self.0.as_raw())))
    }
}
