//! Hyperbolic sines, cosines, tangents and their inverses.

use super::convert::{from_quad, to_quad};
use super::elementary::{self, LN_10, exp, ln};
use super::exponential::{E_TO_FAR, FAR};
use super::wide::Wide;
use super::{
    HALF, LOWEST_ZERO, MINUS_ONE, TINY, finite_parts, is_tiny, just_above, just_below, quiet, with_sign,
};
use crate::Rounding;
use crate::decimal::Decimal128;

/// Up to here sines are computed from both exponentials; beyond, the smaller one is nothing.
const BOTH_MATTER: i32 = 64;
/// Beyond this everything overflows.
const LIMIT: i32 = 15_000;
/// Numbers with larger exponents lie beyond a binary128's digits: their logarithms are added up.
const LARGE_EXPONENT: i32 = 34;
/// Numbers with exponents up to here are their own inverse hyperbolic tangent.
const SMALL_EXPONENT: i32 = -51;

impl Decimal128 {
    pub fn sinh(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if self.is_infinite() {
            return self;
        }
        let size = self.abs();
        if size.compare(TINY).is_le() {
            return just_above(self);
        }
        if size.compare(Decimal128::ONE).is_le() {
            return from_quad(elementary::sinh(to_quad(self)).to_quad());
        }
        let magnitude = if size.compare(BOTH_MATTER.into()).is_le() {
            let (growing, shrinking) = both_exponentials(size);
            growing.multiply_add(HALF, HALF.negate().multiply(shrinking))
        } else {
            half_exponential(size)
        };
        with_sign(magnitude, self.is_negative())
    }

    pub fn cosh(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if self.is_infinite() {
            return Decimal128::INFINITY;
        }
        let size = self.abs();
        if size.compare(TINY).is_le() {
            return Decimal128::ONE.add(TINY);
        }
        if size.compare(Decimal128::ONE).is_le() {
            return from_quad(elementary::cosh(to_quad(size)).to_quad());
        }
        if size.compare(BOTH_MATTER.into()).is_le() {
            let (growing, shrinking) = both_exponentials(size);
            return growing.multiply_add(HALF, HALF.multiply(shrinking));
        }
        half_exponential(size)
    }

    pub fn tanh(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if self.is_infinite() {
            return with_sign(Decimal128::ONE, self.is_negative());
        }
        if self.is_zero() {
            return self;
        }
        if is_tiny(self) {
            return just_below(self);
        }
        from_quad(elementary::tanh(to_quad(self)).to_quad())
    }

    pub fn asinh(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        let Some((negative, coefficient, exponent)) = finite_parts(self) else { return self };
        if coefficient == 0 {
            return with_sign(LOWEST_ZERO, negative);
        }
        if exponent > LARGE_EXPONENT {
            return with_sign(ln_of_double(coefficient, exponent), negative);
        }
        with_sign(from_quad(elementary::asinh(to_quad(self)).to_quad()), negative)
    }

    /// NaN below one.
    pub fn acosh(self) -> Decimal128 {
        const NEAR_ONE: Decimal128 = Decimal128::finite(false, 103_125, -5);
        if self.is_nan() {
            return quiet(self);
        }
        if self.compare(Decimal128::ONE).is_lt() {
            return Decimal128::NAN;
        }
        let Some((_, coefficient, exponent)) = finite_parts(self) else { return self };
        if self.compare(NEAR_ONE).is_lt() {
            let sine = self.multiply_add(self, MINUS_ONE).sqrt();
            return from_quad(elementary::asinh(to_quad(sine)).to_quad());
        }
        if exponent > LARGE_EXPONENT {
            return ln_of_double(coefficient, exponent);
        }
        from_quad(elementary::acosh(to_quad(self)).to_quad())
    }

    /// Infinite for one, NaN beyond.
    pub fn atanh(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        let Some((negative, coefficient, exponent)) = finite_parts(self) else { return Decimal128::NAN };
        if coefficient == 0 {
            return with_sign(LOWEST_ZERO, negative);
        }
        if exponent <= SMALL_EXPONENT {
            return self;
        }
        let size = self.abs();
        let below_one = Decimal128::ONE.subtract(size);
        if below_one.is_zero() {
            return with_sign(Decimal128::INFINITY, negative);
        }
        if below_one.is_negative() {
            return Decimal128::NAN;
        }
        let ratio = size.divide(below_one);
        let double = elementary::ln_1p(to_quad(ratio.add(ratio))).to_quad();
        with_sign(from_quad(double.scale(-1)), negative)
    }
}

/// e^x and its inverse.
fn both_exponentials(size: Decimal128) -> (Decimal128, Decimal128) {
    let growing = size.exp();
    (growing, Decimal128::ONE.divide(growing))
}

/// e^x / 2 where e^x itself may be beyond a decimal: the exponent's whole part and the rest apart.
fn half_exponential(size: Decimal128) -> Decimal128 {
    if size.compare(LIMIT.into()).is_gt() {
        return Decimal128::INFINITY;
    }
    let whole = size.round(0, Rounding::HalfEven);
    let rest = to_quad(size.subtract(whole));
    let whole = to_quad(whole);
    let far = Wide::from_u128(FAR.into());
    let is_far = whole.compare(&far).is_gt();
    let near = if is_far { whole.subtract(far).to_quad() } else { whole };
    let product = exp(near).to_quad().multiply(exp(rest).to_quad()).to_quad();
    let half = from_quad(product.scale(-1));
    if is_far { half.multiply(E_TO_FAR) } else { half }
}

/// ln(2 · coefficient · 10^exponent).
fn ln_of_double(coefficient: u128, exponent: i32) -> Decimal128 {
    let double = Wide::from_u128(coefficient).to_quad().scale(1);
    let tens = Wide::from_i64(exponent.into()).multiply(LN_10.to_quad()).to_quad();
    from_quad(tens.add(ln(double).to_quad()).to_quad())
}
