//! `$max`: the value becomes the argument where that is greater in comparison order.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::RawValue;
use kilim_collation::Collation;
use kilim_error::Result;

use super::bound;
use super::operator::Operator;

pub(super) fn parse(
    _path: &str,
    argument: RawValue<'_>,
    collation: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    bound::parse(argument, Ordering::Greater, collation)
}
