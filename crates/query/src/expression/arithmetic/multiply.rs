//! `$multiply`.

use kilim_bson::Decimal128;
use kilim_error::{Error, ErrorCode, Result};

use super::Number;
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut product = Product::new();
    for value in call.each(env) {
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
    Ok(product.total.into())
}

/// A product as wide as the widest factor; longs that overflow go on as the double that was kept beside.
struct Product {
    total: Number,
    double: f64,
}

impl Product {
    fn new() -> Product {
        Product { total: Number::Int(1), double: 1.0 }
    }

    fn multiply(&mut self, factor: Number) {
        if let (Number::Decimal(_), _) | (_, Number::Decimal(_)) = (self.total, factor) {
            let product: Decimal128 = self.total.to_decimal().multiply(factor.to_decimal());
            self.total = Number::Decimal(product);
            return;
        }
        self.double *= factor.to_f64();
        let longs = match (self.total, factor) {
            (Number::Int(left), Number::Int(right)) => {
                self.total = Number::int_or_long(i64::from(left) * i64::from(right));
                return;
            }
            (Number::Int(left), Number::Long(right)) => Some((i64::from(left), right)),
            (Number::Long(left), Number::Int(right)) => Some((left, i64::from(right))),
            (Number::Long(left), Number::Long(right)) => Some((left, right)),
            _ => None,
        };
        self.total = longs
            .and_then(|(left, right)| left.checked_mul(right))
            .map_or(Number::Double(self.double), Number::Long);
    }
}
