//! e to a power, and logarithms.

use std::sync::LazyLock;

use super::convert::{from_quad, nearest, to_quad, to_wide};
use super::elementary::{LN_2, LN_10, exp, ln};
use super::wide::Wide;
use super::{LOWEST_ZERO, MINUS_ONE, quiet};
use crate::decimal::Decimal128;

/// Beyond this power of e, a binary128 overflows; its share is multiplied in as a decimal.
pub(super) const FAR: u32 = 11_000;

static E_TO_FAR: LazyLock<Decimal128> = LazyLock::new(|| nearest(exp(Wide::from_u128(FAR.into()))));
static E_TO_MINUS_FAR: LazyLock<Decimal128> =
    LazyLock::new(|| nearest(exp(Wide::from_u128(FAR.into()).negate())));

/// Everything above overflows a decimal, everything below its negative underflows.
const LIMIT: i32 = 15_000;

/// The same for logarithms: numbers beyond 10^±4464 are brought back by that much.
const LOG_FAR: i32 = 4464;
const TEN_TO_LOG_FAR: Decimal128 = Decimal128::finite(false, 1, LOG_FAR);
const TEN_TO_MINUS_LOG_FAR: Decimal128 = Decimal128::finite(false, 1, -LOG_FAR);

/// e^far as a decimal factor.
pub(super) fn e_to_far() -> Decimal128 {
    *E_TO_FAR
}

impl Decimal128 {
    /// e to this power.
    pub fn exp(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if self.is_infinite() {
            return if self.is_negative() { Decimal128::ZERO } else { self };
        }
        if self.is_zero() {
            return Decimal128::ONE;
        }
        if self.compare(LIMIT.into()).is_gt() {
            return Decimal128::INFINITY;
        }
        if self.compare((-LIMIT).into()).is_lt() {
            return LOWEST_ZERO;
        }
        let exact = to_wide(self);
        let high = exact.to_quad();
        let low = exact.subtract(high).to_quad();
        let far = Wide::from_u128(FAR.into());
        let (near, factor) = if high.compare(&far).is_gt() {
            (high.subtract(far).to_quad(), Some(*E_TO_FAR))
        } else if high.compare(&far.negate()).is_lt() {
            (high.add(far).to_quad(), Some(*E_TO_MINUS_FAR))
        } else {
            (high, None)
        };
        let power = exp(near).to_quad();
        // e^(high + low) is e^high · (1 + low), low being so small.
        let correction = power.multiply(low).to_quad();
        let result = from_quad(power.add(correction).to_quad());
        factor.map_or(result, |factor| result.multiply(factor))
    }

    /// The natural logarithm; NaN below zero, minus infinity for zero.
    pub fn ln(self) -> Decimal128 {
        self.logarithm(|ln| ln, || LN_10.multiply(Wide::from_i64(LOG_FAR.into())))
    }

    pub fn log10(self) -> Decimal128 {
        let per_ln = Wide::one().divide(*LN_10).to_quad();
        self.logarithm(|ln| ln.multiply(per_ln).to_quad(), || Wide::from_i64(LOG_FAR.into()))
    }

    pub fn log2(self) -> Decimal128 {
        let per_ln = Wide::one().divide(*LN_2).to_quad();
        self.logarithm(
            |ln| ln.multiply(per_ln).to_quad(),
            || LN_10.divide(*LN_2).multiply(Wide::from_i64(LOG_FAR.into())),
        )
    }

    /// `convert` turns a natural logarithm into the one asked for; `far` is the logarithm of 10^4464.
    fn logarithm(self, convert: impl Fn(Wide) -> Wide, far: impl Fn() -> Wide) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if self.is_zero() {
            return Decimal128::NEG_INFINITY;
        }
        if self.is_negative() {
            return Decimal128::NAN;
        }
        if self.is_infinite() {
            return self;
        }
        if self.compare(TEN_TO_LOG_FAR).is_gt() {
            let near = to_quad(self.multiply(TEN_TO_MINUS_LOG_FAR));
            return from_quad(convert(ln(near).to_quad()).add(far().to_quad()).to_quad());
        }
        if self.compare(TEN_TO_MINUS_LOG_FAR).is_lt() {
            let near = to_quad(self.multiply(TEN_TO_LOG_FAR));
            return from_quad(convert(ln(near).to_quad()).subtract(far().to_quad()).to_quad());
        }
        let number = to_quad(self);
        let mut logarithm = ln(number).to_quad();
        let above_one = number.subtract(Wide::one()).to_quad();
        if above_one.abs().compare(&Wide::one().scale(-1)).is_lt() {
            // Near one, what going binary changed is large against the result: it is taken out again.
            let exact_above_one = to_quad(self.add(MINUS_ONE));
            let changed = above_one.subtract(exact_above_one).to_quad();
            logarithm = logarithm.subtract(changed.divide(number).to_quad()).to_quad();
        }
        from_quad(convert(logarithm))
    }
}
