//! `encrypt` and `encryptMetadata`: what client-side encryption leaves in a schema.
//!
//! The server holds no key. It sees to it that a value is binary data of the encrypted kind, and that the type it
//! was encrypted from, which is written in its head, is one of those asked for.

use kilim_bson::{ElementType, RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::super::TypeSet;
use super::keywords::parse_types;

/// The binary subtype of encrypted values.
const SUBTYPE: u8 = 6;
/// Kind, key and original type stand before the cipher text.
const TYPE_AT: usize = 17;

#[derive(Debug, Clone)]
pub(super) struct Encrypted {
    types: Option<TypeSet>,
}

impl Encrypted {
    pub(super) fn parse(value: RawValue<'_>) -> Result<Encrypted> {
        let document = object("encrypt", value)?;
        let mut types = None;
        for (name, value) in document.iter() {
            match name {
                "algorithm" => check_algorithm("encrypt", value)?,
                "keyId" => check_key(value)?,
                "bsonType" => {
                    let empty = value.as_array().is_some_and(RawArray::is_empty);
                    types = if empty { None } else { Some(parse_types(name, value)?) };
                }
                _ => return Err(unknown("encrypt", name)),
            }
        }
        Ok(Encrypted { types })
    }

    pub(super) fn matches(&self, value: RawValue<'_>) -> bool {
        let RawValue::Binary { subtype: SUBTYPE, bytes } = value else { return false };
        let Some(types) = self.types else { return true };
        // Intent to encrypt (0) tells no type; neither do the kinds of later encryption.
        let kind = bytes.first();
        matches!(kind, Some(1 | 2))
            && bytes
                .get(TYPE_AT)
                .and_then(|&byte| ElementType::from_byte(byte))
                .is_some_and(|of| types.contains(of))
    }

    pub(super) fn is_encrypted(value: RawValue<'_>) -> bool {
        matches!(value, RawValue::Binary { subtype: SUBTYPE, .. })
    }
}

/// Refuses metadata that no client could use; it says nothing of values.
pub(super) fn check_metadata(value: RawValue<'_>) -> Result<()> {
    const NAME: &str = "encryptMetadata";
    let document = object(NAME, value)?;
    if document.is_empty() {
        return Err(Error::user(
            ErrorCode::FailedToParse,
            format!("$jsonSchema keyword '{NAME}' cannot be an empty object "),
        ));
    }
    for (name, value) in document.iter() {
        match name {
            "algorithm" => check_algorithm(NAME, value)?,
            "keyId" => check_key(value)?,
            _ => return Err(unknown(NAME, name)),
        }
    }
    Ok(())
}

fn object<'a>(keyword: &str, value: RawValue<'a>) -> Result<RawDocument<'a>> {
    value.as_document().ok_or_else(|| {
        Error::user(ErrorCode::TypeMismatch, format!("$jsonSchema keyword '{keyword}' must be an object "))
    })
}

fn unknown(keyword: &str, name: &str) -> Error {
    Error::location(40415, format!("BSON field '{keyword}.{name}' is an unknown field."))
}

fn check_algorithm(keyword: &str, value: RawValue<'_>) -> Result<()> {
    match value {
        RawValue::String(
            "AEAD_AES_256_CBC_HMAC_SHA_512-Random" | "AEAD_AES_256_CBC_HMAC_SHA_512-Deterministic",
        ) => Ok(()),
        RawValue::String(other) => Err(Error::user(
            ErrorCode::BadValue,
            format!("Enumeration value '{other}' for field '{keyword}.algorithm' is not a valid value."),
        )),
        other => Err(Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{keyword}.algorithm' is the wrong type '{}', expected type 'string'",
                other.element_type().name()
            ),
        )),
    }
}

/// A pointer to a field that names the key, or a list of keys.
fn check_key(value: RawValue<'_>) -> Result<()> {
    match value {
        RawValue::String(pointer) if pointer.starts_with('/') => Ok(()),
        RawValue::String(_) => Err(Error::location(51065, "JSONPointer must start with a '/'")),
        RawValue::Array(keys) => match keys.iter().find(|key| !matches!(key, RawValue::Binary { .. })) {
            None => Ok(()),
            Some(other) => Err(Error::location(
                51088,
                format!(
                    "Encryption schema 'keyId' array elements must have type BinData, found {}",
                    other.element_type().name()
                ),
            )),
        },
        other => Err(Error::location(
            51085,
            format!(
                "Expected either string or array of UUID for EncryptSchemaKeyId, found {}",
                other.element_type().name()
            ),
        )),
    }
}
