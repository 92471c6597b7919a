//! Roots, exponentials, logarithms, sines and their kin of decimals.
//!
//! mongod computes them with a library that goes over to IEEE binary128 and back, rounding at each step. Its
//! results are therefore not always the nearest decimal, and they are what clients compare with. So the same
//! steps are taken here: `to_quad` marks where something was a binary128. The functions in between are exact
//! to far more bits ([`wide`], [`elementary`]), as the library's are nearly.
//!
//! Invariant: NaN gives NaN; no argument panics.

mod angle;
mod convert;
mod elementary;
mod exponential;
mod hyperbolic;
mod power;
mod root;
#[cfg(test)]
mod tests;
mod trigonometric;
mod wide;

use super::{Decimal128, Parts};

impl Decimal128 {
    pub const ONE: Decimal128 = Decimal128::finite(false, 1, 0);
    pub const PI: Decimal128 = Decimal128::finite(false, 3_141_592_653_589_793_238_462_643_383_279_503, -33);
    pub const HALF_PI: Decimal128 =
        Decimal128::finite(false, 1_570_796_326_794_896_619_231_321_691_639_751, -33);
    pub const RADIANS_PER_DEGREE: Decimal128 =
        Decimal128::finite(false, 1_745_329_251_994_329_576_923_690_768_488_613, -35);
    pub const DEGREES_PER_RADIAN: Decimal128 =
        Decimal128::finite(false, 5_729_577_951_308_232_087_679_815_481_410_517, -32);
}

/// Arguments nearer to zero than this are their own sine, tangent and so on.
const TINY: Decimal128 = Decimal128::finite(false, 1, -40);
const MINUS_ONE: Decimal128 = Decimal128::finite(true, 1, 0);
const HALF: Decimal128 = Decimal128::finite(false, 5, -1);
/// A zero that takes all digits from what it is added to.
const LOWEST_ZERO: Decimal128 = Decimal128::finite(false, 0, super::EXPONENT_MIN);

/// A little more than the argument, which shows that the result is not exact by having all digits.
fn just_above(value: Decimal128) -> Decimal128 {
    value.multiply_add(TINY, value)
}

/// The same in the other direction.
fn just_below(value: Decimal128) -> Decimal128 {
    value.multiply_add(TINY.negate(), value)
}

fn is_tiny(value: Decimal128) -> bool {
    value.abs().compare(TINY).is_lt()
}

fn with_sign(value: Decimal128, negative: bool) -> Decimal128 {
    if value.is_negative() == negative { value } else { value.negate() }
}

/// NaN, with the argument's sign.
fn quiet(value: Decimal128) -> Decimal128 {
    with_sign(Decimal128::NAN, value.is_negative())
}

/// Coefficient and exponent of a finite decimal.
fn finite_parts(value: Decimal128) -> Option<(bool, u128, i32)> {
    match value.parts() {
        Parts::Finite { negative, coefficient, exponent } => Some((negative, coefficient, exponent)),
        _ => None,
    }
}
