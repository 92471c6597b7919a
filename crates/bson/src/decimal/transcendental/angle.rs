//! Angles brought into the first quadrant, exactly however large they are.
//!
//! An angle `c · 10^e` is multiplied by 1/2π as a fixed-point fraction: whole turns fall off at the front. For
//! `e` up to 6111 that takes 20,000 bits of 1/2π, which are computed when a large angle first comes by.

use std::sync::LazyLock;

use super::wide::Wide;

/// Limbs of the fraction that the coefficient is multiplied with.
const KEPT: usize = 6;
/// For exponents up to here a short fraction is enough.
const SMALL_EXPONENT: u32 = 60;

/// 1/2π, high limbs first.
static SHORT: LazyLock<Vec<u64>> = LazyLock::new(|| inverse_two_pi(KEPT + 4));
static LONG: LazyLock<Vec<u64>> = LazyLock::new(|| inverse_two_pi(KEPT + 320));

/// The quadrant that an angle above zero rounds to, and the rest as a fraction of a quadrant, between minus one
/// half and one half, cut to the bits of a binary128.
pub(super) fn reduce(coefficient: u128, exponent: i32) -> (u32, Wide) {
    let turns = turns_per_unit(exponent);
    // Times the coefficient; what overflows are whole turns.
    let mut product = [0u64; KEPT];
    for (half, shift) in [(coefficient as u64, 0), ((coefficient >> 64) as u64, 1)] {
        let mut carry = 0u128;
        // Low limbs are at the end.
        for at in (shift..KEPT).rev().map(|at| at - shift) {
            let from = at + shift;
            carry += u128::from(half) * u128::from(turns[from]) + u128::from(product[at]);
            product[at] = carry as u64;
            carry >>= 64;
        }
    }
    let mut quadrant = (product[0] >> 62) as u32;
    for at in 0..KEPT {
        let below = product.get(at + 1).copied().unwrap_or(0);
        product[at] = product[at] << 2 | below >> 62;
    }
    let past_half = product[0] >> 63 == 1;
    if past_half {
        quadrant = (quadrant + 1) % 4;
        product.iter_mut().for_each(|limb| *limb = !*limb);
    }
    // The first limb may be empty, so five are taken into account.
    let rest = if product[0] == 0 {
        Wide::from_limbs(past_half, [product[4], product[3], product[2], product[1]], -64 - 256)
    } else {
        Wide::from_limbs(past_half, [product[3], product[2], product[1], product[0]], -256)
    };
    (quadrant, rest.truncated_to_quad())
}

/// `10^exponent / 2π` without its whole part, high limbs first.
fn turns_per_unit(exponent: i32) -> [u64; KEPT] {
    let mut limbs = if exponent <= SMALL_EXPONENT as i32 { SHORT.clone() } else { LONG.clone() };
    let mut left = exponent.unsigned_abs();
    while left > 0 {
        let step = left.min(19);
        let power = 10u64.pow(step);
        if exponent > 0 {
            multiply(&mut limbs, power);
        } else {
            divide(&mut limbs, power);
        }
        left -= step;
    }
    let mut kept = [0; KEPT];
    kept.copy_from_slice(&limbs[..KEPT]);
    kept
}

/// Fixed-point: 1/2π in so many limbs.
fn inverse_two_pi(count: usize) -> Vec<u64> {
    // Two spare limbs take the errors of the last places.
    let count = count + 2;
    // π/4 by Machin's formula, a fraction below one.
    let mut quarter = arctangent(5, count);
    multiply(&mut quarter, 4);
    subtract(&mut quarter, &arctangent(239, count));
    // 1/2π = (1/8) / (π/4).
    let mut result = reciprocal(&quarter);
    result.truncate(count - 2);
    result
}

/// arctan(1/x) as a fraction.
fn arctangent(x: u64, count: usize) -> Vec<u64> {
    let mut power = vec![0; count];
    // One, less the last place, over x: the first place is what matters.
    power.fill(u64::MAX);
    divide(&mut power, x);
    let mut sum = power.clone();
    let mut divisor = 1;
    loop {
        divide(&mut power, x * x);
        divisor += 2;
        let mut term = power.clone();
        divide(&mut term, divisor);
        if term.iter().all(|limb| *limb == 0) {
            return sum;
        }
        if divisor % 4 == 3 { subtract(&mut sum, &term) } else { add(&mut sum, &term) }
    }
}

/// `1/8 / x` for x between one half and one, bit by bit from the highest.
fn reciprocal(x: &[u64]) -> Vec<u64> {
    let count = x.len();
    let mut rest = vec![0u64; count];
    rest[0] = 1 << 61;
    let mut quotient = vec![0u64; count];
    for bit in 0..count * 64 {
        let over = rest[0] >> 63 == 1;
        for at in 0..count {
            let below = rest.get(at + 1).copied().unwrap_or(0);
            rest[at] = rest[at] << 1 | below >> 63;
        }
        if over || rest.as_slice() >= x {
            subtract(&mut rest, x);
            quotient[bit / 64] |= 1 << (63 - bit % 64);
        }
    }
    quotient
}

/// What overflows is dropped.
fn multiply(limbs: &mut [u64], factor: u64) {
    let mut carry = 0u128;
    for limb in limbs.iter_mut().rev() {
        carry += u128::from(*limb) * u128::from(factor);
        *limb = carry as u64;
        carry >>= 64;
    }
}

fn divide(limbs: &mut [u64], divisor: u64) {
    let mut rest = 0u128;
    for limb in limbs {
        rest = rest << 64 | u128::from(*limb);
        *limb = (rest / u128::from(divisor)) as u64;
        rest %= u128::from(divisor);
    }
}

fn add(sum: &mut [u64], other: &[u64]) {
    let mut carry = false;
    for (limb, other) in sum.iter_mut().zip(other).rev() {
        let (partial, over) = limb.overflowing_add(*other);
        let (total, over_again) = partial.overflowing_add(carry.into());
        *limb = total;
        carry = over || over_again;
    }
}

fn subtract(difference: &mut [u64], other: &[u64]) {
    let mut borrow = false;
    for (limb, other) in difference.iter_mut().zip(other).rev() {
        let (partial, under) = limb.overflowing_sub(*other);
        let (total, under_again) = partial.overflowing_sub(borrow.into());
        *limb = total;
        borrow = under || under_again;
    }
}
