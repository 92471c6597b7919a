//! `$pull`: the elements that satisfy a condition or equal a value go.

use std::sync::Arc;

use kilim_bson::{RawArray, RawValue};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::array::array_of;
use super::change::Change;
use super::operator::{Missing, Operator, Site};
use crate::filter::ElementFilter;
use crate::interrupt;

#[derive(Debug)]
struct Pull(ElementFilter);

pub(super) fn parse(
    _path: &str,
    argument: RawValue<'_>,
    collation: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Pull(ElementFilter::parse(argument, collation)?)))
}

impl Operator for Pull {
    fn update<'a>(&'a self, value: RawValue<'a>, _site: &Site<'a, '_>) -> Result<Change<'a>> {
        pull(value, |element| self.0.matches(element))
    }

    fn removes_elements(&self) -> bool {
        true
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Check)
    }
}

/// Removes the elements for which `remove` holds.
pub(super) fn pull<'a>(value: RawValue<'a>, remove: impl Fn(RawValue<'_>) -> bool) -> Result<Change<'a>> {
    let RawValue::Array(array) = value else {
        return Err(Error::user(ErrorCode::BadValue, "Cannot apply $pull to a non-array value"));
    };
    let change = without(array, |element| interrupt::goes_on(1) && remove(element));
    interrupt::settled()?;
    Ok(change)
}

fn without<'a>(array: RawArray<'a>, remove: impl Fn(RawValue<'_>) -> bool) -> Change<'a> {
    if !array.iter().any(&remove) {
        return Change::Keep;
    }
    Change::SetOwned(array_of(array.iter().filter(|element| !remove(*element))))
}
