//! `$multiply`.

use kilim_bson::Decimal128;
use kilim_error::{Error, ErrorCode, Result};

use super::Number;
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    product_of(call.each(env))
}

/// The product of two numbers.
pub(crate) fn multiply(left: &Evaluated<'_>, right: &Evaluated<'_>) -> Result<Evaluated<'static>> {
    product_of([Ok(left.clone()), Ok(right.clone())].into_iter())
}

fn product_of<'v>(values: impl Iterator<Item = Result<Evaluated<'v>>>) -> Result<Evaluated<'static>> {
    let mut product = Product::new();
    for value in values {
        let value = value?;
        match Number::of_evaluated(&value) {
            Some(number) => product.multiply(number),
            None if value.is_nullish() => return Ok(Evaluated::NULL),
            None => {
                let message = format!("$multiply only supports numeric types, not {}", value.type_name());
                return Err(Error::user(ErrorCode::TypeMismatch, message));
            }
        }
    }
    Ok(product.total().into())
}

/// A product as wide as the widest factor. Longs that overflow go on as the double that was kept beside.
struct Product {
    whole: Option<i64>,
    double: f64,
    decimal: Option<Decimal128>,
    /// Whether a long was among the factors.
    long: bool,
}

impl Product {
    fn new() -> Product {
        Product { whole: Some(1), double: 1.0, decimal: None, long: false }
    }

    fn multiply(&mut self, factor: Number) {
        if let Some(product) = self.decimal {
            self.decimal = Some(product.multiply(factor.to_decimal()));
            return;
        }
        let whole = match factor {
            Number::Decimal(value) => {
                self.decimal = Some(self.total().to_decimal().multiply(value));
                return;
            }
            Number::Int(value) => Some(i64::from(value)),
            Number::Long(value) => {
                self.long = true;
                Some(value)
            }
            Number::Double(_) => None,
        };
        self.double *= factor.to_f64();
        self.whole = self.whole.zip(whole).and_then(|(product, factor)| product.checked_mul(factor));
    }

    fn total(&self) -> Number {
        match (self.decimal, self.whole) {
            (Some(product), _) => Number::Decimal(product),
            (None, Some(product)) if self.long => Number::Long(product),
            (None, Some(product)) => Number::int_or_long(product),
            (None, None) => Number::Double(self.double),
        }
    }
}
