//! The square root, correctly rounded.

use super::convert::scale_by_ten;
use super::wide::Wide;
use super::{finite_parts, quiet};
use crate::decimal::{COEFFICIENT_MAX, DIGITS_MAX, Decimal128, digits, power_of_ten};

impl Decimal128 {
    /// NaN below zero. An exact root has half of the exponent, or as near to it as its digits allow.
    pub fn sqrt(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        let Some((negative, coefficient, exponent)) = finite_parts(self) else {
            return if self.is_negative() { Decimal128::NAN } else { self };
        };
        let preferred = exponent.div_euclid(2);
        if coefficient == 0 {
            return Decimal128::finite(negative, 0, preferred);
        }
        if negative {
            return Decimal128::NAN;
        }
        // Scaled by an even power of ten so that the root has 34 digits.
        let odd = exponent.rem_euclid(2) as u32;
        let length = digits(coefficient) + odd;
        let places = DIGITS_MAX as i32 - length.div_ceil(2) as i32;
        let scaled = Square::of(coefficient, odd + 2 * places as u32);
        let mut root =
            scale_by_ten(Wide::from_u128(coefficient), odd as i32 + 2 * places).sqrt().to_whole().0;
        // The estimate is cut off, or one too high at most.
        while scaled.is_below_square_of(root) {
            root -= 1;
        }
        while !scaled.is_below_square_of(root + 1) {
            root += 1;
        }
        let mut exponent = preferred - places;
        if scaled.is_square_of(root) {
            while exponent < preferred && root.is_multiple_of(10) {
                root /= 10;
                exponent += 1;
            }
        } else if scaled.is_above_half_way_from(root) {
            root += 1;
            if root > COEFFICIENT_MAX {
                root /= 10;
                exponent += 1;
            }
        }
        Decimal128::finite(false, root, exponent)
    }
}

/// A whole number below 10⁶⁸ in 256 bits.
struct Square {
    high: u128,
    low: u128,
}

impl Square {
    fn of(coefficient: u128, power: u32) -> Square {
        let first = power.min(34);
        let mut square = multiply(coefficient, power_of_ten(first));
        for _ in first..power {
            let low = multiply(square.low, 10);
            square = Square { high: square.high * 10 + low.high, low: low.low };
        }
        square
    }

    fn compare(&self, other: &Square) -> std::cmp::Ordering {
        (self.high, self.low).cmp(&(other.high, other.low))
    }

    fn is_below_square_of(&self, root: u128) -> bool {
        self.compare(&multiply(root, root)).is_lt()
    }

    fn is_square_of(&self, root: u128) -> bool {
        self.compare(&multiply(root, root)).is_eq()
    }

    /// Whether the root is nearer to the next whole number: above `root² + root`.
    fn is_above_half_way_from(&self, root: u128) -> bool {
        let square = multiply(root, root);
        let (low, carry) = square.low.overflowing_add(root);
        self.compare(&Square { high: square.high + u128::from(carry), low }).is_gt()
    }
}

fn multiply(left: u128, right: u128) -> Square {
    const MASK: u128 = u64::MAX as u128;
    let (left_high, left_low) = (left >> 64, left & MASK);
    let (right_high, right_low) = (right >> 64, right & MASK);
    let low = left_low * right_low;
    let middle = left_high * right_low + (low >> 64);
    let (middle, carry) = middle.overflowing_add(left_low * right_high);
    Square {
        high: left_high * right_high + (middle >> 64) + (u128::from(carry) << 64),
        low: middle << 64 | low & MASK,
    }
}
