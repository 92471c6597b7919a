//! A decimal to the power of another: `e^(y · ln x)`, the logarithm in two parts.

use super::convert::{from_quad, scale_by_ten, to_quad, to_wide};
use super::elementary::{LN_2, LN_10, exp, ln};
use super::{HALF, LOWEST_ZERO, MINUS_ONE, finite_parts, quiet, with_sign};
use crate::Rounding;
use crate::decimal::Decimal128;

/// Digits behind the point of the logarithm's first part, and of its second.
const FIRST_PLACES: i32 = 28;
const SECOND_PLACES: i32 = 19;

/// Logarithms below 2⁶⁵ units of the first part's last place come from a series instead.
const SMALL: u128 = 2 << 64;

const TWO: Decimal128 = Decimal128::finite(false, 2, 0);
const TEN: Decimal128 = Decimal128::finite(false, 1, 1);
/// Beyond these exponents the general way serves: powers leave the range of a binary128, or of plain decimals.
const EXP_2_MAX: i32 = 16_000;
const EXP_10_MAX: i32 = 6_000;

impl Decimal128 {
    /// All results have 34 digits, since none is known to be exact.
    pub fn power(self, exponent: Decimal128) -> Decimal128 {
        self.raise(exponent).add(LOWEST_ZERO)
    }

    fn raise(self, exponent: Decimal128) -> Decimal128 {
        let one = Decimal128::ONE;
        if exponent.is_zero() || self.compare(one).is_eq() {
            return one;
        }
        if let Some(nan) = [self, exponent].into_iter().find(|value| value.is_nan()) {
            return quiet(nan);
        }
        let zero_or_infinity = |zero: bool| if zero { Decimal128::ZERO } else { Decimal128::INFINITY };
        if exponent.is_infinite() {
            return match self.abs().compare(one) {
                std::cmp::Ordering::Equal => one,
                order => zero_or_infinity(order.is_lt() != exponent.is_negative()),
            };
        }
        let (whole, odd) = parity(exponent);
        let negative = odd && self.is_negative();
        if self.is_infinite() || self.is_zero() {
            return with_sign(zero_or_infinity(self.is_zero() != exponent.is_negative()), negative);
        }
        if self.is_negative() && !whole {
            return Decimal128::NAN;
        }
        // Powers of two and of ten have functions of their own, which need no logarithm first.
        let near = |limit: i32| exponent.abs().compare(limit.into()).is_lt();
        if self.compare(TWO).is_eq() && near(EXP_2_MAX) {
            return exponent.exp_2();
        }
        if self.compare(TEN).is_eq() && near(EXP_10_MAX) {
            return exponent.exp_10();
        }
        let (first, second) = two_part_ln(self.abs());
        let high = exponent.multiply(first);
        let rest = exponent.multiply_add(first, high.negate());
        let low = exponent.multiply_add(second, rest);
        let result = high.exp();
        if result.is_zero() {
            return LOWEST_ZERO;
        }
        if result.is_infinite() {
            return result;
        }
        with_sign(result.multiply_add(low, result), negative)
    }

    /// Two to this power, as [`Decimal128::exp`] computes that of e.
    fn exp_2(self) -> Decimal128 {
        let exact = to_wide(self);
        let high = exact.truncated_to_quad();
        let low = exact.subtract(high).to_quad();
        let power = exp(high.multiply(*LN_2)).to_quad();
        let correction = power.multiply(low).multiply(*LN_2).to_quad();
        from_quad(power.add(correction).to_quad())
    }

    /// Ten to this power: the nearest whole power is exact, so only what is left goes binary.
    fn exp_10(self) -> Decimal128 {
        let whole = self.round(0, Rounding::HalfEven);
        let rest = to_quad(self.subtract(whole));
        let power = from_quad(exp(rest.multiply(*LN_10)).to_quad());
        let whole = whole.to_i64().and_then(|whole| i32::try_from(whole).ok()).unwrap_or(0);
        power.multiply(Decimal128::finite(false, 1, whole))
    }
}

/// Whether a decimal is a whole number, and whether an odd one.
fn parity(value: Decimal128) -> (bool, bool) {
    let Some((_, coefficient, exponent)) = finite_parts(value) else { return (false, false) };
    if exponent > 0 {
        return (true, false);
    }
    let whole = value.round(0, Rounding::HalfEven);
    let is_whole = whole.compare(value).is_eq();
    let odd = match finite_parts(whole) {
        Some((_, rounded, 0)) => rounded % 2 == 1,
        _ => exponent == 0 && coefficient % 2 == 1,
    };
    (is_whole, is_whole && odd)
}

/// The natural logarithm of a finite number above zero, as two decimals that are added.
fn two_part_ln(value: Decimal128) -> (Decimal128, Decimal128) {
    let logarithm = ln(to_wide(value));
    let negative = logarithm.is_negative();
    let scaled = scale_by_ten(logarithm.abs(), FIRST_PLACES);
    let (first, _) = scaled.to_whole();
    if first < SMALL {
        return near_one(value);
    }
    let rest = scaled.subtract(super::wide::Wide::from_u128(first));
    let (second, _) = scale_by_ten(rest, SECOND_PLACES).to_whole();
    (
        Decimal128::finite(negative, first, -FIRST_PLACES),
        Decimal128::finite(negative, second, -FIRST_PLACES - SECOND_PLACES),
    )
}

/// Of a number near one, from the first terms of the series.
fn near_one(value: Decimal128) -> (Decimal128, Decimal128) {
    const THIRD: Decimal128 = Decimal128::finite(false, 3_333_333_333_333_333_333_333_333_333_333_333, -34);
    const QUARTER: Decimal128 = Decimal128::finite(false, 25, -2);
    let above = value.add(MINUS_ONE);
    let square = above.multiply(above);
    let cube = above.multiply(square);
    let fourth = above.multiply(cube);
    let terms =
        HALF.negate().multiply(square).add(THIRD.multiply(cube)).add(QUARTER.negate().multiply(fourth));
    let first = above.add(terms);
    (first, first.subtract(above).subtract(terms))
}
