//! e to a power, and logarithms.

use super::convert::{from_quad, to_quad, to_wide};
use super::elementary::{LN_2, LN_10, exp, ln};
use super::wide::Wide;
use super::{LOWEST_ZERO, MINUS_ONE, quiet};
use crate::decimal::Decimal128;

/// Beyond this power of e, a binary128 overflows; its share is multiplied in as a decimal.
pub(super) const FAR: u32 = 11_000;

/// e^11000 and e^-11000. The latter is one off in its last place, as it is in mongod's library.
pub(super) const E_TO_FAR: Decimal128 =
    Decimal128::finite(false, 1_735_005_819_277_738_509_638_425_077_349_642, 4744);
const E_TO_MINUS_FAR: Decimal128 =
    Decimal128::finite(false, 5_763_669_429_168_183_696_272_822_960_961_269, -4811);

/// Everything above overflows a decimal, everything below its negative underflows.
const LIMIT: i32 = 15_000;

/// The same for logarithms: numbers beyond 10^±4464 are brought back by that much.
const LOG_FAR: i32 = 4464;
const TEN_TO_LOG_FAR: Decimal128 = Decimal128::finite(false, 1, LOG_FAR);
const TEN_TO_MINUS_LOG_FAR: Decimal128 = Decimal128::finite(false, 1, -LOG_FAR);

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
        // Cut, not rounded, to its first part.
        let high = exact.truncated_to_quad();
        let low = exact.subtract(high).to_quad();
        let far = Wide::from_u128(FAR.into());
        let (near, factor) = if high.compare(&far).is_gt() {
            (high.subtract(far).to_quad(), Some(E_TO_FAR))
        } else if high.compare(&far.negate()).is_lt() {
            (high.add(far).to_quad(), Some(E_TO_MINUS_FAR))
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
        let far = || LN_10.multiply(Wide::from_i64(LOG_FAR.into()));
        self.logarithm(|number| ln(number).to_quad(), |change| change, |logarithm| logarithm, far)
    }

    pub fn log10(self) -> Decimal128 {
        let per_ln = Wide::one().divide(*LN_10).to_quad();
        let convert = |logarithm: Wide| logarithm.multiply(per_ln).to_quad();
        let far = || Wide::from_i64(LOG_FAR.into());
        self.logarithm(|number| ln(number).to_quad(), |change| change, convert, far)
    }

    pub fn log2(self) -> Decimal128 {
        let per_ln = Wide::one().divide(*LN_2).to_quad();
        let far = || LN_10.divide(*LN_2).multiply(Wide::from_i64(LOG_FAR.into()));
        let log2 = |number| ln(number).divide(*LN_2).to_quad();
        self.logarithm(log2, |change| change.multiply(per_ln).to_quad(), |logarithm| logarithm, far)
    }

    /// `log` is a logarithm of a binary128, `scale` what a change of the number near one means for it,
    /// `convert` what makes the wanted logarithm of it, and `far` the wanted logarithm of 10^4464.
    fn logarithm(
        self,
        log: impl Fn(Wide) -> Wide,
        scale: impl Fn(Wide) -> Wide,
        convert: impl Fn(Wide) -> Wide,
        far: impl Fn() -> Wide,
    ) -> Decimal128 {
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
            return from_quad(convert(log(near)).add(far().to_quad()).to_quad());
        }
        if self.compare(TEN_TO_MINUS_LOG_FAR).is_lt() {
            let near = to_quad(self.multiply(TEN_TO_LOG_FAR));
            return from_quad(convert(log(near)).subtract(far().to_quad()).to_quad());
        }
        let number = to_quad(self);
        let mut logarithm = log(number);
        let above_one = number.subtract(Wide::one()).to_quad();
        if above_one.abs().compare(&Wide::one().scale(-1)).is_lt() {
            // Near one, what going binary changed is large against the result: it is taken out again.
            let exact_above_one = to_quad(self.add(MINUS_ONE));
            let changed = scale(above_one.subtract(exact_above_one).to_quad());
            logarithm = logarithm.subtract(changed.divide(number).to_quad()).to_quad();
        }
        from_quad(convert(logarithm))
    }
}
