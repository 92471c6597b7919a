//! `$inc`: adds a number; a missing field becomes the number itself.

use std::sync::Arc;

use kilim_bson::{Decimal128, RawValue};
use kilim_collation::Collation;
use kilim_error::Result;

use super::arithmetic::Arithmetic;
use super::operator::Operator;

static INC: Arithmetic = Arithmetic {
    name: "$inc",
    verb: "increment",
    longs: i64::checked_add,
    doubles: |left, right| left + right,
    decimals: Decimal128::add,
    missing: |_, argument| argument.to_value(),
};

pub(super) fn parse(path: &str, argument: RawValue<'_>, _: &Option<Collation>) -> Result<Arc<dyn Operator>> {
    INC.parse(path, argument)
}
