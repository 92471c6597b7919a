//! Columns are made: each value as a difference to the one before where it has one, otherwise whole.
//!
//! Differences wait until a value is written whole, a double needs another scale, or the column ends. Then they are packed into
//! blocks, each of as many as fit into one. The forms of blocks that leave zeros out are not used, and documents are not mixed.
//!
//! Invariant: what is made is decoded to the same values, bit by bit. A value of which that is not certain is written whole, and
//! every column is read again before it is given away.

use super::blocks::{REPEAT, REPEATED, WIDTHS};
use super::stream::{BYTES_MAX, ID_BYTES, Stream, number_of};
use super::{Control, Reader};
use crate::{RawDocument, RawElement, RawValue, Value, identical, parse_index};

/// A block has so many bits for its numbers.
const BLOCK_BITS: u32 = 60;
/// The most blocks that stand behind one control byte.
const BLOCKS_MAX: usize = 16;
/// The most repetitions that one block stands for.
const REPEATED_MAX: usize = 16 * REPEATED as usize;
/// How many doubles are looked at to find a scale for them.
const DOUBLES_AHEAD: usize = 64;
/// The high bits of a control byte for differences of anything but doubles, and for those of doubles' own bits.
const UNSCALED: u8 = 0x80;
/// The same for differences of doubles times a scale, from the smallest on.
const SCALES: [(u8, f64); 5] =
    [(0x90, 1.0), (0xA0, 10.0), (0xB0, 100.0), (0xC0, 10_000.0), (0xD0, 100_000_000.0)];
/// A double that is added to smaller ones and taken away again leaves them rounded to whole numbers.
const ROUNDING: f64 = 1.5 * (1u64 << 52) as f64;
/// It does so up to here.
const ROUNDED_MAX: f64 = (1u64 << 51) as f64;

/// Compresses the values of a column, each of which stands under its number, in their order. `count` is how many documents there
/// are; those without a value have none in the column. None where the numbers are out of order, or not below `count`, or the
/// values would not come back as they are.
pub fn encode_column(values: RawDocument<'_>, count: usize) -> Option<Vec<u8>> {
    let elements: Vec<RawElement<'_>> = {
        let mut iter = values.iter();
        std::iter::from_fn(|| iter.next_element()).collect()
    };
    let mut encoder = Encoder::default();
    let mut next = 0;
    for (at, element) in elements.iter().enumerate() {
        let number = parse_index(element.name).filter(|number| (next..count).contains(number))?;
        encoder.pending.extend(std::iter::repeat_n(None, number - next));
        encoder.push(element, &elements[at..]);
        next = number + 1;
    }
    encoder.pending.extend(std::iter::repeat_n(None, count - next));
    encoder.flush();
    encoder.out.push(0);
    are_values_of(&encoder.out, &elements).then_some(encoder.out)
}

/// Whether a column has these values, each under its number.
fn are_values_of(column: &[u8], elements: &[RawElement<'_>]) -> bool {
    let (mut reader, mut stream) = (Reader { bytes: column }, Stream::new(Value::Undefined));
    let (mut left, mut number) = (elements.iter().peekable(), 0);
    loop {
        match reader.control() {
            Ok(Control::End) => return left.peek().is_none() && reader.bytes.is_empty(),
            Ok(control) => {
                if stream.take(control).is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
        loop {
            let expected = |element: &&RawElement<'_>| parse_index(element.name) == Some(number);
            let is_same = match stream.next() {
                Ok(None) => break,
                Ok(Some(None)) => left.peek().is_none_or(|next| !expected(next)),
                Ok(Some(Some(value))) => {
                    left.next_if(expected).is_some_and(|element| identical(element.value(), value.as_raw()))
                }
                Err(_) => false,
            };
            if !is_same {
                return false;
            }
            number += 1;
        }
    }
}

struct Encoder<'a> {
    out: Vec<u8>,
    last: Option<RawElement<'a>>,
    /// The number of the last value, where it is no double.
    number: u128,
    /// The difference before, for differences of differences.
    difference: i64,
    /// What control bytes say of the differences that wait.
    scale: u8,
    /// For so many doubles that scale was chosen.
    scaled: usize,
    /// Differences that wait to be packed; none stands for a missing value.
    pending: Vec<Option<u64>>,
    /// The last number of the blocks since a value was written whole.
    repeated: Option<u64>,
}

impl Default for Encoder<'_> {
    fn default() -> Self {
        let (out, pending) = (Vec::new(), Vec::new());
        Encoder {
            out,
            last: None,
            number: 0,
            difference: 0,
            scale: UNSCALED,
            scaled: 0,
            pending,
            repeated: Some(0),
        }
    }
}

impl<'a> Encoder<'a> {
    /// `ahead`: this value and those behind it.
    fn push(&mut self, element: &RawElement<'a>, ahead: &[RawElement<'a>]) {
        match self.difference_to(element, ahead) {
            Some(coded) => self.pending.push(Some(coded)),
            None => self.push_whole(element),
        }
        self.last = Some(*element);
    }

    fn push_whole(&mut self, element: &RawElement<'a>) {
        self.flush();
        self.out.extend([element.element_type() as u8, 0]);
        self.out.extend_from_slice(element.value_bytes());
        (self.number, self.difference) = (number_of(element.value()), 0);
        (self.scale, self.scaled, self.repeated) = (UNSCALED, 0, Some(0));
    }

    /// What a block says of a value behind the last one. None where it must be written whole.
    fn difference_to(&mut self, element: &RawElement<'a>, ahead: &[RawElement<'a>]) -> Option<u64> {
        let last = self.last.filter(|last| last.element_type() == element.element_type())?;
        let value = element.value();
        match (value, last.value()) {
            (RawValue::Double(value), RawValue::Double(before)) => return self.double(before, value, ahead),
            (RawValue::DateTime(_) | RawValue::Timestamp(_), _) => return self.evenly(value),
            (RawValue::ObjectId(id), RawValue::ObjectId(before)) => {
                let (id, before) = (id.to_bytes(), before.to_bytes());
                let fixed = (0..id.len()).filter(|at| !ID_BYTES.contains(at));
                return fixed.clone().all(|at| id[at] == before[at]).then(|| self.evenly(value))?;
            }
            _ => {}
        }
        if element.value_bytes() == last.value_bytes() {
            return Some(0);
        }
        let has_number = match (value, last.value()) {
            (RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Bool(_) | RawValue::Decimal128(_), _) => {
                true
            }
            (RawValue::String(text), RawValue::String(before)) => [text, before].iter().all(|text| {
                // A zero byte at its beginning would be lost.
                text.len() <= BYTES_MAX && text.bytes().next() != Some(0)
            }),
            (
                RawValue::Binary { subtype, bytes },
                RawValue::Binary { subtype: subtype_before, bytes: before },
            ) => subtype == subtype_before && bytes.len() == before.len() && bytes.len() <= BYTES_MAX,
            _ => false,
        };
        let number = number_of(value);
        let coded = coded(number.wrapping_sub(self.number) as i128).filter(|_| has_number)?;
        self.number = number;
        Some(coded)
    }

    /// The difference to the difference before, of values that mostly grow evenly.
    fn evenly(&mut self, value: RawValue<'_>) -> Option<u64> {
        let number = number_of(value);
        let difference = (number as i64).wrapping_sub(self.number as i64);
        let coded = coded(difference.wrapping_sub(self.difference).into())?;
        (self.number, self.difference) = (number, difference);
        Some(coded)
    }

    fn double(&mut self, before: f64, value: f64, ahead: &[RawElement<'a>]) -> Option<u64> {
        if self.scaled == 0 {
            let (scale, served) = scale_for(before, ahead);
            if scale != self.scale {
                self.flush();
            }
            (self.scale, self.scaled) = (scale, served);
        }
        self.scaled = self.scaled.checked_sub(1)?;
        between(before, value, self.scale)
    }

    /// Packs the differences that wait.
    fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let mut left = &pending[..];
        let mut blocks = 0;
        let mut control = 0;
        while !left.is_empty() {
            if blocks % BLOCKS_MAX == 0 {
                control = self.out.len();
                self.out.push(self.scale);
            } else {
                self.out[control] += 1;
            }
            let (word, count) = block(left, self.repeated);
            self.out.extend_from_slice(&word.to_le_bytes());
            self.repeated = left[count - 1];
            left = &left[count..];
            blocks += 1;
        }
        self.pending = pending;
        self.pending.clear();
    }
}

/// A signed difference with its sign in the lowest bit. None where it is too large for a block.
fn coded(difference: i128) -> Option<u64> {
    let coded = (difference << 1) ^ (difference >> 127);
    let is_small = difference.unsigned_abs() < 1 << (BLOCK_BITS - 2);
    is_small.then_some(coded as u64)
}

/// The scale that serves most doubles behind another one, the smallest of these, and how many it serves.
fn scale_for(before: f64, ahead: &[RawElement<'_>]) -> (u8, usize) {
    let doubles = ahead.iter().take(DOUBLES_AHEAD).map_while(|element| match element.value() {
        RawValue::Double(value) => Some(value),
        _ => None,
    });
    let served = |scale: u8| {
        let mut before = before;
        let is_served =
            |value: &f64| between(std::mem::replace(&mut before, *value), *value, scale).is_some();
        doubles.clone().take_while(is_served).count()
    };
    let mut best = (UNSCALED, 0);
    for scale in SCALES.iter().map(|(scale, _)| *scale).chain([UNSCALED]) {
        let served = served(scale);
        if served > best.1 {
            best = (scale, served);
        }
        if served == DOUBLES_AHEAD {
            break;
        }
    }
    best
}

/// The difference of two doubles. None unless both are known exactly from their numbers by this scale: MongoDB refuses a column
/// in which the value before is not.
fn between(before: f64, value: f64, scale: u8) -> Option<u64> {
    let number = |value: f64| match SCALES.iter().find(|(each, _)| *each == scale) {
        None => Some(value.to_bits() as i64),
        Some((_, scale)) => {
            let scaled = value * scale;
            let number = ((scaled + ROUNDING) - ROUNDING) as i64;
            let is_exact =
                scaled.abs() <= ROUNDED_MAX && (number as f64 / scale).to_bits() == value.to_bits();
            is_exact.then_some(number)
        }
    };
    coded(i128::from(number(value)?) - i128::from(number(before)?))
}

/// A block of as many of these numbers as it can have, and how many these are. `repeated` is the number before.
fn block(numbers: &[Option<u64>], repeated: Option<u64>) -> (u64, usize) {
    let step = REPEATED as usize;
    if numbers[0] == repeated {
        let same = numbers.iter().take(REPEATED_MAX).take_while(|number| **number == repeated).count();
        if same >= step {
            let steps = same / step;
            return (REPEAT as u64 | ((steps - 1) as u64) << 4, steps * step);
        }
    }
    // The block of the most numbers that all fit: a block is always full, so only some counts can be.
    let (mut selector, mut count, mut width) = (WIDTHS.len() - 1, 1, 0);
    for (at, number) in numbers.iter().enumerate().take(BLOCK_BITS as usize) {
        // All bits set stand for a missing value.
        width = width.max(number.map_or(1, |number| u64::BITS - (number + 1).leading_zeros()));
        if width * (at as u32 + 1) > BLOCK_BITS {
            break;
        }
        let fits = |selector: &usize| (BLOCK_BITS / WIDTHS[*selector]) as usize == at + 1;
        if let Some(found) = (1..WIDTHS.len()).find(fits).filter(|found| WIDTHS[*found] >= width) {
            (selector, count) = (found, at + 1);
        }
    }
    let width = WIDTHS[selector];
    let missing = u64::MAX >> (u64::BITS - width);
    // Behind two selectors stand four bits more, which are zero here.
    let used = if matches!(selector, 7 | 8) { 8 } else { 4 };
    let numbers = numbers[..count].iter().enumerate();
    let word = numbers.fold(selector as u64, |word, (at, number)| {
        word | number.unwrap_or(missing) << (used + at as u32 * width)
    });
    (word, count)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::column::decode_column;
    use crate::{Decimal128, Document, ObjectId, Timestamp, Value, Writer};

    pub fn of_values(values: &[Option<Value>]) -> Document {
        let mut column = Writer::new();
        for (at, value) in values.iter().enumerate() {
            value.iter().for_each(|value| column.append_index(at, value.as_raw()));
        }
        column.finish()
    }

    #[track_caller]
    fn check(values: &[Option<Value>]) -> usize {
        let column = of_values(values);
        let encoded = encode_column(column.as_raw(), values.len()).expect("numbers are in order");
        let decoded = decode_column(&encoded, 1 << 24).unwrap_or_else(|bad| panic!("{bad}: {values:?}"));
        assert_eq!(decoded.as_bytes(), column.as_bytes(), "{values:?}");
        encoded.len()
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i32>().prop_map(Value::Int32),
            (-3i32..3).prop_map(Value::Int32),
            any::<i64>().prop_map(Value::Int64),
            (-300i64..300).prop_map(Value::DateTime),
            any::<i64>().prop_map(Value::DateTime),
            any::<f64>().prop_map(Value::Double),
            (-500i32..500).prop_map(|tenths| Value::Double(f64::from(tenths) / 10.0)),
            (-500i32..500).prop_map(|parts| Value::Double(f64::from(parts) * 1e-8)),
            prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 1e300])
                .prop_map(Value::Double),
            any::<u64>().prop_map(|bits| Value::Timestamp(Timestamp::from_bits(bits))),
            any::<[u8; 12]>().prop_map(|id| Value::ObjectId(ObjectId::from_bytes(id))),
            (0u8..4, 0u8..4).prop_map(|(one, other)| {
                Value::ObjectId(ObjectId::from_bytes([0, 0, 0, one, 7, 7, 7, 7, 7, 0, 0, other]))
            }),
            any::<bool>().prop_map(Value::Bool),
            any::<[u8; 16]>().prop_map(|bytes| Value::Decimal128(Decimal128::from_bytes(bytes))),
            "[a-c\\x00]{0,3}".prop_map(Value::String),
            "[a-z]{14,18}".prop_map(Value::String),
            prop::collection::vec(any::<u8>(), 0..20)
                .prop_map(|bytes| Value::Binary { subtype: bytes.len() as u8 % 2, bytes }),
            Just(Value::Null),
            Just(Value::MinKey),
            (0i32..2).prop_map(|n| Value::Document(crate::doc! {"a": n})),
        ]
    }

    /// Runs of values of one kind, of one value, and of nothing, as well as all of them in turn.
    pub fn values() -> impl Strategy<Value = Vec<Option<Value>>> {
        let run = prop_oneof![
            prop::collection::vec(prop::option::weighted(0.9, value()), 0..12),
            (prop::option::of(value()), 1usize..400).prop_map(|(value, count)| vec![value; count]),
            (any::<i32>(), 0i64..1000, 1usize..200).prop_map(|(first, step, count)| {
                let each = |at: usize| i64::from(first) + step * at as i64;
                (0..count).map(|at| Some(Value::DateTime(each(at)))).collect()
            }),
            (prop::collection::vec(-300i32..300, 1..90), 1u32..5).prop_map(|(parts, digits)| {
                let scale = 10f64.powi(digits as i32);
                parts.into_iter().map(|part| Some(Value::Double(f64::from(part) / scale))).collect()
            }),
        ];
        prop::collection::vec(run, 0..6).prop_map(|runs| runs.concat())
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_to_the_same_values(values in values()) {
            check(&values);
        }
    }

    #[test]
    fn even_times_and_slow_values_take_little() {
        let column = |value: &dyn Fn(i64) -> Value| -> Vec<Option<Value>> {
            (0..1000).map(|at| Some(value(at))).collect()
        };
        let bytes = check(&column(&|at| Value::DateTime(1_700_000_000_000 + 30_000 * at)));
        assert!(bytes < 120, "{bytes}");
        let bytes = check(&column(&|at| Value::Double(20.0 + (at * 37 % 100) as f64 / 10.0)));
        assert!(bytes < 1400, "{bytes}");
        let bytes = check(&column(&|at| Value::String(if at % 64 == 0 { "idle" } else { "running" }.into())));
        assert!(bytes < 700, "{bytes}");
        assert!(check(&column(&|_| Value::Int32(7))) < 100);
    }

    #[test]
    fn numbers_that_are_out_of_order_are_not_encoded() {
        for column in [crate::doc! {"1": 5, "0": 5}, crate::doc! {"x": 5}, crate::doc! {"3": 5}] {
            assert_eq!(encode_column(column.as_raw(), 3), None);
        }
    }
}
