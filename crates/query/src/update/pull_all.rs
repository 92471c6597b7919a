//! `$pullAll`: the elements that equal one of a list go.

use std::sync::Arc;

use kilim_bson::{Array, RawValue};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use super::array::contains;
use super::change::Change;
use super::operator::{Missing, Operator, Place};
use super::pull::pull;

#[derive(Debug)]
struct PullAll {
    values: Array,
    collation: Option<Collation>,
}

pub(super) fn parse(
    _path: &str,
    argument: RawValue<'_>,
    collation: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    let RawValue::Array(array) = argument else {
        let kind = argument.element_type().name();
        let message = format!("$pullAll requires an array argument but was given a {kind}");
        return Err(Error::user(ErrorCode::BadValue, message));
    };
    Ok(Arc::new(PullAll { values: array.to_array(), collation: collation.clone() }))
}

impl Operator for PullAll {
    fn update<'a>(&'a self, value: RawValue<'a>, _place: &Place<'a, '_>) -> Result<Change<'a>> {
        pull(value, |element| contains(self.values.as_raw().iter(), element, collator(&self.collation)))
    }

    fn missing<'a>(&'a self, _place: &Place<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Check)
    }
}
