//! `$mul`: multiplies by a number; a missing field becomes zero of the argument's type.

use std::sync::Arc;

use kilim_bson::{Decimal128, RawValue, Value};
use kilim_collation::Collation;
use kilim_error::Result;

use super::arithmetic::Arithmetic;
use super::operator::Operator;

static MUL: Arithmetic = Arithmetic {
    name: "$mul",
    verb: "multiply",
    longs: i64::checked_mul,
    doubles: |left, right| left * right,
    decimals: Decimal128::multiply,
    // Computed, because zero keeps the argument's sign and scale, and NaN stays.
    missing: |mul, argument| mul.compute(argument, RawValue::Int32(0)).unwrap_or(Value::Int32(0)),
};

pub(super) fn parse(path: &str, argument: RawValue<'_>, _: &Option<Collation>) -> Result<Arc<dyn Operator>> {
    MUL.parse(path, argument)
}
