//! Numbers as `$inc` and `$mul` compute with them.
//!
//! The result has the wider type of the two. Int widens to long when it overflows; long overflows for good.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{Decimal128, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::change::Change;
use super::operator::{Missing, Operator, Site};
use crate::expression::{Number, Pair};

/// What one operator does to a pair of numbers, for each type.
pub(super) struct Arithmetic {
    pub name: &'static str,
    /// As in "Cannot increment with …".
    pub verb: &'static str,
    pub longs: fn(i64, i64) -> Option<i64>,
    pub doubles: fn(f64, f64) -> f64,
    pub decimals: fn(Decimal128, Decimal128) -> Decimal128,
    /// What a missing field becomes.
    pub missing: fn(&Arithmetic, RawValue<'_>) -> Value,
}

struct ArithmeticOperator {
    arithmetic: &'static Arithmetic,
    argument: Value,
}

impl std::fmt::Debug for ArithmeticOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({:?})", self.arithmetic.name, self.argument)
    }
}

impl Arithmetic {
    pub fn parse(&'static self, path: &str, argument: RawValue<'_>) -> Result<Arc<dyn Operator>> {
        if !argument.is_number() {
            let element = crate::text::element(path, argument);
            let message = format!("Cannot {} with non-numeric argument: {{{element}}}", self.verb);
            return Err(Error::user(ErrorCode::TypeMismatch, message));
        }
        Ok(Arc::new(ArithmeticOperator { arithmetic: self, argument: argument.to_value() }))
    }

    /// Both are numbers; none where a long overflows.
    pub fn compute(&self, left: RawValue<'_>, right: RawValue<'_>) -> Option<Value> {
        let number = match Pair::of(Number::of(left)?, Number::of(right)?) {
            Pair::Decimals(left, right) => Number::Decimal((self.decimals)(left, right)),
            Pair::Doubles(left, right) => Number::Double((self.doubles)(left, right)),
            Pair::Longs(left, right) => Number::Long((self.longs)(left, right)?),
            Pair::Ints(left, right) => Number::int_or_long((self.longs)(left.into(), right.into())?),
        };
        Some(number.to_value())
    }
}

impl Operator for ArithmeticOperator {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        let name = self.arithmetic.name;
        if !value.is_number() {
            let message = format!(
                "Cannot apply {name} to a value of non-numeric type. {{{}}} has the field '{}' of non-numeric type {}",
                site.id_text(),
                site.name(),
                value.element_type().name()
            );
            return Err(Error::user(ErrorCode::TypeMismatch, message));
        }
        let Some(result) = self.arithmetic.compute(value, self.argument.as_raw()) else {
            let current = match value {
                RawValue::Int32(int) => format!("(NumberInt){int}"),
                RawValue::Int64(long) => format!("(NumberLong){long}"),
                _ => String::new(),
            };
            let message = format!(
                "Failed to apply {name} operations to current value ({current}) for document {{{}}}",
                site.id_text()
            );
            return Err(Error::user(ErrorCode::BadValue, message));
        };
        Ok(if same(value, result.as_raw()) { Change::Keep } else { Change::SetOwned(result) })
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        let value = (self.arithmetic.missing)(self.arithmetic, self.argument.as_raw());
        Ok(Missing::Create(Change::SetOwned(value)))
    }
}

/// Same type and equal: so `-0.0` and `0.0` are the same here, and NaN is never the same.
fn same(left: RawValue<'_>, right: RawValue<'_>) -> bool {
    match (left, right) {
        (RawValue::Int32(left), RawValue::Int32(right)) => left == right,
        (RawValue::Int64(left), RawValue::Int64(right)) => left == right,
        (RawValue::Double(left), RawValue::Double(right)) => left == right,
        (RawValue::Decimal128(left), RawValue::Decimal128(right)) => {
            !left.is_nan() && left.compare(right) == Ordering::Equal
        }
        _ => false,
    }
}
