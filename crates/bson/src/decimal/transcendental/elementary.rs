//! Functions of wide numbers, by series after the argument is made small.

use std::sync::LazyLock;

use super::wide::Wide;

/// Terms below this power of two, seen from the first, are nothing.
const PRECISION: i32 = 250;

pub(super) static PI: LazyLock<Wide> = LazyLock::new(|| {
    // Machin: π/4 = 4·arctan(1/5) - arctan(1/239).
    let part = |x: u64, factor: u128| Wide::from_u128(factor).multiply(inverse_arctangent(x));
    part(5, 16).subtract(part(239, 4))
});

pub(super) static LN_2: LazyLock<Wide> = LazyLock::new(|| {
    // ln 2 = 2·artanh(1/3).
    arctangent_series(Wide::one().divide_small(3), false).scale(1)
});

pub(super) static LN_10: LazyLock<Wide> = LazyLock::new(|| ln(Wide::from_u128(10)));

pub(super) fn half_pi() -> Wide {
    PI.scale(-1)
}

/// arctan(1/x).
fn inverse_arctangent(x: u64) -> Wide {
    arctangent_series(Wide::one().divide_small(x), true)
}

/// `x - x³/3 + x⁵/5 - …`, or with plus signs only, which is the hyperbolic one; for small x.
fn arctangent_series(x: Wide, alternating: bool) -> Wide {
    let square = x.square();
    let mut power = x;
    let mut sum = x;
    let mut divisor = 1;
    loop {
        power = power.multiply(square);
        if alternating {
            power = power.negate();
        }
        divisor += 2;
        let term = power.divide_small(divisor);
        if is_negligible(term, x) {
            return sum;
        }
        sum = sum.add(term);
    }
}

fn is_negligible(term: Wide, first: Wide) -> bool {
    term.is_zero() || term.magnitude() < first.magnitude() - PRECISION
}

/// `first · (1 + z/(a·(a+1)) + z²/(a·(a+1)·(a+2)·(a+3)) + …)`: sines and cosines of both kinds.
fn factorial_series(first: Wide, z: Wide, mut divisor: u64) -> Wide {
    let mut term = first;
    let mut sum = first;
    loop {
        term = term.multiply(z).divide_small(divisor * (divisor + 1));
        divisor += 2;
        if is_negligible(term, first) {
            return sum;
        }
        sum = sum.add(term);
    }
}

pub(super) fn exp(x: Wide) -> Wide {
    // e^x = 2^k · (e^(r / 256))^256, with |r| below ln 2.
    const HALVINGS: i32 = 8;
    let k = if x.is_zero() || x.magnitude() < -2 {
        0
    } else {
        (x.to_f64() / std::f64::consts::LN_2).round() as i64
    };
    let rest = x.subtract(LN_2.multiply(Wide::from_i64(k))).scale(-HALVINGS);
    let mut sum = Wide::one().add(rest);
    let mut term = rest;
    for divisor in 2.. {
        term = term.multiply(rest).divide_small(divisor);
        if is_negligible(term, Wide::one()) {
            break;
        }
        sum = sum.add(term);
    }
    for _ in 0..HALVINGS {
        sum = sum.square();
    }
    sum.scale(k as i32)
}

/// Of a number above zero.
pub(super) fn ln(x: Wide) -> Wide {
    let above_one = x.subtract(Wide::one());
    if above_one.is_zero() || above_one.magnitude() < -7 {
        return ln_1p(above_one);
    }
    // ln(m · 2^k), m between 1/2 and 1, from a double's logarithm by Halley's method: each step triples its
    // digits.
    let k = x.magnitude();
    let m = x.scale(-k);
    let mut y = Wide::from_f64(m.to_f64().ln());
    for _ in 0..2 {
        let e = exp(y);
        y = y.add(m.subtract(e).divide(m.add(e)).scale(1));
    }
    y.add(LN_2.multiply(Wide::from_i64(k.into())))
}

/// ln(1 + x), without loss if x is small; x is above minus one.
pub(super) fn ln_1p(x: Wide) -> Wide {
    if !x.is_zero() && x.magnitude() >= -6 {
        return ln(Wide::one().add(x));
    }
    // ln(1 + x) = 2·artanh(x / (2 + x)).
    if x.is_zero() { x } else { arctangent_series(x.divide(Wide::from_u128(2).add(x)), false).scale(1) }
}

/// Of an angle of at most one or so.
pub(super) fn sin(x: Wide) -> Wide {
    factorial_series(x, x.square().negate(), 2)
}

pub(super) fn cos(x: Wide) -> Wide {
    factorial_series(Wide::one(), x.square().negate(), 1)
}

pub(super) fn tan(x: Wide) -> Wide {
    sin(x).divide(cos(x))
}

pub(super) fn atan(x: Wide) -> Wide {
    if x.is_zero() {
        return x;
    }
    if x.is_negative() {
        return atan(x.negate()).negate();
    }
    let one = Wide::one();
    if x.compare(&one).is_gt() {
        return half_pi().subtract(atan(one.divide(x)));
    }
    // Half of the angle, three times over.
    let mut reduced = x;
    let mut halvings = 0;
    while halvings < 3 && reduced.magnitude() > -10 {
        let root = one.add(reduced.square()).sqrt();
        reduced = reduced.divide(one.add(root));
        halvings += 1;
    }
    arctangent_series(reduced, true).scale(halvings)
}

/// The argument is within one.
pub(super) fn asin(x: Wide) -> Wide {
    let rest = Wide::one().subtract(x.square());
    if rest.is_zero() {
        return if x.is_negative() { half_pi().negate() } else { half_pi() };
    }
    atan(x.divide(rest.sqrt()))
}

pub(super) fn acos(x: Wide) -> Wide {
    half_pi().subtract(asin(x))
}

/// Of at most one or so.
pub(super) fn sinh(x: Wide) -> Wide {
    factorial_series(x, x.square(), 2)
}

pub(super) fn cosh(x: Wide) -> Wide {
    let e = exp(x);
    e.add(Wide::one().divide(e)).scale(-1)
}

pub(super) fn tanh(x: Wide) -> Wide {
    let one = Wide::one();
    if x.is_negative() {
        return tanh(x.negate()).negate();
    }
    if x.compare(&one).is_le() {
        return sinh(x).divide(cosh(x));
    }
    // From here on a wide number cannot tell it from one.
    if x.magnitude() > 8 {
        return one;
    }
    let e = exp(x.scale(1).negate());
    one.subtract(e).divide(one.add(e))
}

pub(super) fn asinh(x: Wide) -> Wide {
    if x.is_negative() {
        return asinh(x.negate()).negate();
    }
    let one = Wide::one();
    let square = x.square();
    ln_1p(x.add(square.divide(one.add(one.add(square).sqrt()))))
}

/// Of a number well above one.
pub(super) fn acosh(x: Wide) -> Wide {
    ln(x.add(x.square().subtract(Wide::one()).sqrt()))
}
