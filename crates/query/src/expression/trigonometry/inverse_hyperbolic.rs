//! Inverse hyperbolic functions of doubles.
//!
//! The standard library's differ from the C library's in the last digit, and results are compared digit by
//! digit. So these go the C library's way: by `ln` and `ln_1p`, with a formula for each size of argument that
//! loses nothing by cancellation.

use std::f64::consts::LN_2;

/// Below 2⁻²⁸ the function is its argument; above 2²⁸ one is nothing against a square.
const TINY: f64 = 1.0 / 268_435_456.0;
const HUGE: f64 = 268_435_456.0;

pub(super) fn asinh(x: f64) -> f64 {
    let size = x.abs();
    if !x.is_finite() || size < TINY {
        return x;
    }
    let magnitude = if size > HUGE {
        size.ln() + LN_2
    } else if size > 2.0 {
        (2.0 * size + 1.0 / ((x * x + 1.0).sqrt() + size)).ln()
    } else {
        let square = x * x;
        (size + square / (1.0 + (1.0 + square).sqrt())).ln_1p()
    };
    magnitude.copysign(x)
}

/// The argument is at least one, or NaN.
pub(super) fn acosh(x: f64) -> f64 {
    if !x.is_finite() {
        x
    } else if x >= HUGE {
        x.ln() + LN_2
    } else if x == 1.0 {
        0.0
    } else if x > 2.0 {
        (2.0 * x - 1.0 / (x + (x * x - 1.0).sqrt())).ln()
    } else {
        let above = x - 1.0;
        (above + (2.0 * above + above * above).sqrt()).ln_1p()
    }
}

/// The argument is between minus one and one, or NaN.
pub(super) fn atanh(x: f64) -> f64 {
    let size = x.abs();
    if x.is_nan() || size < TINY {
        return x;
    }
    let magnitude = if size < 0.5 {
        let double = size + size;
        0.5 * (double + double * size / (1.0 - size)).ln_1p()
    } else {
        0.5 * ((size + size) / (1.0 - size)).ln_1p()
    };
    magnitude.copysign(x)
}
