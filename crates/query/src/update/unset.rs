//! `$unset`: the field goes; an array element becomes null.

use std::sync::Arc;

use kilim_bson::RawValue;
use kilim_collation::Collation;
use kilim_error::Result;

use super::change::Change;
use super::operator::{Missing, Operator, Site};

#[derive(Debug)]
struct Unset;

pub(super) fn parse(
    _path: &str,
    _argument: RawValue<'_>,
    _: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Unset))
}

impl Operator for Unset {
    fn update<'a>(&'a self, _value: RawValue<'a>, _site: &Site<'a, '_>) -> Result<Change<'a>> {
        Ok(Change::Remove)
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Ignore)
    }
}
