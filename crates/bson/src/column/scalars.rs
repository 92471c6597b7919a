//! Columns that are read where they lie: those of numbers, times and object ids, which are most of what is measured.
//!
//! [`Scalars::of`] looks once at the control bytes and at the form of each block. The numbers are not looked at, because any
//! difference of at most 64 bits gives a value of these types. So reading needs no check, no memory, and no document in between.
//!
//! Invariant: the values are those of `decode_column`, which a test compares.

use super::Reader;
use super::blocks::{Block, Blocks, Numbers};
use super::stream::{double_of, number_of, number_of_double, with_number};
use crate::{ElementType, ObjectId, RawValue, Timestamp};

/// More values are not read so: sixteen times as many as MongoDB puts into a bucket unless it is told otherwise. A few bytes that
/// repeat without end are refused by it before anybody walks them.
const VALUES_MAX: usize = 16 * 1024;

/// The values of a column, missing ones included.
#[derive(Debug, Clone)]
pub struct Scalars<'a> {
    /// How many there are in all.
    count: usize,
    /// The parts to come.
    parts: &'a [u8],
    /// The blocks to come of the part at hand, and what is left of the block at hand.
    words: &'a [u8],
    numbers: Numbers,
    /// The last number of the blocks, which may repeat.
    before: Option<u64>,
    /// The last value that was read whole. Undefined where there was none, which is given to nobody.
    whole: RawValue<'static>,
    /// The last value where it is a double.
    double: f64,
    /// The number of the last value, which differences are added to.
    number: u64,
    /// The difference before, for differences of differences.
    difference: i64,
    scale: Option<f64>,
}

impl<'a> Scalars<'a> {
    /// None where the column is damaged, has values of other types, or has too many.
    pub fn of(column: &'a [u8]) -> Option<Scalars<'a>> {
        let mut reader = Reader { bytes: column };
        let mut count = 0;
        // Before the first value stand blocks of missing ones only.
        let mut leading = Some(Blocks::none());
        while count <= VALUES_MAX {
            match reader.peek()? {
                0 => {
                    let is_whole = reader.bytes.len() == 1;
                    return is_whole
                        .then(|| Scalars { count, ..Scalars::behind(RawValue::Undefined, column) });
                }
                0x80..0xE0 => {
                    let (_, blocks) = reader.blocks().ok()?;
                    count += count_of(blocks)?;
                    if let Some(leading) = &mut leading {
                        leading.extend(blocks);
                        let mut numbers = std::iter::from_fn(|| leading.next());
                        if !numbers.all(|number| number == Ok(None)) {
                            return None;
                        }
                    }
                }
                _ => {
                    scalar(&mut reader)?;
                    count += 1;
                    leading = None;
                }
            }
        }
        None
    }

    /// How many values there are in all, missing ones included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The next value, or that it is missing; none at the end.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's adapters would cost time, and nobody needs them"
    )]
    #[inline]
    pub fn next(&mut self) -> Option<Option<RawValue<'static>>> {
        if self.numbers.left() == 0
            && let Some(whole) = self.go_on()?
        {
            return Some(Some(whole));
        }
        self.before = self.numbers.next_small()?;
        match self.before {
            Some(coded) => Some(Some(self.add(coded))),
            None => Some(None),
        }
    }

    fn behind(whole: RawValue<'static>, parts: &'a [u8]) -> Scalars<'a> {
        Scalars {
            count: 0,
            parts,
            words: &[],
            numbers: Numbers::none(),
            before: Some(0),
            whole,
            double: if let RawValue::Double(value) = whole { value } else { 0.0 },
            number: number_of(whole) as u64,
            difference: 0,
            scale: None,
        }
    }

    /// Begins the next block, or gives the next whole value. None at the end.
    fn go_on(&mut self) -> Option<Option<RawValue<'static>>> {
        if self.words.is_empty() {
            let mut reader = Reader { bytes: self.parts };
            match reader.peek()? {
                0 => return None,
                0x80..0xE0 => {
                    (self.scale, self.words) = reader.blocks().ok()?;
                    self.parts = reader.bytes;
                    if let RawValue::Double(_) = self.whole {
                        self.number = number_of_double(self.double, self.scale);
                    }
                }
                _ => {
                    let value = scalar(&mut reader)?;
                    *self = Scalars { count: self.count, ..Scalars::behind(value, reader.bytes) };
                    return Some(Some(value));
                }
            }
        }
        let (word, rest) = self.words.split_first_chunk::<8>()?;
        self.words = rest;
        self.numbers = match Block::of(*word)? {
            Block::Repeats(count) => Numbers::repeated(self.before, count),
            Block::Numbers(numbers) => numbers,
        };
        Some(None)
    }

    /// Makes the next value by a difference.
    #[inline]
    fn add(&mut self, coded: u64) -> RawValue<'static> {
        let difference = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        if let RawValue::Double(_) = self.whole {
            // One that is repeated may not be exactly what its number says.
            if difference != 0 {
                self.number = self.number.wrapping_add_signed(difference);
                self.double = double_of(self.number, self.scale);
            }
            return RawValue::Double(self.double);
        }
        if let RawValue::Int64(_) = self.whole {
            self.number = self.number.wrapping_add_signed(difference);
            return RawValue::Int64(self.number as i64);
        }
        self.difference = self.difference.wrapping_add(difference);
        self.number = self.number.wrapping_add_signed(self.difference);
        match self.whole {
            RawValue::Timestamp(_) => RawValue::Timestamp(Timestamp::from_bits(self.number)),
            RawValue::ObjectId(id) => RawValue::ObjectId(with_number(id, self.number)),
            _ => RawValue::DateTime(self.number as i64),
        }
    }
}

/// How many numbers blocks have. None where one has an unknown form, or has numbers that are larger than differences of these
/// types can be.
fn count_of(blocks: &[u8]) -> Option<usize> {
    let (words, _) = blocks.as_chunks::<8>();
    words.iter().try_fold(0, |count, word| match Block::of(*word)? {
        Block::Repeats(repeats) => Some(count + repeats as usize),
        Block::Numbers(numbers) => numbers.are_small().then(|| count + numbers.left() as usize),
    })
}

/// A whole value. None where it has another type.
fn scalar(reader: &mut Reader<'_>) -> Option<RawValue<'static>> {
    let [kind, 0] = *reader.take(2).ok()? else { return None };
    let mut eight = || -> Option<[u8; 8]> { reader.take(8).ok()?.try_into().ok() };
    Some(match ElementType::from_byte(kind)? {
        ElementType::Double => RawValue::Double(f64::from_le_bytes(eight()?)),
        ElementType::DateTime => RawValue::DateTime(i64::from_le_bytes(eight()?)),
        ElementType::Int64 => RawValue::Int64(i64::from_le_bytes(eight()?)),
        ElementType::Timestamp => RawValue::Timestamp(Timestamp::from_bits(u64::from_le_bytes(eight()?))),
        ElementType::ObjectId => {
            RawValue::ObjectId(ObjectId::from_bytes(reader.take(12).ok()?.try_into().ok()?))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::column::encode::tests::{of_values, values};
    use crate::column::{decode_column, encode_column};
    use crate::{Document, Value, Writer};

    /// The column as it is read where it lies. Fails unless it has then the values that it is decoded to.
    #[track_caller]
    fn read(column: &[u8]) -> Option<Document> {
        let mut scalars = Scalars::of(column)?;
        let (mut values, mut count) = (Writer::new(), 0);
        while let Some(value) = scalars.next() {
            value.into_iter().for_each(|value| values.append_index(count, value));
            count += 1;
        }
        assert_eq!(count, Scalars::of(column)?.count(), "{column:02x?}");
        assert!(scalars.next().is_none(), "an end is an end");
        let decoded = decode_column(column, 1 << 24).unwrap_or_else(|bad| panic!("{bad}: {column:02x?}"));
        let values = values.finish();
        assert_eq!(values.as_bytes(), decoded.as_bytes(), "{column:02x?}");
        Some(values)
    }

    fn encoded(values: &[Option<Value>]) -> Vec<u8> {
        encode_column(of_values(values).as_raw(), values.len()).expect("numbers are in order")
    }

    fn is_scalar(value: &Value) -> bool {
        use Value::{DateTime, Double, Int64, ObjectId, Timestamp};
        matches!(value, Double(_) | DateTime(_) | Int64(_) | ObjectId(_) | Timestamp(_))
    }

    /// The lowest byte of a block.
    fn form() -> impl Strategy<Value = u64> {
        let is_known = |form: &u8| Block::of([*form, 0, 0, 0, 0, 0, 0, 0]).is_some();
        prop::sample::select((0..=u8::MAX).filter(is_known).map(u64::from).collect::<Vec<u64>>())
    }

    proptest! {
        #[test]
        fn a_column_has_the_values_that_it_is_decoded_to(values in values()) {
            let all = values.iter().flatten().all(is_scalar);
            prop_assert_eq!(read(&encoded(&values)).is_some(), all);
            let scalars: Vec<Option<Value>> =
                values.into_iter().filter(|value| value.as_ref().is_none_or(is_scalar)).collect();
            prop_assert!(read(&encoded(&scalars)).is_some());
        }

        #[test]
        fn a_damaged_column_is_refused_or_has_the_values_that_it_is_decoded_to(
            values in values(),
            flips in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let values: Vec<Option<Value>> =
                values.into_iter().filter(|value| value.as_ref().is_none_or(is_scalar)).collect();
            let column = encoded(&values);
            prop_assert!(read(&column[..cut.index(column.len())]).is_none());
            let mut flipped = column.clone();
            for flip in flips {
                let bit = flip.index(8 * column.len());
                flipped[bit / 8] ^= 1 << (bit % 8);
            }
            read(&flipped);
        }

        #[test]
        fn blocks_of_any_form_have_the_values_that_they_are_decoded_to(
            first in prop::sample::select(vec![1.5, 0.15, -0.0, f64::NAN, 1e300]),
            parts in prop::collection::vec((8u8..14, prop::collection::vec((form(), any::<u64>()), 1..6)), 1..4),
        ) {
            let mut column = vec![ElementType::Double as u8, 0];
            column.extend_from_slice(&first.to_le_bytes());
            for (scale, words) in parts {
                column.push(scale << 4 | (words.len() - 1) as u8);
                words.iter().for_each(|(form, bits)| column.extend((bits << 8 | form).to_le_bytes()));
            }
            column.push(0);
            read(&column);
        }
    }

    #[test]
    fn what_repeats_without_end_is_refused() {
        let column = |parts: usize| {
            let mut column = vec![ElementType::Int64 as u8, 0, 1, 0, 0, 0, 0, 0, 0, 0];
            (0..parts).for_each(|_| column.extend([0x80, 0xFF, 0, 0, 0, 0, 0, 0, 0]));
            column.push(0);
            column
        };
        assert_eq!(Scalars::of(&column(8)).map(|scalars| scalars.count()), Some(1 + 8 * 1920));
        assert!(Scalars::of(&column(9)).is_none());
    }

    #[test]
    fn what_repeats_before_the_first_value_is_refused() {
        // Decoded it is a value of no type.
        assert!(Scalars::of(&[0x80, 0x0F, 0, 0, 0, 0, 0, 0, 0, 0]).is_none());
        let missing: Vec<Option<Value>> = vec![None; 500];
        assert_eq!(read(&encoded(&missing)), Some(Document::new()));
    }
}
