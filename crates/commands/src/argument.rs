//! One field of a command, read with the type it must have.

use kilim_bson::{RawArray, RawDocument, RawValue, Rounding};
use kilim_error::{Error, ErrorCode, Result};

use crate::request::is_generic;

#[derive(Clone, Copy)]
pub struct Argument<'a> {
    /// As error messages name the command.
    pub command: &'static str,
    pub name: &'a str,
    pub value: RawValue<'a>,
}

/// A command's own fields: all but its name and what every command may carry. A null means absent.
pub fn arguments<'a>(command: &'static str, body: RawDocument<'a>) -> impl Iterator<Item = Argument<'a>> {
    body.iter()
        .skip(1)
        .filter(|(name, value)| !is_generic(name) && !matches!(value, RawValue::Null | RawValue::Undefined))
        .map(move |(name, value)| Argument { command, name, value })
}

/// Options that are not absent when they are null.
pub fn check_not_null(
    command: &'static str,
    body: RawDocument<'_>,
    names: &[&str],
    expected: &str,
) -> Result<()> {
    // Hardly any command has one, and one look at all fields tells.
    if !body.iter().any(|(name, value)| matches!(value, RawValue::Null) && names.contains(&name)) {
        return Ok(());
    }
    for &name in names {
        if let Some(value @ RawValue::Null) = body.get(name) {
            return Err(Argument { command, name, value }.wrong_type(expected));
        }
    }
    Ok(())
}

/// A number of any type.
pub fn as_double(value: RawValue<'_>) -> Option<f64> {
    Argument { command: "", name: "", value }.double().ok()
}

/// The fields of a document nested in a command, such as one of `updates`. Here too null means absent.
pub fn nested<'a>(command: &'static str, document: RawDocument<'a>) -> impl Iterator<Item = Argument<'a>> {
    document
        .iter()
        .filter(|(_, value)| !matches!(value, RawValue::Null | RawValue::Undefined))
        .map(move |(name, value)| Argument { command, name, value })
}

impl<'a> Argument<'a> {
    pub fn unknown(&self) -> Error {
        Error::location(40415, format!("BSON field '{}.{}' is an unknown field.", self.command, self.name))
    }

    /// An option that MongoDB has and Kilim has not.
    pub fn unsupported(&self) -> Error {
        Error::user(
            ErrorCode::NotImplemented,
            format!("{}: option '{}' is not supported by Kilim", self.command, self.name),
        )
    }

    /// Refuses the option unless it is off.
    pub fn only_off(&self) -> Result<()> {
        match self.boolean()? {
            false => Ok(()),
            true => Err(self.unsupported()),
        }
    }

    pub fn wrong_type(&self, expected: &str) -> Error {
        Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.{}' is the wrong type '{}', expected {expected}",
                self.command,
                self.name,
                self.value.element_type().name()
            ),
        )
    }

    pub fn document(&self) -> Result<RawDocument<'a>> {
        self.value.as_document().ok_or_else(|| self.wrong_type("type 'object'"))
    }

    pub fn array(&self) -> Result<RawArray<'a>> {
        self.value.as_array().ok_or_else(|| self.wrong_type("type 'array'"))
    }

    pub fn string(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.wrong_type("type 'string'"))
    }

    /// A truth value; numbers count as in JavaScript.
    pub fn boolean(&self) -> Result<bool> {
        match self.value {
            RawValue::Bool(value) => Ok(value),
            RawValue::Int32(value) => Ok(value != 0),
            RawValue::Int64(value) => Ok(value != 0),
            RawValue::Double(value) => Ok(value != 0.0),
            RawValue::Decimal128(value) => Ok(!value.is_zero()),
            _ => Err(self.wrong_type("types '[bool, long, int, decimal, double']")),
        }
    }

    /// The id of a collection.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let RawValue::Binary { subtype, bytes } = self.value else {
            return Err(self.wrong_type("type 'binData'"));
        };
        if subtype != 4 {
            let message = format!(
                "BSON field '{}.{}' is binary data of subtype {subtype}, expected type 'UUID'",
                self.command, self.name
            );
            return Err(Error::user(ErrorCode::TypeMismatch, message));
        }
        bytes.try_into().map_err(|_| {
            let message = "uuid must be a 16-byte binary field with UUID (4) subtype";
            Error::user(ErrorCode::InvalidUUID, message)
        })
    }

    /// A truth value that must be one.
    pub fn strict_boolean(&self) -> Result<bool> {
        match self.value {
            RawValue::Bool(value) => Ok(value),
            _ => Err(self.wrong_type("type 'bool'")),
        }
    }

    /// A whole number of any numeric type. Fractions of doubles are cut off, those of decimals are rounded half to even.
    pub fn integer(&self) -> Result<i64> {
        match self.value {
            RawValue::Int32(value) => Ok(i64::from(value)),
            RawValue::Int64(value) => Ok(value),
            RawValue::Double(value) if value.is_nan() => Ok(0),
            RawValue::Double(value) => Ok(value as i64),
            RawValue::Decimal128(value) => {
                let whole = value.round_to_whole(Rounding::HalfEven).to_i64();
                // What fits no integer counts as the nearest.
                Ok(whole.unwrap_or_else(|| value.to_f64() as i64))
            }
            _ => Err(self.wrong_type("types '[long, int, decimal, double']")),
        }
    }

    /// A number of any type, with its fraction.
    pub fn double(&self) -> Result<f64> {
        match self.value {
            RawValue::Double(value) => Ok(value),
            RawValue::Decimal128(value) => Ok(value.to_f64()),
            _ => self.integer().map(|value| value as f64),
        }
    }

    pub fn not_negative(&self) -> Result<u64> {
        let value = self.integer()?;
        u64::try_from(value).map_err(|_| {
            Error::location(
                51024,
                format!("BSON field '{}' value must be >= 0, actual value '{value}'", self.name),
            )
        })
    }
}
