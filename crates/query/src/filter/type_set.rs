//! `$type`: a set of BSON types, given by number or by alias.

use kilim_bson::{ElementType, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::number;

/// The types a `$type` accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeSet {
    /// One bit a type, see [`bit`].
    bits: u32,
    /// The alias `"number"` was used, which explain prints as such.
    number: bool,
}

const ALL: [ElementType; 21] = [
    ElementType::MinKey,
    ElementType::Double,
    ElementType::String,
    ElementType::Document,
    ElementType::Array,
    ElementType::Binary,
    ElementType::Undefined,
    ElementType::ObjectId,
    ElementType::Bool,
    ElementType::DateTime,
    ElementType::Null,
    ElementType::Regex,
    ElementType::DbPointer,
    ElementType::JavaScript,
    ElementType::Symbol,
    ElementType::JavaScriptWithScope,
    ElementType::Int32,
    ElementType::Timestamp,
    ElementType::Int64,
    ElementType::Decimal128,
    ElementType::MaxKey,
];

const NUMBERS: [ElementType; 4] =
    [ElementType::Double, ElementType::Int32, ElementType::Int64, ElementType::Decimal128];

/// The ordinary type bytes are below 20 and stand for themselves; the two keys take the bits at the top.
fn bit(kind: ElementType) -> u32 {
    match kind {
        ElementType::MaxKey => 1 << 30,
        ElementType::MinKey => 1 << 31,
        kind => 1 << (kind as u8),
    }
}

/// The number by which users know a type: MinKey is -1, though its byte is 255.
fn code(kind: ElementType) -> i32 {
    i32::from(kind as u8 as i8)
}

impl TypeSet {
    /// `"number"`.
    pub fn numbers() -> TypeSet {
        let bits = NUMBERS.into_iter().map(bit).fold(0, |bits, bit| bits | bit);
        TypeSet { bits, number: true }
    }

    pub fn contains(self, kind: ElementType) -> bool {
        self.bits & bit(kind) != 0
    }

    pub fn types(self) -> impl Iterator<Item = ElementType> {
        ALL.into_iter().filter(move |&kind| self.contains(kind))
    }

    /// Whether it was given as `"number"`.
    pub fn is_number(self) -> bool {
        self.number
    }

    /// The type numbers as explain prints them, without those that `"number"` stands for.
    pub(super) fn codes(self) -> impl Iterator<Item = i32> {
        self.types().filter(move |kind| !(self.number && NUMBERS.contains(kind))).map(code)
    }

    /// Parses the operand of `$type` on the field `path`.
    pub(super) fn parse(path: &str, operand: RawValue<'_>) -> Result<TypeSet> {
        let mut set = TypeSet::default();
        match operand {
            RawValue::Array(list) => list.iter().try_for_each(|one| set.add(one))?,
            one => set.add(one)?,
        }
        if set.bits == 0 {
            return Err(Error::user(
                ErrorCode::FailedToParse,
                format!("{path} must match at least one type"),
            ));
        }
        Ok(set)
    }

    /// Whether it has any type of number.
    pub(super) fn has_numbers(self) -> bool {
        NUMBERS.into_iter().any(|kind| self.contains(kind))
    }

    pub(super) fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Adds a type by its alias.
    pub(super) fn add_alias(&mut self, alias: &str) -> Result<()> {
        self.add(RawValue::String(alias))
    }

    fn add(&mut self, operand: RawValue<'_>) -> Result<()> {
        let kind = match operand {
            RawValue::String("number") => {
                self.number = true;
                NUMBERS.into_iter().for_each(|kind| self.bits |= bit(kind));
                return Ok(());
            }
            RawValue::String("missing") => {
                return Err(Error::user(
                    ErrorCode::BadValue,
                    "'missing' is not a legal type name. To query for non-existence of a field, use \
                     {$exists:false}.",
                ));
            }
            RawValue::String(alias) => {
                ALL.into_iter().find(|kind| kind.name() == alias).ok_or_else(|| {
                    Error::user(ErrorCode::BadValue, format!("Unknown type name alias: {alias}"))
                })?
            }
            value if value.is_number() => number_to_type(value)?,
            _ => {
                return Err(Error::user(
                    ErrorCode::TypeMismatch,
                    "type must be represented as a number or a string",
                ));
            }
        };
        self.bits |= bit(kind);
        Ok(())
    }
}

fn number_to_type(value: RawValue<'_>) -> Result<ElementType> {
    let given = number::exact_i64(value);
    if given == Some(0) {
        return Err(Error::user(
            ErrorCode::BadValue,
            "Invalid numerical type code: 0. Instead use {$exists:false}.",
        ));
    }
    ALL.into_iter().find(|&kind| given == Some(i64::from(code(kind)))).ok_or_else(|| {
        Error::user(
            ErrorCode::BadValue,
            format!("Invalid numerical type code: {}", number::short(number::to_f64(value))),
        )
    })
}
