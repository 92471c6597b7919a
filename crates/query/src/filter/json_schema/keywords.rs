//! The keywords there are, and what their operands must be, with mongod's words for what they are not.

use kilim_bson::{RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::super::{TypeSet, number};
use super::Count;

/// A schema's keywords, looked up by name: each stands there once.
pub(super) struct Keywords<'a> {
    document: RawDocument<'a>,
}

impl<'a> Keywords<'a> {
    pub(super) fn of(document: RawDocument<'a>) -> Result<Keywords<'a>> {
        for (position, (name, _)) in document.iter().enumerate() {
            if !KNOWN.contains(&name) {
                return Err(failed(match UNSUPPORTED.contains(&name) {
                    true => format!("$jsonSchema keyword '{name}' is not currently supported"),
                    false => format!("Unknown $jsonSchema keyword: {name}"),
                }));
            }
            if document.iter().take(position).any(|(before, _)| before == name) {
                return Err(failed(format!("Duplicate $jsonSchema keyword: {name}")));
            }
        }
        Ok(Keywords { document })
    }

    pub(super) fn get(&self, name: &str) -> Option<RawValue<'a>> {
        self.document.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::String(text)) => Ok(Some(text)),
            Some(_) => Err(mismatch(format!("$jsonSchema keyword '{name}' must be of type string"))),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<RawValue<'a>>> {
        match self.get(name) {
            Some(value) if !value.is_number() => {
                Err(mismatch(format!("$jsonSchema keyword '{name}' must be a number")))
            }
            found => Ok(found),
        }
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::Bool(truth)) => Ok(Some(truth)),
            Some(_) => Err(mismatch(format!("$jsonSchema keyword '{name}' must be a boolean"))),
        }
    }

    /// A length or a count.
    pub(super) fn count(&self, name: &str) -> Result<Option<i64>> {
        self.get(name).map(|value| number::parse_non_negative_i64(name, value).map_err(failed)).transpose()
    }

    /// The same, with the number as it was written.
    pub(super) fn bound(&self, name: &str) -> Result<Option<Count>> {
        let number = self.count(name)?;
        Ok(number.zip(self.get(name)).map(|(number, written)| Count { number, written: written.to_value() }))
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<RawDocument<'a>>> {
        self.get(name)
            .map(|value| {
                value
                    .as_document()
                    .ok_or_else(|| mismatch(format!("$jsonSchema keyword '{name}' must be an object")))
            })
            .transpose()
    }

    /// An array that must have elements, of `enum` and `required`.
    pub(super) fn list(&self, name: &str) -> Result<Option<RawArray<'a>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| {
            mismatch(format!(
                "$jsonSchema keyword '{name}' must be an array, but found an element of type {}",
                value.element_type().name()
            ))
        })?;
        if list.is_empty() {
            return Err(failed(format!("$jsonSchema keyword '{name}' cannot be an empty array")));
        }
        Ok(Some(list))
    }
}

const KNOWN: [&str; 31] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "bsonType",
    "dependencies",
    "description",
    "encrypt",
    "encryptMetadata",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Keywords of the standard that mongod knows and refuses.
const UNSUPPORTED: [&str; 6] = ["$ref", "$schema", "default", "definitions", "format", "id"];

/// `bsonType`: one alias or several.
pub(super) fn parse_types(keyword: &str, value: RawValue<'_>) -> Result<TypeSet> {
    parse_type_names(keyword, value, |name| match name {
        "integer" => Err(failed(NO_INTEGER)),
        _ => Ok(name),
    })
}

const NO_INTEGER: &str = "$jsonSchema type 'integer' is not currently supported.";

/// `type`: the names of JSON's types.
pub(super) fn parse_json_types(value: RawValue<'_>) -> Result<TypeSet> {
    parse_type_names("type", value, |name| match name {
        "array" | "object" | "number" | "string" | "null" => Ok(name),
        "boolean" => Ok("bool"),
        "integer" => Err(failed(NO_INTEGER)),
        _ => Err(Error::user(ErrorCode::BadValue, format!("Unknown type name alias: {name}"))),
    })
}

fn parse_type_names(
    keyword: &str,
    value: RawValue<'_>,
    alias: impl Fn(&str) -> Result<&str>,
) -> Result<TypeSet> {
    let mut set = TypeSet::default();
    match value {
        RawValue::String(name) => set.add_alias(alias(name)?)?,
        RawValue::Array(names) => {
            for (position, name) in names.iter().enumerate() {
                let RawValue::String(name) = name else {
                    return Err(mismatch(format!(
                        "$jsonSchema keyword '{keyword}' array elements must be strings"
                    )));
                };
                if names.iter().take(position).any(|before| before.as_str() == Some(name)) {
                    return Err(failed(format!(
                        "$jsonSchema keyword '{keyword}' has duplicate value: {name}"
                    )));
                }
                set.add_alias(alias(name)?)?;
            }
        }
        _ => {
            return Err(mismatch(format!(
                "$jsonSchema keyword '{keyword}' must be either a string or an array of strings"
            )));
        }
    }
    if set.is_empty() {
        return Err(failed(format!("$jsonSchema keyword '{keyword}' must name at least one type")));
    }
    Ok(set)
}

pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::FailedToParse, message)
}

pub(super) fn mismatch(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::TypeMismatch, message)
}
