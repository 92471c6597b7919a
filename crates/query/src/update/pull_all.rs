//! `$pullAll`: the elements that equal one of a list go.

use std::sync::Arc;

use kilim_bson::{Array, RawValue};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use super::array::{COMPARED_MAX, Members, contains};
use super::change::Change;
use super::operator::{Missing, Operator, Site};
use super::pull::pull;

#[derive(Debug)]
struct PullAll {
    values: Array,
    /// The same, where they are many.
    members: Option<Members>,
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
    let members = match array.iter().nth(COMPARED_MAX) {
        Some(_) => Some(Members::of(array.iter(), collator(collation))?),
        None => None,
    };
    Ok(Arc::new(PullAll { values: array.to_array(), members, collation: collation.clone() }))
}

impl Operator for PullAll {
    fn update<'a>(&'a self, value: RawValue<'a>, _site: &Site<'a, '_>) -> Result<Change<'a>> {
        let collator = collator(&self.collation);
        pull(value, |element| match &self.members {
            Some(members) => members.contains(element, collator),
            None => contains(self.values.as_raw().iter(), element, collator),
        })
    }

    fn removes_elements(&self) -> bool {
        true
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Check)
    }
}
