//! Preferred numbers: the series along which `$bucketAuto` may place its boundaries.
//!
//! A series is given for one decade and repeats in every other, scaled by powers of ten: Renard's (`R5` to
//! `R80`), that of electronics (`E6` to `E192`), `1-2-5`; besides there are the powers of two.
//!
//! Invariant: rounding up gives a number of the series above the value, rounding down one below it, even for
//! a value of the series. The steps of the arithmetic are mongod's, so the last bits are too.

use std::borrow::Cow;

use kilim_bson::{Decimal128, RawValue, Rounding, Value};
use kilim_error::{Error, Result};

/// A series, by its name in the request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Granularity {
    pub name: &'static str,
    series: Series,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Series {
    /// Each so many-th number of a finer series.
    Decade(&'static [f64], usize),
    PowersOfTwo,
}

const ALL: &[Granularity] = &[
    Granularity { name: "R5", series: Series::Decade(&R5, 1) },
    Granularity { name: "R10", series: Series::Decade(&R20, 2) },
    Granularity { name: "R20", series: Series::Decade(&R20, 1) },
    Granularity { name: "R40", series: Series::Decade(&R40, 1) },
    Granularity { name: "R80", series: Series::Decade(&R80, 1) },
    Granularity { name: "1-2-5", series: Series::Decade(&ONE_TWO_FIVE, 1) },
    Granularity { name: "E6", series: Series::Decade(&E24, 4) },
    Granularity { name: "E12", series: Series::Decade(&E24, 2) },
    Granularity { name: "E24", series: Series::Decade(&E24, 1) },
    Granularity { name: "E48", series: Series::Decade(&E192, 4) },
    Granularity { name: "E96", series: Series::Decade(&E192, 2) },
    Granularity { name: "E192", series: Series::Decade(&E192, 1) },
    Granularity { name: "POWERSOF2", series: Series::PowersOfTwo },
];

const R5: [f64; 5] = [10.0, 16.0, 25.0, 40.0, 63.0];
const ONE_TWO_FIVE: [f64; 3] = [10.0, 20.0, 50.0];
const R20: [f64; 20] = [
    100.0, 112.0, 125.0, 140.0, 160.0, 180.0, 200.0, 224.0, 250.0, 280.0, 315.0, 355.0, 400.0, 450.0, 500.0,
    560.0, 630.0, 710.0, 800.0, 900.0,
];
/// Without 335, as on MongoDB.
const R40: [f64; 39] = [
    100.0, 106.0, 112.0, 118.0, 125.0, 132.0, 140.0, 150.0, 160.0, 170.0, 180.0, 190.0, 200.0, 212.0, 224.0,
    236.0, 250.0, 265.0, 280.0, 300.0, 315.0, 355.0, 375.0, 400.0, 425.0, 450.0, 475.0, 500.0, 530.0, 560.0,
    600.0, 630.0, 670.0, 710.0, 750.0, 800.0, 850.0, 900.0, 950.0,
];
/// Only what lies between the numbers of `R40`, as on MongoDB.
const R80: [f64; 40] = [
    103.0, 109.0, 115.0, 122.0, 128.0, 136.0, 145.0, 155.0, 165.0, 175.0, 185.0, 195.0, 206.0, 218.0, 230.0,
    243.0, 258.0, 272.0, 290.0, 307.0, 325.0, 345.0, 365.0, 387.0, 412.0, 437.0, 462.0, 487.0, 515.0, 545.0,
    575.0, 615.0, 650.0, 690.0, 730.0, 775.0, 825.0, 875.0, 925.0, 975.0,
];
const E24: [f64; 24] = [
    10.0, 11.0, 12.0, 13.0, 15.0, 16.0, 18.0, 20.0, 22.0, 24.0, 27.0, 30.0, 33.0, 36.0, 39.0, 43.0, 47.0,
    51.0, 56.0, 62.0, 68.0, 75.0, 82.0, 91.0,
];
const E192: [f64; 192] = [
    100.0, 101.0, 102.0, 104.0, 105.0, 106.0, 107.0, 109.0, 110.0, 111.0, 113.0, 114.0, 115.0, 117.0, 118.0,
    120.0, 121.0, 123.0, 124.0, 126.0, 127.0, 129.0, 130.0, 132.0, 133.0, 135.0, 137.0, 138.0, 140.0, 142.0,
    143.0, 145.0, 147.0, 149.0, 150.0, 152.0, 154.0, 156.0, 158.0, 160.0, 162.0, 164.0, 165.0, 167.0, 169.0,
    172.0, 174.0, 176.0, 178.0, 180.0, 182.0, 184.0, 187.0, 189.0, 191.0, 193.0, 196.0, 198.0, 200.0, 203.0,
    205.0, 208.0, 210.0, 213.0, 215.0, 218.0, 221.0, 223.0, 226.0, 229.0, 232.0, 234.0, 237.0, 240.0, 243.0,
    246.0, 249.0, 252.0, 255.0, 258.0, 261.0, 264.0, 267.0, 271.0, 274.0, 277.0, 280.0, 284.0, 287.0, 291.0,
    294.0, 298.0, 301.0, 305.0, 309.0, 312.0, 316.0, 320.0, 324.0, 328.0, 332.0, 336.0, 340.0, 344.0, 348.0,
    352.0, 357.0, 361.0, 365.0, 370.0, 374.0, 379.0, 383.0, 388.0, 392.0, 397.0, 402.0, 407.0, 412.0, 417.0,
    422.0, 427.0, 432.0, 437.0, 442.0, 448.0, 453.0, 459.0, 464.0, 470.0, 475.0, 481.0, 487.0, 493.0, 499.0,
    505.0, 511.0, 517.0, 523.0, 530.0, 536.0, 542.0, 549.0, 556.0, 562.0, 569.0, 576.0, 583.0, 590.0, 597.0,
    604.0, 612.0, 619.0, 626.0, 634.0, 642.0, 649.0, 657.0, 665.0, 673.0, 681.0, 690.0, 698.0, 706.0, 715.0,
    723.0, 732.0, 741.0, 750.0, 759.0, 768.0, 777.0, 787.0, 796.0, 806.0, 816.0, 825.0, 835.0, 845.0, 856.0,
    866.0, 876.0, 887.0, 898.0, 909.0, 920.0, 931.0, 942.0, 953.0, 965.0, 976.0, 988.0,
];

impl Granularity {
    pub fn find(name: &str) -> Option<Granularity> {
        ALL.iter().copied().find(|granularity| granularity.name == name)
    }

    /// The next number of the series above the value; zero stays zero.
    pub fn round_up(self, value: RawValue<'_>) -> Result<Value> {
        self.round(value, Way::Up)
    }

    /// The next number of the series below the value; zero stays zero.
    pub fn round_down(self, value: RawValue<'_>) -> Result<Value> {
        self.round(value, Way::Down)
    }

    fn round(self, value: RawValue<'_>, way: Way) -> Result<Value> {
        check(Some(value))?;
        Ok(match (value, self.series) {
            (RawValue::Decimal128(number), _) if number.is_zero() => value.to_value(),
            (RawValue::Decimal128(number), Series::Decade(..)) => {
                Value::Decimal128(if number.is_finite() { self.decimal(number, way) } else { number })
            }
            (RawValue::Decimal128(number), Series::PowersOfTwo) => {
                Value::Decimal128(decimal_power(number, way))
            }
            _ => match (to_f64(value), self.series) {
                (0.0, _) => value.to_value(),
                (number, Series::Decade(..)) if number.is_finite() => Value::Double(self.double(number, way)),
                (number, Series::Decade(..)) => Value::Double(number),
                (number, Series::PowersOfTwo) => power(number, way),
            },
        })
    }

    /// The series in one decade, ascending.
    fn decade(self) -> Cow<'static, [f64]> {
        match self.series {
            Series::Decade(numbers, 1) => Cow::Borrowed(numbers),
            Series::Decade(numbers, step) => Cow::Owned(numbers.iter().copied().step_by(step).collect()),
            Series::PowersOfTwo => Cow::Borrowed(&[]),
        }
    }

    fn double(self, number: f64, way: Way) -> f64 {
        let decade = self.decade();
        let scale = Scale { times: |left, right| left * right, over: |left, right| left / right, ten: 10.0 };
        scale.round(number, 1.0, &decade, way)
    }

    fn decimal(self, number: Decimal128, way: Way) -> Decimal128 {
        let decade: Vec<Number> =
            self.decade().iter().map(|number| Number(Decimal128::from_f64(*number))).collect();
        let scale = Scale {
            times: |left: Number, right: Number| Number(left.0.multiply(right.0)),
            over: |left: Number, right: Number| Number(left.0.divide(right.0)),
            ten: Number(Decimal128::from(10)),
        };
        scale.round(Number(number), Number(Decimal128::from(1)), &decade, way).0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// A decimal in its numeric order.
#[derive(Clone, Copy, PartialEq)]
struct Number(Decimal128);

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<std::cmp::Ordering> {
        Some(self.0.compare(other.0))
    }
}

/// How numbers of one type are moved between decades.
struct Scale<N> {
    times: fn(N, N) -> N,
    over: fn(N, N) -> N,
    ten: N,
}

impl<N: Copy + PartialOrd> Scale<N> {
    /// Finds the decade that holds the number, then the place in it.
    fn round(&self, number: N, one: N, decade: &[N], way: Way) -> N {
        let [first, .., last] = *decade else { return number };
        let (times, over) = (self.times, self.over);
        let mut factor = one;
        if way == Way::Up {
            while number >= times(factor, last) {
                factor = times(factor, self.ten);
            }
            while number < times(factor, first) {
                let above = times(factor, first);
                factor = over(factor, self.ten);
                // Between two decades: the first number of the higher one.
                if number >= times(factor, last) {
                    return above;
                }
            }
            let above = decade.iter().find(|candidate| number < times(factor, **candidate));
            times(factor, *above.unwrap_or(&last))
        } else {
            while number > times(factor, last) {
                let below = times(factor, last);
                factor = times(factor, self.ten);
                if number <= times(factor, first) {
                    return below;
                }
            }
            while number <= times(factor, first) {
                factor = over(factor, self.ten);
            }
            let below = decade.iter().rev().find(|candidate| times(factor, **candidate) < number);
            times(factor, *below.unwrap_or(&last))
        }
    }
}

fn to_f64(value: RawValue<'_>) -> f64 {
    crate::accumulator::Number::of(value).map_or(f64::NAN, crate::accumulator::Number::to_f64)
}

/// A whole number of its least type where one can hold it.
fn power(number: f64, way: Way) -> Value {
    if number.is_infinite() {
        return Value::Double(0.0);
    }
    match exponent(number, way) {
        exponent @ 0..=62 => {
            let power = 1i64 << exponent;
            i32::try_from(power).map_or(Value::Int64(power), Value::Int32)
        }
        exponent => Value::Double(2f64.powi(exponent)),
    }
}

/// With as many digits as a decimal has room for.
fn decimal_power(number: Decimal128, way: Way) -> Decimal128 {
    if number.is_infinite() {
        return Decimal128::ZERO.round(6176, Rounding::HalfEven);
    }
    // Doubles reach far enough for a first guess, and decimals beyond them are counted in steps.
    let two = Decimal128::from(2);
    let mut power = Decimal128::from(1);
    let goes_on = |power: Decimal128| power.compare(number);
    while goes_on(power).is_le() {
        power = power.multiply(two);
    }
    while goes_on(power.divide(two)).is_gt() {
        power = power.divide(two);
    }
    if way == Way::Down {
        power = power.divide(two);
        if goes_on(power).is_eq() {
            power = power.divide(two);
        }
    }
    power.round(6176, Rounding::HalfEven)
}

/// Of the next power of two above or below a number.
fn exponent(number: f64, way: Way) -> i32 {
    // Subnormal numbers have their exponent in the place of the first bit.
    let bits = number.to_bits();
    let (biased, fraction) = ((bits >> 52) as i32 & 0x7FF, bits & ((1 << 52) - 1));
    let (floor, exact) = match biased {
        0 => (63 - fraction.leading_zeros() as i32 - 1074, fraction.is_power_of_two()),
        biased => (biased - 1023, fraction == 0),
    };
    match way {
        Way::Up => floor + 1,
        Way::Down if exact => floor - 1,
        Way::Down => floor,
    }
}

/// Only numbers from zero up have a place along a series.
pub fn check(value: Option<RawValue<'_>>) -> Result<()> {
    let Some(number) = value.and_then(crate::accumulator::Number::of) else {
        let found = value.map_or("missing", |value| value.element_type().name());
        return Err(Error::location(
            40258,
            format!(
                "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: \
                 {found}"
            ),
        ));
    };
    if number.is_nan() {
        return Err(Error::location(
            40259,
            "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN",
        ));
    }
    let negative = match number {
        crate::accumulator::Number::Decimal(number) => number.compare(Decimal128::ZERO).is_lt(),
        number => number.to_f64() < 0.0,
    };
    if negative {
        return Err(Error::location(
            40260,
            "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative number",
        ));
    }
    Ok(())
}
