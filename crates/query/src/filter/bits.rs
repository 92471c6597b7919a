//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.
//!
//! A number is its two's complement, so positions beyond 63 read the sign; binary data is
//! little-endian, and positions beyond its end read zero.

use kilim_bson::{RawValue, Rounding};
use kilim_error::{Error, ErrorCode, Result};

use super::number;

/// The subtype of binary data whose bytes begin with their length.
const OLD_BINARY: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BitTestKind {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}

#[derive(Debug, Clone)]
pub struct BitTest {
    kind: BitTestKind,
    positions: Vec<u32>,
    /// The positions below 64 as one word, with those above folded onto the sign.
    mask: u64,
}

impl BitTestKind {
    pub fn operator(self) -> &'static str {
        match self {
            BitTestKind::AllSet => "$bitsAllSet",
            BitTestKind::AllClear => "$bitsAllClear",
            BitTestKind::AnySet => "$bitsAnySet",
            BitTestKind::AnyClear => "$bitsAnyClear",
        }
    }
}

impl BitTest {
    pub fn kind(&self) -> BitTestKind {
        self.kind
    }

    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    pub(super) fn parse(kind: BitTestKind, path: &str, operand: RawValue<'_>) -> Result<BitTest> {
        let operator = kind.operator();
        let positions = match operand {
            RawValue::Array(list) => list
                .as_document()
                .iter()
                .map(|(name, value)| {
                    number::parse_non_negative_i32(name, value).map(|position| position as u32).map_err(
                        |text| {
                            Error::user(ErrorCode::BadValue, format!("Failed to parse bit position. {text}"))
                        },
                    )
                })
                .collect::<Result<Vec<u32>>>()?,
            RawValue::Binary { bytes, .. } => (0..bytes.len() as u32 * 8)
                .filter(|&at| bytes[at as usize / 8] >> (at % 8) & 1 == 1)
                .collect(),
            value if value.is_number() => {
                let mask = number::parse_non_negative_i64(operator, value)
                    .map_err(|text| Error::user(ErrorCode::FailedToParse, text))?;
                (0..64).filter(|at| mask >> at & 1 == 1).collect()
            }
            value => {
                return Err(Error::user(
                    ErrorCode::BadValue,
                    format!(
                        "{path} takes an Array, a number, or a BinData but received: {operator}: {}",
                        number::display(value)
                    ),
                ));
            }
        };
        let mask = positions.iter().fold(0, |mask, &at| mask | 1u64 << at.min(63));
        Ok(BitTest { kind, positions, mask })
    }

    pub fn matches(&self, value: RawValue<'_>) -> bool {
        match value {
            RawValue::Binary { subtype, bytes } => {
                let length = (bytes.len() as u32).to_le_bytes();
                // The oldest kind of binary data begins with its length, and positions count from there.
                let prefix: &[u8] = if subtype == OLD_BINARY { &length } else { &[] };
                let byte = |at: usize| match at.checked_sub(prefix.len()) {
                    Some(at) => bytes.get(at).copied(),
                    None => Some(prefix[at]),
                };
                let set = |&at: &u32| byte(at as usize / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
                match self.kind {
                    BitTestKind::AllSet => self.positions.iter().all(set),
                    BitTestKind::AllClear => !self.positions.iter().any(set),
                    BitTestKind::AnySet => self.positions.iter().any(set),
                    BitTestKind::AnyClear => !self.positions.iter().all(set),
                }
            }
            // A decimal is rounded, and what exceeds 64 bits is the smallest integer.
            RawValue::Decimal128(decimal) => {
                let whole = decimal.round_to_whole(Rounding::HalfEven).to_i64();
                self.matches_word(whole.unwrap_or(i64::MIN) as u64)
            }
            value => number::exact_i64(value).is_some_and(|number| self.matches_word(number as u64)),
        }
    }

    fn matches_word(&self, word: u64) -> bool {
        let set = word & self.mask;
        match self.kind {
            BitTestKind::AllSet => set == self.mask,
            BitTestKind::AllClear => set == 0,
            BitTestKind::AnySet => set != 0,
            BitTestKind::AnyClear => set != self.mask,
        }
    }
}
