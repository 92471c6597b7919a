//! Decimals to wide numbers and back.

use super::wide::{Dropped, Wide};
use crate::decimal::{
    COEFFICIENT_MAX, DIGITS_MAX, Decimal128, EXPONENT_MAX, EXPONENT_MIN, Parts, power_of_ten,
};

/// Of a finite decimal.
pub(super) fn to_wide(value: Decimal128) -> Wide {
    let Parts::Finite { negative, coefficient, exponent } = value.parts() else { return Wide::ZERO };
    let magnitude = scale_by_ten(Wide::from_u128(coefficient), exponent);
    if negative { magnitude.negate() } else { magnitude }
}

/// The nearest binary128.
pub(super) fn to_quad(value: Decimal128) -> Wide {
    to_wide(value).to_quad_even()
}

/// A binary128 as a decimal: exactly if 34 digits are enough, in as few digits as that takes; else the nearest.
pub(super) fn from_quad(quad: Wide) -> Decimal128 {
    exact(quad).unwrap_or_else(|| nearest(quad))
}

fn exact(quad: Wide) -> Option<Decimal128> {
    if quad.is_zero() {
        return Some(Decimal128::ZERO);
    }
    let (mantissa, power) = quad.odd_mantissa()?;
    let (coefficient, exponent) = if power >= 0 {
        (mantissa.checked_shl(power as u32).filter(|shifted| shifted >> power == mantissa)?, 0)
    } else {
        // 2^-n is 5^n · 10^-n.
        (mantissa.checked_mul(5u128.checked_pow(power.unsigned_abs())?)?, power)
    };
    (coefficient <= COEFFICIENT_MAX).then(|| Decimal128::finite(quad.is_negative(), coefficient, exponent))
}

/// The nearest decimal of 34 digits, fewer only where the exponent can go no lower.
pub(super) fn nearest(value: Wide) -> Decimal128 {
    let negative = value.is_negative();
    let value = value.abs();
    if value.is_zero() {
        return Decimal128::finite(negative, 0, EXPONENT_MIN);
    }
    const SMALLEST: u128 = 10u128.pow(DIGITS_MAX - 1);
    let digits = (f64::from(value.magnitude() - 1) * std::f64::consts::LOG10_2).floor() as i32;
    let mut exponent = (digits - DIGITS_MAX as i32 + 1).max(EXPONENT_MIN);
    loop {
        let (whole, dropped) = scale_by_ten(value, -exponent).to_whole();
        let up = match dropped {
            Dropped::Nothing | Dropped::BelowHalf => false,
            Dropped::Half => whole % 2 == 1,
            Dropped::AboveHalf => true,
        };
        let whole = whole + u128::from(up);
        if whole > COEFFICIENT_MAX {
            exponent += 1;
        } else if whole < SMALLEST && exponent > EXPONENT_MIN {
            exponent -= 1;
        } else if exponent > EXPONENT_MAX {
            return if negative { Decimal128::NEG_INFINITY } else { Decimal128::INFINITY };
        } else {
            return Decimal128::finite(negative, whole, exponent);
        }
    }
}

pub(super) fn scale_by_ten(value: Wide, exponent: i32) -> Wide {
    match exponent {
        0 => value,
        1.. => value.multiply(ten_to(exponent.unsigned_abs())),
        _ => value.divide(ten_to(exponent.unsigned_abs())),
    }
}

fn ten_to(exponent: u32) -> Wide {
    if exponent <= 38 {
        return Wide::from_u128(power_of_ten(exponent));
    }
    let half = ten_to(exponent / 2);
    let square = half.square();
    if exponent.is_multiple_of(2) { square } else { square.multiply(Wide::from_u128(10)) }
}
