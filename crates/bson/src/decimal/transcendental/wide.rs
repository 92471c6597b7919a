//! Binary floating-point numbers of 256 bits, to compute with before rounding.
//!
//! A number is `mantissa · 2^exponent`, its mantissa's top bit set unless it is zero. Operations cut off what
//! does not fit, so each loses about 2⁻²⁵⁵ of its result: far below the 113 bits that [`Wide::to_quad`] rounds
//! to and the 34 digits that are wanted in the end.

use std::cmp::Ordering;

const LIMBS: usize = 4;
const BITS: i32 = 64 * LIMBS as i32;

/// Bits of an IEEE binary128 mantissa.
const QUAD_BITS: u32 = 113;

/// The least binary128 above zero is two to the power of minus this.
const QUAD_LEAST: i32 = 16_494;

/// Bits of a mantissa that a few operations leave exact.
const EXACT_BITS: u32 = 240;

#[derive(Debug, Clone, Copy)]
pub(super) struct Wide {
    negative: bool,
    /// Low limbs first.
    mantissa: [u64; LIMBS],
    exponent: i32,
}

impl Wide {
    pub const ZERO: Wide = Wide { negative: false, mantissa: [0; LIMBS], exponent: 0 };

    pub fn one() -> Wide {
        Wide::from_u128(1)
    }

    pub fn from_u128(value: u128) -> Wide {
        Wide::normalised(false, [value as u64, (value >> 64) as u64, 0, 0], 0)
    }

    pub fn from_i64(value: i64) -> Wide {
        Wide { negative: value < 0, ..Wide::from_u128(value.unsigned_abs().into()) }
    }

    /// A double that is finite.
    pub fn from_f64(value: f64) -> Wide {
        let bits = value.to_bits();
        let biased = (bits >> 52) as i32 & 0x7FF;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, exponent) =
            if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) };
        Wide::normalised(value < 0.0, [mantissa, 0, 0, 0], exponent)
    }

    /// A fraction of 256 bits and its scale.
    pub fn from_limbs(negative: bool, mantissa: [u64; LIMBS], exponent: i32) -> Wide {
        Wide::normalised(negative, mantissa, exponent)
    }

    fn normalised(negative: bool, mut mantissa: [u64; LIMBS], mut exponent: i32) -> Wide {
        let zeros = leading_zeros(&mantissa);
        if zeros == BITS as u32 {
            return Wide::ZERO;
        }
        shift_left(&mut mantissa, zeros);
        exponent -= zeros as i32;
        Wide { negative, mantissa, exponent }
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa[LIMBS - 1] == 0
    }

    pub fn is_negative(&self) -> bool {
        self.negative
    }

    pub fn negate(self) -> Wide {
        Wide { negative: !self.negative && !self.is_zero(), ..self }
    }

    pub fn abs(self) -> Wide {
        Wide { negative: false, ..self }
    }

    /// The power of two just above the number: it is in `[2^(n-1), 2^n)`.
    pub fn magnitude(&self) -> i32 {
        self.exponent + BITS
    }

    /// Times a power of two.
    pub fn scale(self, power: i32) -> Wide {
        if self.is_zero() { self } else { Wide { exponent: self.exponent + power, ..self } }
    }

    pub fn add(self, other: Wide) -> Wide {
        if self.is_zero() {
            return other;
        }
        if other.is_zero() {
            return self;
        }
        let (large, small) =
            if self.compare_magnitude(&other).is_ge() { (self, other) } else { (other, self) };
        let distance = (large.exponent - small.exponent) as u32;
        let mut aligned = small.mantissa;
        shift_right(&mut aligned, distance);
        if large.negative == small.negative {
            let (mut sum, carry) = add_limbs(&large.mantissa, &aligned);
            let mut exponent = large.exponent;
            if carry {
                shift_right(&mut sum, 1);
                sum[LIMBS - 1] |= 1 << 63;
                exponent += 1;
            }
            return Wide { negative: large.negative, mantissa: sum, exponent };
        }
        Wide::normalised(large.negative, subtract_limbs(&large.mantissa, &aligned), large.exponent)
    }

    pub fn subtract(self, other: Wide) -> Wide {
        self.add(other.negate())
    }

    pub fn multiply(self, other: Wide) -> Wide {
        if self.is_zero() || other.is_zero() {
            return Wide::ZERO;
        }
        let mut product = [0u64; 2 * LIMBS];
        for (i, left) in self.mantissa.iter().enumerate() {
            let mut carry = 0u128;
            for (j, right) in other.mantissa.iter().enumerate() {
                carry += u128::from(*left) * u128::from(*right) + u128::from(product[i + j]);
                product[i + j] = carry as u64;
                carry >>= 64;
            }
            product[i + LIMBS] = carry as u64;
        }
        let mut exponent = self.exponent + other.exponent + BITS;
        let mut high = [product[4], product[5], product[6], product[7]];
        if high[LIMBS - 1] >> 63 == 0 {
            shift_left(&mut high, 1);
            high[0] |= product[3] >> 63;
            exponent -= 1;
        }
        Wide { negative: self.negative != other.negative, mantissa: high, exponent }
    }

    pub fn square(self) -> Wide {
        self.multiply(self)
    }

    /// By a number below 2⁶⁴ that is not zero.
    pub fn divide_small(self, divisor: u64) -> Wide {
        let mut quotient = [0u64; LIMBS];
        let mut rest = 0u128;
        for (limb, out) in self.mantissa.iter().zip(&mut quotient).rev() {
            rest = rest << 64 | u128::from(*limb);
            *out = (rest / u128::from(divisor)) as u64;
            rest %= u128::from(divisor);
        }
        let zeros = leading_zeros(&quotient);
        if zeros == BITS as u32 {
            return Wide::ZERO;
        }
        // Bits that normalising makes room for are computed from the rest.
        shift_left(&mut quotient, zeros);
        let below = ((rest << 64) / u128::from(divisor)) as u64;
        if zeros > 0 {
            quotient[0] |= below >> (64 - zeros.min(64));
        }
        Wide { negative: self.negative, mantissa: quotient, exponent: self.exponent - zeros as i32 }
    }

    /// The divisor is not zero.
    pub fn divide(self, divisor: Wide) -> Wide {
        // A reciprocal by Newton's method: a double's 50 bits, doubled three times.
        let scaled = Wide { exponent: -BITS, negative: false, ..divisor };
        let mut reciprocal = Wide::from_f64(1.0 / scaled.to_f64());
        let two = Wide::from_u128(2);
        for _ in 0..3 {
            reciprocal = reciprocal.multiply(two.subtract(scaled.multiply(reciprocal)));
        }
        let quotient = self.multiply(reciprocal).scale(-(divisor.exponent + BITS));
        if divisor.negative { quotient.negate() } else { quotient }
    }

    /// Of a number that is not negative.
    pub fn sqrt(self) -> Wide {
        if self.is_zero() {
            return self;
        }
        // An even power of two goes to the front, a number in [1/4, 1) remains.
        let power = self.magnitude() + (self.magnitude() & 1);
        let scaled = self.scale(-power);
        let mut inverse = Wide::from_f64(1.0 / scaled.to_f64().sqrt());
        let three = Wide::from_u128(3);
        for _ in 0..3 {
            let correction = three.subtract(scaled.multiply(inverse.square()));
            inverse = inverse.multiply(correction).scale(-1);
        }
        scaled.multiply(inverse).scale(power / 2)
    }

    pub fn compare(&self, other: &Wide) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
        }
    }

    fn compare_magnitude(&self, other: &Wide) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self
                .exponent
                .cmp(&other.exponent)
                .then_with(|| self.mantissa.iter().rev().cmp(other.mantissa.iter().rev())),
        }
    }

    /// Near enough to begin with; numbers of a double's range only.
    pub fn to_f64(self) -> f64 {
        let top = self.mantissa[LIMBS - 1] as f64;
        let value = top * f64::from(self.exponent + BITS - 64).exp2();
        if self.negative { -value } else { value }
    }

    /// The nearest binary128 as the result of a computation: ties go away from zero, as in mongod's library.
    /// Below the least normal number there are fewer bits, down to none.
    pub fn to_quad(self) -> Wide {
        self.rounded_to(self.quad_bits(), Ties::Away)
    }

    /// The nearest binary128 as the reading of a decimal: ties go to the even one.
    pub fn to_quad_even(self) -> Wide {
        self.rounded_to(self.quad_bits(), Ties::ToEven)
    }

    fn quad_bits(&self) -> u32 {
        (self.magnitude() + QUAD_LEAST).clamp(0, QUAD_BITS as i32) as u32
    }

    /// Cut to the bits of a binary128.
    pub fn truncated_to_quad(self) -> Wide {
        // What computing it lost may have left a number just below a binary128 that it really is.
        let mut cut = self.rounded_to(EXACT_BITS, Ties::ToEven);
        clear_below(&mut cut.mantissa, BITS as u32 - QUAD_BITS);
        cut
    }

    fn rounded_to(self, bits: u32, ties: Ties) -> Wide {
        if bits == 0 {
            return Wide::ZERO;
        }
        let dropped = BITS as u32 - bits;
        let mut mantissa = self.mantissa;
        let half = bit(&mantissa, dropped - 1);
        let below = any_below(&mantissa, dropped - 1);
        let odd = bit(&mantissa, dropped);
        clear_below(&mut mantissa, dropped);
        if !(half && (below || odd || ties == Ties::Away)) {
            return Wide { mantissa, ..self };
        }
        let mut unit = [0; LIMBS];
        unit[(dropped / 64) as usize] = 1 << (dropped % 64);
        let (mut rounded, carry) = add_limbs(&mantissa, &unit);
        let mut exponent = self.exponent;
        if carry {
            rounded = [0; LIMBS];
            rounded[LIMBS - 1] = 1 << 63;
            exponent += 1;
        }
        Wide { negative: self.negative, mantissa: rounded, exponent }
    }

    /// The whole part of a number that is not negative and below 2¹²⁷, and what it leaves out.
    pub fn to_whole(self) -> (u128, Dropped) {
        if self.is_zero() {
            return (0, Dropped::Nothing);
        }
        let shift = -self.exponent;
        debug_assert!((BITS - 128..).contains(&shift), "the number is below 2^127");
        if shift > BITS {
            return (0, Dropped::BelowHalf);
        }
        let mut mantissa = self.mantissa;
        let half = bit(&mantissa, shift as u32 - 1);
        let below = any_below(&mantissa, shift as u32 - 1);
        shift_right(&mut mantissa, shift as u32);
        let whole = u128::from(mantissa[1]) << 64 | u128::from(mantissa[0]);
        let dropped = match (half, below) {
            (false, false) => Dropped::Nothing,
            (false, true) => Dropped::BelowHalf,
            (true, false) => Dropped::Half,
            (true, true) => Dropped::AboveHalf,
        };
        (whole, dropped)
    }

    /// The mantissa without trailing zero bits, and its exponent; none if it has more than 128 bits.
    pub fn odd_mantissa(self) -> Option<(u128, i32)> {
        let zeros = self
            .mantissa
            .iter()
            .position(|limb| *limb != 0)
            .map(|limb| limb as u32 * 64 + self.mantissa[limb].trailing_zeros())?;
        if zeros < BITS as u32 - 128 {
            return None;
        }
        let mut mantissa = self.mantissa;
        shift_right(&mut mantissa, zeros);
        Some((u128::from(mantissa[1]) << 64 | u128::from(mantissa[0]), self.exponent + zeros as i32))
    }
}

/// Where a number goes that is half-way between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ties {
    ToEven,
    Away,
}

/// What rounding to a whole number leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    Nothing,
    BelowHalf,
    Half,
    AboveHalf,
}

fn leading_zeros(limbs: &[u64; LIMBS]) -> u32 {
    let mut zeros = 0;
    for limb in limbs.iter().rev() {
        zeros += limb.leading_zeros();
        if *limb != 0 {
            break;
        }
    }
    zeros
}

fn shift_left(limbs: &mut [u64; LIMBS], bits: u32) {
    let (whole, bits) = ((bits / 64) as usize, bits % 64);
    for at in (0..LIMBS).rev() {
        let high = if at >= whole { limbs[at - whole] } else { 0 };
        let low = if at > whole { limbs[at - whole - 1] } else { 0 };
        limbs[at] = if bits == 0 { high } else { high << bits | low >> (64 - bits) };
    }
}

fn shift_right(limbs: &mut [u64; LIMBS], bits: u32) {
    let (whole, bits) = ((bits / 64) as usize, bits % 64);
    for at in 0..LIMBS {
        let low = limbs.get(at + whole).copied().unwrap_or(0);
        let high = limbs.get(at + whole + 1).copied().unwrap_or(0);
        limbs[at] = if bits == 0 { low } else { low >> bits | high << (64 - bits) };
    }
}

fn add_limbs(left: &[u64; LIMBS], right: &[u64; LIMBS]) -> ([u64; LIMBS], bool) {
    let mut sum = [0; LIMBS];
    let mut carry = false;
    for at in 0..LIMBS {
        let (partial, over) = left[at].overflowing_add(right[at]);
        let (total, over_again) = partial.overflowing_add(carry.into());
        sum[at] = total;
        carry = over || over_again;
    }
    (sum, carry)
}

/// The left one is the larger.
fn subtract_limbs(left: &[u64; LIMBS], right: &[u64; LIMBS]) -> [u64; LIMBS] {
    let mut difference = [0; LIMBS];
    let mut borrow = false;
    for at in 0..LIMBS {
        let (partial, under) = left[at].overflowing_sub(right[at]);
        let (total, under_again) = partial.overflowing_sub(borrow.into());
        difference[at] = total;
        borrow = under || under_again;
    }
    difference
}

fn bit(limbs: &[u64; LIMBS], at: u32) -> bool {
    limbs.get((at / 64) as usize).is_some_and(|limb| limb >> (at % 64) & 1 == 1)
}

fn any_below(limbs: &[u64; LIMBS], bits: u32) -> bool {
    let whole = (bits / 64) as usize;
    limbs[..whole.min(LIMBS)].iter().any(|limb| *limb != 0)
        || limbs.get(whole).is_some_and(|limb| limb & ((1 << (bits % 64)) - 1) != 0)
}

fn clear_below(limbs: &mut [u64; LIMBS], bits: u32) {
    let whole = (bits / 64) as usize;
    limbs[..whole].fill(0);
    limbs[whole] &= !((1 << (bits % 64)) - 1);
}
