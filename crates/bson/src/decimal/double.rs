//! A decimal against a double, by their exact values.

use std::cmp::Ordering;

use super::{Decimal128, Parts, digits, power_of_ten};

pub(crate) fn compare_decimal_to_double(left: Decimal128, right: f64) -> Ordering {
    let parts = left.parts();
    if matches!(parts, Parts::NaN { .. }) || right.is_nan() {
        return right.is_nan().cmp(&left.is_nan());
    }
    let sign = if right == 0.0 { 0 } else { right.signum() as i8 };
    parts.signum().cmp(&sign).then_with(|| {
        let magnitudes = match parts {
            _ if sign == 0 => Ordering::Equal,
            Parts::Infinity { .. } if right.is_infinite() => Ordering::Equal,
            Parts::Infinity { .. } => Ordering::Greater,
            _ if right.is_infinite() => Ordering::Less,
            Parts::Finite { coefficient, exponent, .. } => {
                compare_magnitudes(coefficient, exponent, right.abs())
            }
            Parts::NaN { .. } => unreachable!("handled above"),
        };
        if sign < 0 { magnitudes.reverse() } else { magnitudes }
    })
}

/// `coefficient · 10^exponent` against a finite double, both above zero.
pub(crate) fn compare_magnitudes(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    // The logarithm is off by far less than one, so what differs by more is decided.
    let top = f64::from(digits(coefficient) as i32 + exponent);
    let log = double.log10();
    if top - 1.0 > log + 1.0 {
        return Ordering::Greater;
    }
    if top < log - 1.0 {
        return Ordering::Less;
    }
    let (mantissa, power) = take_apart(double);
    // coefficient · 10^e against mantissa · 2^p: negative powers move to the other side.
    let mut left = Wide::from(coefficient);
    let mut right = Wide::from(u128::from(mantissa));
    if exponent >= 0 {
        left.scale_by_ten(exponent as u32)
    } else {
        right.scale_by_ten(-exponent as u32)
    }
    if power >= 0 {
        right.shift_left(power as u32)
    } else {
        left.shift_left(-power as u32)
    }
    left.compare(&right)
}

/// A positive finite double as `mantissa · 2^power`.
fn take_apart(double: f64) -> (u64, i32) {
    let bits = double.to_bits();
    let biased = (bits >> 52) as i32 & 0x7FF;
    let fraction = bits & ((1 << 52) - 1);
    if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) }
}

/// An unsigned number wide enough for both sides of a comparison: numbers of about the same size,
/// the larger scale being 10³⁵⁸ or 2¹⁰⁷⁴ on a factor of 113 bits.
struct Wide {
    limbs: [u64; Wide::LIMBS],
}

impl Wide {
    const LIMBS: usize = 24;

    fn from(number: u128) -> Wide {
        let mut limbs = [0; Wide::LIMBS];
        limbs[0] = number as u64;
        limbs[1] = (number >> 64) as u64;
        Wide { limbs }
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0u128;
        for limb in &mut self.limbs {
            carry += u128::from(*limb) * u128::from(factor);
            *limb = carry as u64;
            carry >>= 64;
        }
        debug_assert_eq!(carry, 0, "the factors are bounded by the caller's check of magnitudes");
    }

    fn scale_by_ten(&mut self, mut exponent: u32) {
        while exponent > 0 {
            let step = exponent.min(19);
            self.multiply(power_of_ten(step) as u64);
            exponent -= step;
        }
    }

    fn shift_left(&mut self, bits: u32) {
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        self.limbs.copy_within(..Wide::LIMBS - limbs, limbs);
        self.limbs[..limbs].fill(0);
        if bits > 0 {
            self.multiply(1 << bits);
        }
    }

    fn compare(&self, other: &Wide) -> Ordering {
        self.limbs.iter().rev().cmp(other.limbs.iter().rev())
    }
}
