//! `$min` and `$max`: the value becomes the argument where that lies before it, or behind it, in comparison order.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{RawValue, Value, compare_with};
use kilim_collation::{Collation, collator};
use kilim_error::Result;

use super::change::Change;
use super::operator::{Missing, Operator, Site};

#[derive(Debug)]
struct Bound {
    bound: Value,
    /// How the bound compares to the values that give way to it.
    wins: Ordering,
    collation: Option<Collation>,
}

pub(super) fn parse(
    argument: RawValue<'_>,
    wins: Ordering,
    collation: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    Ok(Arc::new(Bound { bound: argument.to_value(), wins, collation: collation.clone() }))
}

impl Operator for Bound {
    fn update<'a>(&'a self, value: RawValue<'a>, _site: &Site<'a, '_>) -> Result<Change<'a>> {
        let bound = self.bound.as_raw();
        let order = compare_with(bound, value, collator(&self.collation));
        Ok(if order == self.wins { Change::Set(bound) } else { Change::Keep })
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Create(Change::Set(self.bound.as_raw())))
    }
}
