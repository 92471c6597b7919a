//! The type to convert to: a name, or a number as BSON has for it.

use kilim_bson::{ElementType, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::Evaluated;
use crate::expression::arithmetic::Number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Double,
    String,
    ObjectId,
    Bool,
    Date,
    Int,
    Long,
    Decimal,
    /// A type that nothing converts to, by its name.
    Other(&'static str),
}

/// mongod knows a name for no value at all, too.
const MISSING: &str = "missing";

impl Target {
    /// None for null.
    pub fn parse(to: &Evaluated<'_>) -> Result<Option<Target>> {
        let failed = |message: String| Error::user(ErrorCode::FailedToParse, message);
        if to.is_nullish() {
            return Ok(None);
        }
        if let Some(name) = to.as_str().filter(|_| matches!(to.raw(), Some(RawValue::String(_)))) {
            return Target::named(name).map(Some);
        }
        let Some(number) = Number::of_evaluated(to) else {
            let message =
                format!("$convert's 'to' argument must be a string or number, but is {}", to.type_name());
            return Err(failed(message));
        };
        let code = match number {
            Number::Int(value) => Some(value),
            Number::Long(value) => i32::try_from(value).ok(),
            Number::Double(value) => (f64::from(value as i32) == value).then_some(value as i32),
            Number::Decimal(value) => value.to_i64_exact().and_then(|value| i32::try_from(value).ok()),
        };
        let Some(code) = code else {
            return Err(failed("In $convert, numeric 'to' argument is not an integer".to_owned()));
        };
        let element = match code {
            0 => return Ok(Some(Target::Other(MISSING))),
            -1 => Some(ElementType::MinKey),
            255 => None,
            _ => u8::try_from(code).ok().and_then(ElementType::from_byte),
        };
        element.map(|element| Some(Target::of(element))).ok_or_else(|| {
            failed(format!("In $convert, numeric value for 'to' does not correspond to a BSON type: {code}"))
        })
    }

    fn named(name: &str) -> Result<Target> {
        if name == MISSING {
            return Ok(Target::Other(MISSING));
        }
        (0..=u8::MAX)
            .filter_map(ElementType::from_byte)
            .find(|element| element.name() == name)
            .map(Target::of)
            .ok_or_else(|| Error::user(ErrorCode::BadValue, format!("Unknown type name: {name}")))
    }

    fn of(element: ElementType) -> Target {
        match element {
            ElementType::Double => Target::Double,
            ElementType::String => Target::String,
            ElementType::ObjectId => Target::ObjectId,
            ElementType::Bool => Target::Bool,
            ElementType::DateTime => Target::Date,
            ElementType::Int32 => Target::Int,
            ElementType::Int64 => Target::Long,
            ElementType::Decimal128 => Target::Decimal,
            other => Target::Other(other.name()),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Target::Double => "double",
            Target::String => "string",
            Target::ObjectId => "objectId",
            Target::Bool => "bool",
            Target::Date => "date",
            Target::Int => "int",
            Target::Long => "long",
            Target::Decimal => "decimal",
            Target::Other(name) => name,
        }
    }
}
