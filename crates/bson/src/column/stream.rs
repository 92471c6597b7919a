//! The values of one field: a whole value, then differences to the one before.
//!
//! Differences are signed and lie in a block with the sign in the lowest bit. For times and object ids they are differences
//! of differences, since these mostly grow evenly. Texts and binaries of up to 16 bytes are numbers of 128 bits. Values
//! without such a number can only be repeated, by a difference of zero.

use super::blocks::Blocks;
use super::{BadColumn, Control};
use crate::{Decimal128, ObjectId, RawValue, Timestamp, Value};

/// The longest text or binary that has differences.
pub(super) const BYTES_MAX: usize = 16;

pub(super) struct Stream<'a> {
    value: Value,
    /// The value was read whole, and is still to be given.
    is_new: bool,
    /// The number that differences are added to.
    number: u128,
    /// The difference before, for differences of differences.
    difference: i64,
    scale: Option<f64>,
    blocks: Blocks<'a>,
}

impl<'a> Stream<'a> {
    /// Behind a value, which is not given itself.
    pub fn new(value: Value) -> Stream<'a> {
        let number = number_of(value.as_raw());
        Stream { value, is_new: false, number, difference: 0, scale: None, blocks: Blocks::none() }
    }

    /// Goes on with the next part.
    pub fn take(&mut self, control: Control<'a>) -> Result<(), BadColumn> {
        match control {
            Control::Value(value) => {
                *self = Stream { is_new: true, ..Stream::new(value) };
                Ok(())
            }
            Control::Blocks { scale, blocks } => {
                self.blocks.extend(blocks);
                self.scale = scale;
                if let Value::Double(value) = self.value {
                    self.number = number_of_double(value, scale).into();
                }
                Ok(())
            }
            Control::End => Err(BadColumn("it ends within documents")),
            Control::Interleaved { .. } => Err(BadColumn("mixed documents are within others")),
        }
    }

    pub fn is_at_end(&self) -> bool {
        !self.is_new && self.blocks.is_at_end()
    }

    /// The next value, or that there is none for the next document; none at the end of the part.
    pub fn next(&mut self) -> Result<Option<Option<&Value>>, BadColumn> {
        if std::mem::take(&mut self.is_new) {
            return Ok(Some(Some(&self.value)));
        }
        let Some(number) = self.blocks.next() else { return Ok(None) };
        match number.map_err(|()| BadColumn("a block has an unknown form"))? {
            None => Ok(Some(None)),
            Some(coded) => {
                self.add(coded).ok_or(BadColumn("a difference gives no value"))?;
                Ok(Some(Some(&self.value)))
            }
        }
    }

    /// Makes the next value by a difference. None where there is no such value.
    fn add(&mut self, coded: u128) -> Option<()> {
        let difference = (coded >> 1) as i128 ^ -((coded & 1) as i128);
        if let Value::DateTime(_) | Value::Timestamp(_) | Value::ObjectId(_) = self.value {
            self.difference = self.difference.wrapping_add(difference as i64);
            self.number = self.number.wrapping_add_signed(self.difference.into());
        } else {
            if difference == 0 {
                return Some(());
            }
            self.number = self.number.wrapping_add_signed(difference);
        }
        let (number, low) = (self.number, self.number as i64);
        match &mut self.value {
            Value::Int32(value) => *value = i32::try_from(low).ok()?,
            Value::Int64(value) | Value::DateTime(value) => *value = low,
            Value::Timestamp(value) => *value = Timestamp::from_bits(low as u64),
            Value::Bool(value) => {
                *value = match low {
                    0 => false,
                    1 => true,
                    _ => return None,
                }
            }
            Value::Double(value) => *value = double_of(low as u64, self.scale),
            Value::ObjectId(value) => *value = with_number(*value, low as u64),
            Value::Decimal128(value) => *value = Decimal128::from_bytes(number.to_le_bytes()),
            Value::String(text) | Value::JavaScript(text) => {
                let bytes = number.to_be_bytes();
                let begin = bytes.iter().position(|byte| *byte != 0).unwrap_or(BYTES_MAX);
                *text = std::str::from_utf8(&bytes[begin..]).ok()?.to_owned();
            }
            Value::Binary { bytes, .. } => {
                let count = bytes.len();
                bytes.copy_from_slice(number.to_le_bytes().get(..count)?);
            }
            _ => return None,
        }
        Some(())
    }
}

/// The number that stands for a value; zero for those that can only be repeated. That of a double depends on the scale.
pub(super) fn number_of(value: RawValue<'_>) -> u128 {
    let padded = |bytes: &[u8]| {
        let mut padded = [0; BYTES_MAX];
        padded
            .get_mut(..bytes.len())
            .map(|begin| begin.copy_from_slice(bytes))
            .map_or([0; BYTES_MAX], |()| padded)
    };
    match value {
        RawValue::Int32(value) => value as u128,
        RawValue::Int64(value) | RawValue::DateTime(value) => value as u128,
        RawValue::Timestamp(value) => u128::from(value.to_bits()),
        RawValue::Bool(value) => u128::from(value),
        RawValue::ObjectId(id) => {
            let id = id.to_bytes();
            let bytes = ID_BYTES.map(|at| id[at]);
            u128::from_le_bytes(padded(&bytes))
        }
        RawValue::Decimal128(value) => u128::from_le_bytes(value.to_bytes()),
        // Texts with a common beginning are close to each other: the first byte counts most.
        RawValue::String(text) | RawValue::JavaScript(text) if text.len() <= BYTES_MAX => {
            text.bytes().fold(0, |number, byte| number << 8 | u128::from(byte))
        }
        RawValue::Binary { bytes, .. } => u128::from_le_bytes(padded(bytes)),
        _ => 0,
    }
}

/// The number that stands for a double: that of its bits, or the nearest to it times a scale.
pub(super) fn number_of_double(value: f64, scale: Option<f64>) -> u64 {
    match scale {
        Some(scale) => (value * scale).round() as i64 as u64,
        None => value.to_bits(),
    }
}

#[inline]
pub(super) fn double_of(number: u64, scale: Option<f64>) -> f64 {
    match scale {
        Some(scale) => number as i64 as f64 / scale,
        None => f64::from_bits(number),
    }
}

/// The bytes of an object id that change from one to the next, its time and its counter, from the one that counts least.
pub(super) const ID_BYTES: [usize; 7] = [11, 3, 10, 2, 9, 1, 0];

pub(super) fn with_number(id: ObjectId, number: u64) -> ObjectId {
    let mut bytes = id.to_bytes();
    for (at, byte) in ID_BYTES.into_iter().zip(number.to_le_bytes()) {
        bytes[at] = byte;
    }
    ObjectId::from_bytes(bytes)
}
