//! A sum from which everything that was added can be taken away again.
//!
//! Doubles and decimals are added as the whole numbers that they are: doubles in units of the smallest double,
//! decimals in units of the smallest decimal. Nothing is rounded before the sum is asked for, so a sum of a
//! million doubles from which they are all removed is zero, and the order of additions does not show.
//!
//! Digits are kept sparse and balanced (between minus and plus half of the base), which makes every number have
//! one representation: equal sums are equal values, and zero is no digit at all.

use std::collections::BTreeMap;

use kilim_bson::Decimal128;
use kilim_query::accumulator::Number;

use crate::packed;

/// A reversible sum of numbers of any types, whose total has the type that `$sum` would give it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExactSum {
    /// How many numbers of each type are in it: int, long, double, decimal.
    counts: [i64; 4],
    /// Ints and longs.
    whole: i128,
    /// Finite doubles, in units of 2⁻¹⁰⁷⁴.
    binary: Digits<BINARY>,
    /// Finite decimals, in units of 10⁻⁶¹⁷⁶.
    decimal: Digits<DECIMAL>,
    /// How many decimals there are of each exponent: the least is the total's.
    exponents: BTreeMap<i32, i64>,
    /// Doubles and decimals that are no numbers: NaN, infinity, negative infinity.
    special: [[i64; 3]; 2],
}

const BINARY: i64 = 1 << 32;
const DECIMAL: i64 = 1_000_000_000;
const DECIMAL_DIGITS: i32 = 9;
/// The exponents of the smallest double and of the smallest decimal.
const DOUBLE_UNIT: i32 = -1074;
const DECIMAL_UNIT: i32 = -6176;

const NAN: usize = 0;
/// Negative infinity is the next.
const INFINITE: usize = 1;

impl ExactSum {
    pub fn add(&mut self, number: Number) {
        self.take(number, 1);
    }

    /// Takes away what was added before.
    pub fn remove(&mut self, number: Number) {
        self.take(number, -1);
    }

    /// How many numbers are in it.
    pub fn count(&self) -> i64 {
        self.counts.iter().sum()
    }

    fn take(&mut self, number: Number, sign: i64) {
        let kind = match number {
            Number::Int(value) => {
                self.whole += i128::from(sign) * i128::from(value);
                0
            }
            Number::Long(value) => {
                self.whole += i128::from(sign) * i128::from(value);
                1
            }
            Number::Double(value) => {
                self.take_double(value, sign);
                2
            }
            Number::Decimal(value) => {
                self.take_decimal(value, sign);
                3
            }
        };
        self.counts[kind] += sign;
    }

    fn take_double(&mut self, value: f64, sign: i64) {
        if !value.is_finite() {
            let which = if value.is_nan() { NAN } else { INFINITE + usize::from(value < 0.0) };
            self.special[0][which] += sign;
            return;
        }
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7FF) as u32;
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        // A subnormal has no hidden bit and the exponent of the least normal.
        let (mantissa, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let signed = if value < 0.0 { -sign } else { sign } * mantissa;
        self.binary.add((shift / 32) as i32, i128::from(signed) << (shift % 32));
    }

    fn take_decimal(&mut self, value: Decimal128, sign: i64) {
        let Some((negative, coefficient, exponent)) = value.to_parts() else {
            let which = if value.is_nan() { NAN } else { INFINITE + usize::from(value.is_negative()) };
            self.special[1][which] += sign;
            return;
        };
        let count = self.exponents.entry(exponent).or_insert(0);
        *count += sign;
        if *count == 0 {
            self.exponents.remove(&exponent);
        }
        let shift = exponent - DECIMAL_UNIT;
        let scale =
            10i128.pow((shift % DECIMAL_DIGITS) as u32) * i128::from(if negative { -sign } else { sign });
        let (mut rest, mut at) = (coefficient, shift / DECIMAL_DIGITS);
        while rest > 0 {
            self.decimal.add(at, (rest % DECIMAL as u128) as i128 * scale);
            rest /= DECIMAL as u128;
            at += 1;
        }
    }

    /// The sum as `$sum` types it: as narrow as the numbers allow, ints wide as longs where they must be, longs as
    /// doubles; zero where there is nothing.
    pub fn total(&self) -> Number {
        let [_, longs, doubles, decimals] = self.counts;
        if decimals > 0 {
            return Number::Decimal(self.total_decimal());
        }
        if doubles > 0 {
            return Number::Double(self.total_double());
        }
        match (i32::try_from(self.whole), i64::try_from(self.whole)) {
            (Ok(value), _) if longs == 0 => Number::Int(value),
            (_, Ok(value)) => Number::Long(value),
            _ => Number::Double(self.whole as f64),
        }
    }

    /// The sum over the count; none where there is nothing.
    pub fn mean(&self) -> Option<Number> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        Some(match self.total() {
            Number::Decimal(total) => Number::Decimal(total.divide(Decimal128::from(count))),
            _ => Number::Double(self.total_double() / count as f64),
        })
    }

    /// n·Σx² − (Σx)² of these n numbers, given the sum of their squares; rounded once, for the two nearly cancel where
    /// the numbers are close to each other. Decimals do not count.
    pub(crate) fn distance(&self, squares: &ExactSum) -> f64 {
        // NaN and infinities are at no distance, and squares that are infinite at an infinite one.
        if let Some(special) = special_double(self.special[0]) {
            return special * 0.0;
        }
        if let Some(special) = special_double(squares.special[0]) {
            return special;
        }
        let sum = self.finite_doubles();
        let count = i128::from(self.count());
        // In units of 2⁻²¹⁴⁸, those of a product.
        let unit = -DOUBLE_UNIT;
        let mut distance: Digits<BINARY> = Digits::default();
        for (&at, &digit) in &squares.finite_doubles().0 {
            distance.add(at + unit / 32, count * (i128::from(digit) << (unit % 32)));
        }
        for (&left_at, &left) in &sum.0 {
            for (&right_at, &right) in &sum.0 {
                distance.add(left_at + right_at, -i128::from(left) * i128::from(right));
            }
        }
        distance.rounded(2 * DOUBLE_UNIT)
    }

    /// Everything but decimals, rounded once.
    fn total_double(&self) -> f64 {
        special_double(self.special[0]).unwrap_or_else(|| self.finite_doubles().to_f64())
    }

    fn finite_doubles(&self) -> Digits<BINARY> {
        let mut sum = self.binary.clone();
        let unit = -DOUBLE_UNIT as u32;
        // In two halves: an i128 moved by up to 31 bits does not fit.
        for (half, at) in [(self.whole & i128::from(u64::MAX), 0), (self.whole >> 64, 64)] {
            let shift = unit + at;
            sum.add((shift / 32) as i32, half << (shift % 32));
        }
        sum
    }

    fn total_decimal(&self) -> Decimal128 {
        let others = match special_double(self.special[0]) {
            Some(special) => Decimal128::from_f64(special),
            None => {
                let mut rest = self.finite_doubles();
                let high = rest.to_f64();
                let mut rounded = ExactSum::default();
                rounded.take_double(high, 1);
                rest.subtract(&rounded.binary);
                match high.is_finite() {
                    true => {
                        let low = Decimal128::from_f64_all_digits(rest.to_f64());
                        Decimal128::from_f64_all_digits(high).add(low)
                    }
                    false => Decimal128::from_f64(high),
                }
            }
        };
        let [nan, infinite, negative] = self.special[1];
        let decimals = match (nan != 0 || (infinite != 0 && negative != 0), infinite != 0, negative != 0) {
            (true, ..) => Decimal128::NAN,
            (_, true, _) => Decimal128::INFINITY,
            (_, _, true) => Decimal128::NEG_INFINITY,
            _ => self.decimal.to_decimal(self.exponents.keys().next().copied().unwrap_or(0)),
        };
        if self.counts[..3].iter().all(|count| *count == 0) { decimals } else { decimals.add(others) }
    }

    /// All of it, as bytes. On disk.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.counts.iter().for_each(|count| packed::push(out, *count));
        packed::push(out, self.whole);
        encode_pairs(&self.binary.0, out);
        encode_pairs(&self.decimal.0, out);
        encode_pairs(&self.exponents, out);
        self.special.iter().flatten().for_each(|count| packed::push(out, *count));
    }

    /// What [`ExactSum::encode`] wrote, of which `stored` is then rid; none if it is something else.
    pub fn decode(stored: &mut &[u8]) -> Option<ExactSum> {
        let mut sum = ExactSum::default();
        for count in &mut sum.counts {
            *count = packed::take_long(stored)?;
        }
        sum.whole = packed::take(stored)?;
        sum.binary = Digits(decode_pairs(stored)?);
        sum.decimal = Digits(decode_pairs(stored)?);
        sum.exponents = decode_pairs(stored)?;
        for count in sum.special.iter_mut().flatten() {
            *count = packed::take_long(stored)?;
        }
        Some(sum)
    }
}

fn encode_pairs(pairs: &BTreeMap<i32, i64>, out: &mut Vec<u8>) {
    packed::push(out, pairs.len() as i64);
    for (place, count) in pairs {
        packed::push(out, *place);
        packed::push(out, *count);
    }
}

fn decode_pairs(stored: &mut &[u8]) -> Option<BTreeMap<i32, i64>> {
    let mut pairs = BTreeMap::new();
    for _ in 0..packed::take_long(stored)? {
        let place = i32::try_from(packed::take_long(stored)?).ok()?;
        pairs.insert(place, packed::take_long(stored)?);
    }
    Some(pairs)
}

fn special_double([nan, infinite, negative]: [i64; 3]) -> Option<f64> {
    match (nan != 0, infinite != 0, negative != 0) {
        (false, false, false) => None,
        (false, true, false) => Some(f64::INFINITY),
        (false, false, true) => Some(f64::NEG_INFINITY),
        _ => Some(f64::NAN),
    }
}

/// A whole number by its digits, the least at place 0. Balanced: a digit is at least minus half of the base and
/// below half of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Digits<const BASE: i64>(BTreeMap<i32, i64>);

impl<const BASE: i64> Digits<BASE> {
    fn add(&mut self, mut at: i32, mut value: i128) {
        let (base, half) = (i128::from(BASE), i128::from(BASE / 2));
        while value != 0 {
            let sum = i128::from(self.0.get(&at).copied().unwrap_or(0)) + value;
            let digit = (sum + half).rem_euclid(base) - half;
            match digit {
                0 => drop(self.0.remove(&at)),
                digit => drop(self.0.insert(at, digit as i64)),
            }
            value = (sum - digit) / base;
            at += 1;
        }
    }

    fn subtract(&mut self, other: &Digits<BASE>) {
        for (&at, &digit) in &other.0 {
            self.add(at, -i128::from(digit));
        }
    }

    fn is_negative(&self) -> bool {
        // The highest digit outweighs all others.
        self.0.last_key_value().is_some_and(|(_, &digit)| digit < 0)
    }

    /// The digits of the absolute value, none negative, from the least place that counts.
    fn magnitude(&self) -> (i32, Vec<u64>) {
        let Some((&first, _)) = self.0.first_key_value() else { return (0, Vec::new()) };
        let last = self.0.last_key_value().map_or(first, |(&last, _)| last);
        let sign = if self.is_negative() { -1 } else { 1 };
        let mut carry = 0;
        let digits = (first..=last).map(|at| {
            let digit = sign * self.0.get(&at).copied().unwrap_or(0) + carry;
            carry = -i64::from(digit < 0);
            digit.rem_euclid(BASE) as u64
        });
        let mut digits: Vec<u64> = digits.collect();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        (first, digits)
    }
}

impl Digits<BINARY> {
    /// The nearest double, ties to even.
    fn to_f64(&self) -> f64 {
        self.rounded(DOUBLE_UNIT)
    }

    /// The nearest double, where the digit at place 0 counts units of this power of two.
    fn rounded(&self, unit: i32) -> f64 {
        let (first, digits) = self.magnitude();
        let Some(top) = digits.last() else { return 0.0 };
        let places = |count: usize| 32 * (first as i64 + count as i64);
        // The bits above this one are all there are.
        let length = places(digits.len()) - i64::from(top.leading_zeros() as i32 - 32);
        let bit = |at: i64| {
            let place = at.div_euclid(32) - i64::from(first);
            usize::try_from(place)
                .ok()
                .and_then(|place| digits.get(place))
                .is_some_and(|digit| digit >> at.rem_euclid(32) & 1 == 1)
        };
        let lowest = (length - 53).max(0);
        let mut mantissa = (lowest..length).rev().fold(0u64, |bits, at| bits << 1 | u64::from(bit(at)));
        if lowest > 0 && bit(lowest - 1) {
            let sticky = (places(0).max(0)..lowest - 1).any(bit);
            if sticky || mantissa & 1 == 1 {
                mantissa += 1;
            }
        }
        // In two steps, each exact, since one power of two may be out of range.
        let exponent = lowest + i64::from(unit);
        let half = exponent / 2;
        let power = |exponent: i64| 2f64.powi(exponent as i32);
        let magnitude = mantissa as f64 * power(half) * power(exponent - half);
        if self.is_negative() { -magnitude } else { magnitude }
    }
}

impl Digits<DECIMAL> {
    /// With this exponent if 34 digits suffice, else rounded, ties to even.
    fn to_decimal(&self, exponent: i32) -> Decimal128 {
        let (first, digits) = self.magnitude();
        let mut text = String::new();
        if self.is_negative() {
            text.push('-');
        }
        for digit in digits.iter().rev() {
            text.push_str(&format!("{digit:09}"));
        }
        if digits.is_empty() {
            text.push('0');
        }
        let unit = first * DECIMAL_DIGITS + DECIMAL_UNIT;
        let exact = match digits.is_empty() {
            true => format!("0E{exponent}"),
            false => {
                // Digits below the exponent that is wanted are zeros, digits above are filled up.
                let mut whole = text;
                let mut at = unit;
                while at < exponent && whole.ends_with('0') {
                    whole.pop();
                    at += 1;
                }
                while at > exponent && whole.trim_start_matches(['-', '0']).len() < 34 {
                    whole.push('0');
                    at -= 1;
                }
                format!("{whole}E{at}")
            }
        };
        Decimal128::parse(&exact).unwrap_or(Decimal128::NAN)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn sum(numbers: &[Number]) -> ExactSum {
        let mut sum = ExactSum::default();
        numbers.iter().for_each(|number| sum.add(*number));
        sum
    }

    fn double(number: Number) -> f64 {
        match number {
            Number::Double(value) => value,
            other => panic!("{other:?} is no double"),
        }
    }

    fn decimal(text: &str) -> Number {
        Number::Decimal(Decimal128::parse(text).unwrap())
    }

    fn shown(number: Number) -> String {
        match number {
            Number::Int(value) => format!("int {value}"),
            Number::Long(value) => format!("long {value}"),
            Number::Double(value) => format!("double {value}"),
            Number::Decimal(value) => format!("decimal {value}"),
        }
    }

    #[test]
    fn a_million_doubles_added_and_removed_leave_nothing() {
        let mut random = StdRng::seed_from_u64(1);
        let numbers: Vec<f64> = (0..1_000_000)
            .map(|_| random.random::<f64>() * 10f64.powi(random.random_range(-20..20)))
            .collect();
        let mut sum = ExactSum::default();
        numbers.iter().for_each(|number| sum.add(Number::Double(*number)));
        assert!(double(sum.total()) > 0.0);
        numbers.iter().rev().for_each(|number| sum.remove(Number::Double(*number)));
        assert_eq!(sum, ExactSum::default());
    }

    #[test]
    fn a_sum_of_doubles_is_rounded_once() {
        // Sixty-fourths below 2⁴⁰ add up exactly in an i128.
        let mut random = StdRng::seed_from_u64(2);
        for _ in 0..2000 {
            let parts: Vec<i64> = (0..random.random_range(1..40))
                .map(|_| random.random_range(-(1 << 52)..1 << 52) >> random.random_range(0..40))
                .collect();
            let expected = parts.iter().map(|part| i128::from(*part)).sum::<i128>() as f64 / 64.0;
            let numbers: Vec<Number> = parts.iter().map(|part| Number::Double(*part as f64 / 64.0)).collect();
            assert_eq!(double(sum(&numbers).total()), expected, "{parts:?}");
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        let doubles =
            |values: &[f64]| sum(&values.iter().map(|v| Number::Double(*v)).collect::<Vec<_>>()).total();
        let tiny = f64::from_bits(1);
        assert_eq!(double(doubles(&[tiny])), tiny);
        assert_eq!(double(doubles(&[tiny, tiny, tiny])), 3.0 * tiny);
        assert_eq!(double(doubles(&[f64::MIN_POSITIVE, -tiny])), f64::MIN_POSITIVE - tiny);
        assert_eq!(double(doubles(&[f64::MAX])), f64::MAX);
        assert_eq!(double(doubles(&[f64::MAX, f64::MAX])), f64::INFINITY);
        assert_eq!(double(doubles(&[f64::MAX, f64::MAX, -f64::MAX])), f64::MAX);
        assert_eq!(double(doubles(&[f64::MAX, tiny, -f64::MAX])), tiny);
        assert_eq!(double(doubles(&[1.0, 2f64.powi(-53)])), 1.0);
        assert_eq!(double(doubles(&[1.0, 2f64.powi(-53), tiny])), 1.0 + f64::EPSILON);
        assert_eq!(double(doubles(&[-1.0, -(2f64.powi(-53)), -tiny])), -1.0 - f64::EPSILON);
        assert_eq!(double(doubles(&[0.1, 0.2, 0.3, -0.6])), 2.7755575615628914e-17);
    }

    #[test]
    fn the_total_is_as_wide_as_its_numbers() {
        for (numbers, expected) in [
            (vec![], "int 0"),
            (vec![Number::Int(1), Number::Int(2)], "int 3"),
            (vec![Number::Int(i32::MAX), Number::Int(1)], "long 2147483648"),
            (vec![Number::Int(1), Number::Long(1)], "long 2"),
            (vec![Number::Long(i64::MAX), Number::Long(i64::MAX)], "double 18446744073709552000"),
            (vec![Number::Int(1), Number::Double(0.5)], "double 1.5"),
            (vec![decimal("1.10"), decimal("2.2")], "decimal 3.30"),
            (vec![decimal("1.10"), decimal("-1.1")], "decimal 0.00"),
            (vec![decimal("1E+3"), Number::Int(1)], "decimal 1001"),
            (
                vec![decimal("9999999999999999999999999999999999"), decimal("1")],
                "decimal 1.000000000000000000000000000000000E+34",
            ),
            (vec![decimal("1E+40"), decimal("1E-40"), decimal("-1E+40")], "decimal 1E-40"),
            (vec![decimal("0.1"), Number::Double(0.5)], "decimal 0.6"),
            (vec![Number::Double(f64::INFINITY), Number::Double(1.0)], "double inf"),
            (vec![Number::Double(f64::INFINITY), Number::Double(f64::NEG_INFINITY)], "double NaN"),
            (vec![decimal("Infinity"), decimal("1")], "decimal Infinity"),
            (vec![decimal("NaN"), decimal("1")], "decimal NaN"),
        ] {
            assert_eq!(shown(sum(&numbers).total()), expected, "{numbers:?}");
        }
    }

    #[test]
    fn what_is_removed_was_never_there() {
        let mut random = StdRng::seed_from_u64(3);
        let number = |random: &mut StdRng| match random.random_range(0..6) {
            0 => Number::Int(random.random()),
            1 => Number::Long(random.random()),
            2 => Number::Double(f64::from_bits(random.random())),
            3 => Number::Double(
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0][random.random_range(0..5)],
            ),
            4 => Number::Decimal(Decimal128::from_bytes(random.random())),
            _ => Number::Double(random.random_range(-1000..1000) as f64 / 100.0),
        };
        for _ in 0..500 {
            let kept: Vec<Number> = (0..random.random_range(0..8)).map(|_| number(&mut random)).collect();
            let gone: Vec<Number> = (0..random.random_range(0..8)).map(|_| number(&mut random)).collect();
            let mut mixed = sum(&gone);
            kept.iter().for_each(|number| mixed.add(*number));
            gone.iter().for_each(|number| mixed.remove(*number));
            let expected = sum(&kept);
            assert_eq!(mixed, expected, "{kept:?} {gone:?}");
            let mut stored = Vec::new();
            mixed.encode(&mut stored);
            assert_eq!(ExactSum::decode(&mut &stored[..]), Some(expected));
        }
    }

    #[test]
    fn a_mean_of_nothing_is_none() {
        assert!(ExactSum::default().mean().is_none());
        assert_eq!(double(sum(&[Number::Int(1), Number::Int(2)]).mean().unwrap()), 1.5);
        assert_eq!(shown(sum(&[decimal("1"), decimal("2")]).mean().unwrap()), "decimal 1.5");
    }

    /// n·Σx² − (Σx)² as an accumulator keeps it.
    fn distance(numbers: &[f64]) -> f64 {
        let (mut sum, mut squares) = (ExactSum::default(), ExactSum::default());
        for &number in numbers {
            sum.add(Number::Double(number));
            let square = number * number;
            squares.add(Number::Double(square));
            if square.is_finite() {
                squares.add(Number::Double(number.mul_add(number, -square)));
            }
        }
        sum.distance(&squares)
    }

    #[test]
    fn equal_numbers_are_at_no_distance() {
        assert_eq!(distance(&[]), 0.0);
        assert_eq!(distance(&[2.1; 3]), 0.0);
        assert_eq!(distance(&[1e15 + 0.5; 7]), 0.0);
        assert_eq!(distance(&[1.0, 2.0, 4.0]), 3.0 * 21.0 - 49.0);
        assert_eq!(distance(&[1e15, 1e15 + 1.0]), 1.0);
        assert!(distance(&[1.0, f64::INFINITY]).is_nan());
        assert!(distance(&[1.0, f64::NAN]).is_nan());
        assert_eq!(distance(&[1e200, -1e200]), f64::INFINITY);
    }
}
