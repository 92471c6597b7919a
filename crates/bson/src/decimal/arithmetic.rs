//! Arithmetic. Sums, products and quotients are decNumber's, which stores digits densely packed
//! (DPD): operands cross over by coefficient and exponent, and results cross back.

use dec::Context;

use super::{DIGITS_MAX, Decimal128, EXPONENT_MAX, EXPONENT_MIN, Parts, digits, power_of_ten};

type Dpd = dec::Decimal128;

/// How [`Decimal128::round`] treats the digits it drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    HalfEven,
    TowardZero,
    Floor,
    Ceiling,
}

impl Decimal128 {
    #[expect(clippy::should_implement_trait, reason = "operators would hide that rounding happens")]
    pub fn add(self, other: Decimal128) -> Decimal128 {
        self.compute(other, |context, left, right| context.add(left, right))
    }

    pub fn subtract(self, other: Decimal128) -> Decimal128 {
        self.compute(other, |context, left, right| context.sub(left, right))
    }

    pub fn multiply(self, other: Decimal128) -> Decimal128 {
        self.compute(other, |context, left, right| context.mul(left, right))
    }

    /// `self · factor + summand`, rounded once.
    pub fn multiply_add(self, factor: Decimal128, summand: Decimal128) -> Decimal128 {
        if let Some(nan) = [self, factor, summand].into_iter().find(|value| value.is_nan()) {
            return if nan.is_negative() { Decimal128::NAN.negate() } else { Decimal128::NAN };
        }
        let mut context = Context::<Dpd>::default();
        let [left, right, summand] = [self, factor, summand].map(|value| value.to_dpd(&mut context));
        Decimal128::from_dpd(context.fma(left, right, summand))
    }

    /// Division by zero gives an infinity, or NaN for zero by zero; the caller refuses it first if
    /// it must.
    pub fn divide(self, other: Decimal128) -> Decimal128 {
        self.compute(other, |context, left, right| context.div(left, right))
    }

    /// What is left after a quotient rounded toward zero, with the sign of `self`. Exact however
    /// large the quotient is.
    pub fn remainder(self, other: Decimal128) -> Decimal128 {
        if let Some(nan) = self.propagated_nan(other) {
            return nan;
        }
        let (negative, coefficient, exponent) = match self.parts() {
            Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
            _ => return Decimal128::NAN,
        };
        let (divisor, divisor_exponent) = match other.parts() {
            Parts::Finite { coefficient: 0, .. } => return Decimal128::NAN,
            Parts::Finite { coefficient, exponent, .. } => (coefficient, exponent),
            _ => return self,
        };
        if coefficient == 0 {
            return Decimal128::finite(negative, 0, exponent.min(divisor_exponent));
        }
        if exponent >= divisor_exponent {
            let mut rest = coefficient % divisor;
            let mut places = (exponent - divisor_exponent) as u32;
            while places > 0 && rest > 0 {
                // A rest of 34 digits leaves room for four more in 128 bits.
                let step = places.min(4);
                rest = rest * power_of_ten(step) % divisor;
                places -= step;
            }
            return Decimal128::finite(negative, rest, divisor_exponent);
        }
        let places = (divisor_exponent - exponent) as u32;
        let rest = if places + digits(divisor) > DIGITS_MAX + 1 {
            coefficient
        } else {
            coefficient % (divisor * power_of_ten(places))
        };
        Decimal128::finite(negative, rest, exponent)
    }

    /// Rounds to `places` digits behind the point, before it if negative. What has no room for that
    /// many places gets as many as 34 digits allow.
    pub fn round(self, places: i32, rounding: Rounding) -> Decimal128 {
        let (negative, coefficient, exponent) = match self.parts() {
            Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
            _ => return self,
        };
        let target = -places;
        if !(EXPONENT_MIN..=EXPONENT_MAX).contains(&target) {
            return Decimal128::NAN;
        }
        if target <= exponent {
            let more = (exponent - target) as u32;
            if coefficient == 0 {
                return Decimal128::finite(negative, 0, target);
            }
            let room = more.min(DIGITS_MAX - digits(coefficient));
            return Decimal128::finite(negative, coefficient * power_of_ten(room), exponent - room as i32);
        }
        let dropped = (target - exponent) as u32;
        let (kept, rest, unit) = if dropped > DIGITS_MAX {
            // Less than half a unit of the last place: only its being there counts.
            (0, u128::from(coefficient != 0), 4)
        } else {
            let unit = power_of_ten(dropped);
            (coefficient / unit, coefficient % unit, unit)
        };
        let up = match rounding {
            Rounding::HalfEven => rest * 2 > unit || (rest * 2 == unit && kept % 2 == 1),
            Rounding::TowardZero => false,
            Rounding::Floor => negative && rest != 0,
            Rounding::Ceiling => !negative && rest != 0,
        };
        Decimal128::finite(negative, kept + u128::from(up), target)
    }

    /// Rounds to a whole number written without an exponent; NaN if that takes more than 34 digits,
    /// as in mongod.
    pub fn round_to_whole(self, rounding: Rounding) -> Decimal128 {
        match self.round(0, rounding) {
            whole if matches!(whole.parts(), Parts::Finite { exponent: 0, .. } | Parts::NaN { .. }) => whole,
            _ => Decimal128::NAN,
        }
    }

    fn compute(self, other: Decimal128, with: fn(&mut Context<Dpd>, Dpd, Dpd) -> Dpd) -> Decimal128 {
        if let Some(nan) = self.propagated_nan(other) {
            return nan;
        }
        let mut context = Context::<Dpd>::default();
        let (left, right) = (self.to_dpd(&mut context), other.to_dpd(&mut context));
        Decimal128::from_dpd(with(&mut context, left, right))
    }

    /// A NaN operand is the result, with its sign: the first one if both are.
    fn propagated_nan(self, other: Decimal128) -> Option<Decimal128> {
        let quiet =
            |nan: Decimal128| if nan.is_negative() { Decimal128::NAN.negate() } else { Decimal128::NAN };
        [self, other].into_iter().find(|value| value.is_nan()).map(quiet)
    }

    fn to_dpd(self, context: &mut Context<Dpd>) -> Dpd {
        match self.parts() {
            Parts::Finite { negative, coefficient, exponent } => {
                let mut dpd = context.from_u128(coefficient);
                context.set_exponent(&mut dpd, exponent);
                // By the bit, since negation would take it from a zero.
                let mut bytes = dpd.to_le_bytes();
                bytes[15] |= u8::from(negative) << 7;
                Dpd::from_le_bytes(bytes)
            }
            // Both encodings write an infinity with the same bits.
            Parts::Infinity { negative: false } => Dpd::from_le_bytes(Decimal128::INFINITY.to_bytes()),
            Parts::Infinity { negative: true } => Dpd::from_le_bytes(Decimal128::NEG_INFINITY.to_bytes()),
            Parts::NaN { .. } => Dpd::NAN,
        }
    }

    fn from_dpd(dpd: Dpd) -> Decimal128 {
        if dpd.is_nan() {
            Decimal128::NAN
        } else if dpd.is_infinite() {
            if dpd.is_signed() { Decimal128::NEG_INFINITY } else { Decimal128::INFINITY }
        } else {
            Decimal128::finite(dpd.is_signed(), dpd.coefficient().unsigned_abs(), dpd.exponent())
        }
    }
}
