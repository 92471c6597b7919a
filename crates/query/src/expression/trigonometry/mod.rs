//! Angles and hyperbolas: doubles, or decimals for decimals.
//!
//! Each function is a row: what it does to a double and to a decimal, and for which numbers it is there.

mod inverse_hyperbolic;

use kilim_bson::Decimal128;
use kilim_error::{Error, Result};

use self::inverse_hyperbolic::{acosh, asinh, atanh};
use super::Arguments::Exactly;
use super::arithmetic::{Number, Pair, only_numbers, unary};
use super::{Call, Env, Evaluated, Operator};
use crate::filter::number::short;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$sin", "the sine of an angle", Exactly(1), |call, env| {
        Function { double: f64::sin, decimal: Decimal128::sin, domain: FINITE }.evaluate(call, env)
    }),
    Operator::new("$cos", "the cosine of an angle", Exactly(1), |call, env| {
        Function { double: f64::cos, decimal: Decimal128::cos, domain: FINITE }.evaluate(call, env)
    }),
    Operator::new("$tan", "the tangent of an angle", Exactly(1), |call, env| {
        Function { double: f64::tan, decimal: Decimal128::tan, domain: FINITE }.evaluate(call, env)
    }),
    Operator::new("$asin", "the angle of a sine", Exactly(1), |call, env| {
        Function { double: f64::asin, decimal: Decimal128::asin, domain: UNIT }.evaluate(call, env)
    }),
    Operator::new("$acos", "the angle of a cosine", Exactly(1), |call, env| {
        Function { double: f64::acos, decimal: Decimal128::acos, domain: UNIT }.evaluate(call, env)
    }),
    Operator::new("$atan", "the angle of a tangent", Exactly(1), |call, env| {
        Function { double: f64::atan, decimal: Decimal128::atan, domain: ALL }.evaluate(call, env)
    }),
    Operator::new("$atan2", "the angle of a point, from its y and x", Exactly(2), atan2),
    Operator::new("$sinh", "the hyperbolic sine", Exactly(1), |call, env| {
        Function { double: f64::sinh, decimal: Decimal128::sinh, domain: ALL }.evaluate(call, env)
    }),
    Operator::new("$cosh", "the hyperbolic cosine", Exactly(1), |call, env| {
        Function { double: f64::cosh, decimal: Decimal128::cosh, domain: ALL }.evaluate(call, env)
    }),
    Operator::new("$tanh", "the hyperbolic tangent", Exactly(1), |call, env| {
        Function { double: f64::tanh, decimal: Decimal128::tanh, domain: ALL }.evaluate(call, env)
    }),
    Operator::new("$asinh", "the inverse hyperbolic sine", Exactly(1), |call, env| {
        Function { double: asinh, decimal: Decimal128::asinh, domain: ALL }.evaluate(call, env)
    }),
    Operator::new("$acosh", "the inverse hyperbolic cosine", Exactly(1), |call, env| {
        Function { double: acosh, decimal: Decimal128::acosh, domain: FROM_ONE }.evaluate(call, env)
    }),
    Operator::new("$atanh", "the inverse hyperbolic tangent", Exactly(1), |call, env| {
        Function { double: atanh, decimal: Decimal128::atanh, domain: UNIT }.evaluate(call, env)
    }),
    Operator::new("$degreesToRadians", "degrees as radians", Exactly(1), |call, env| {
        let (double, decimal) = (|degrees| degrees * RADIANS_PER_DEGREE, degrees_to_radians);
        Function { double, decimal, domain: ALL }.evaluate(call, env)
    }),
    Operator::new("$radiansToDegrees", "radians as degrees", Exactly(1), |call, env| {
        let (double, decimal) = (|radians| radians * DEGREES_PER_RADIAN, radians_to_degrees);
        Function { double, decimal, domain: ALL }.evaluate(call, env)
    }),
];

const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;
const DEGREES_PER_RADIAN: f64 = 180.0 / std::f64::consts::PI;

struct Function {
    double: fn(f64) -> f64,
    decimal: fn(Decimal128) -> Decimal128,
    domain: Domain,
}

/// The numbers that a function takes. NaN is always taken.
struct Domain {
    least: f64,
    most: f64,
    /// Whether the ends belong to it.
    closed: bool,
    /// As messages show it.
    shown: &'static str,
}

const ALL: Domain =
    Domain { least: f64::NEG_INFINITY, most: f64::INFINITY, closed: true, shown: "[-inf,inf]" };
const FINITE: Domain =
    Domain { least: f64::NEG_INFINITY, most: f64::INFINITY, closed: false, shown: "(-inf,inf)" };
const UNIT: Domain = Domain { least: -1.0, most: 1.0, closed: true, shown: "[-1,1]" };
const FROM_ONE: Domain = Domain { least: 1.0, most: f64::INFINITY, closed: true, shown: "[1,inf]" };

impl Domain {
    fn contains(&self, number: Number) -> bool {
        let (least, most) = match number {
            Number::Decimal(value) => {
                // Ends are whole or infinite, so these decimals are exact.
                let end = Decimal128::from_f64_all_digits;
                (value.compare(end(self.least)), value.compare(end(self.most)))
            }
            other => {
                let value = other.to_f64();
                (value.total_cmp(&self.least), value.total_cmp(&self.most))
            }
        };
        number.is_nan()
            || if self.closed { least.is_ge() && most.is_le() } else { least.is_gt() && most.is_lt() }
    }
}

impl Function {
    #[inline]
    fn evaluate<'a>(self, call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
        unary(call, env, |number| {
            if !self.domain.contains(number) {
                let shown = match number {
                    Number::Decimal(value) => value.to_string(),
                    other => short(other.to_f64()),
                };
                let (name, domain) = (call.operator.name, self.domain.shown);
                let message = format!("cannot apply {name} to {shown}, value must be in {domain}");
                return Err(Error::location(50_989, message));
            }
            Ok(match number {
                Number::Decimal(value) => Number::Decimal((self.decimal)(value)),
                other => Number::Double((self.double)(other.to_f64())),
            })
        })
    }
}

fn atan2<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let number = |index, code| -> Result<Option<Number>> {
        let value = call.argument(index, env)?;
        match Number::of_evaluated(&value) {
            None if value.is_nullish() => Ok(None),
            None => Err(only_numbers(code, call.operator, &value)),
            number => Ok(number),
        }
    };
    let Some(y) = number(0, 51_044)? else { return Ok(Evaluated::NULL) };
    let Some(x) = number(1, 51_045)? else { return Ok(Evaluated::NULL) };
    Ok(match Pair::of(y, x) {
        Pair::Decimals(y, x) => y.atan2(x).into(),
        _ => y.to_f64().atan2(x.to_f64()).into(),
    })
}

fn degrees_to_radians(degrees: Decimal128) -> Decimal128 {
    degrees.multiply(Decimal128::RADIANS_PER_DEGREE)
}

fn radians_to_degrees(radians: Decimal128) -> Decimal128 {
    radians.multiply(Decimal128::DEGREES_PER_RADIAN)
}
