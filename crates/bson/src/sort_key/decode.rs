//! Key bytes back into values, for covered reads.

use kilim_error::{Error, StorageError};

use super::type_bits::{Note, TypeBitsReader};
use super::{END, ESCAPE, lead, number};
use crate::{Array, DEPTH_MAX, Document, ObjectId, Timestamp, Value, Writer};

/// Bytes that the encoder did not write: storage is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptKey;

impl From<CorruptKey> for Error {
    fn from(_: CorruptKey) -> Error {
        Error::Storage(StorageError::Corrupt("an index key does not decode".to_owned()))
    }
}

/// Restores the values of a key, component by component. `directions` says which are descending;
/// bytes behind the last of them are left alone.
pub fn decode_key(
    key: &[u8],
    type_bits: &[u8],
    directions: &[bool],
    out: &mut Vec<Value>,
) -> Result<(), CorruptKey> {
    let mut decoder = KeyDecoder::new(key, type_bits)?;
    for &descending in directions {
        out.push(decoder.next(descending)?);
    }
    Ok(())
}

/// Reads a key front to back.
pub struct KeyDecoder<'a> {
    reader: KeyReader<'a>,
    types: TypeBitsReader<'a>,
    /// Texts are a collator's keys.
    collated: bool,
}

impl<'a> KeyDecoder<'a> {
    pub fn new(key: &'a [u8], type_bits: &'a [u8]) -> Result<KeyDecoder<'a>, CorruptKey> {
        let reader = KeyReader { bytes: key, mask: 0 };
        Ok(KeyDecoder { reader, types: TypeBitsReader::new(type_bits)?, collated: false })
    }

    pub fn next(&mut self, descending: bool) -> Result<Value, CorruptKey> {
        self.next_of(descending, false)
    }

    /// A component that was made with a collator, if it was, does not have its texts: in their place come the
    /// collator's keys, each byte as the character of that number.
    pub fn next_of(&mut self, descending: bool, collated: bool) -> Result<Value, CorruptKey> {
        self.reader.mask = if descending { 0xFF } else { 0 };
        self.collated = collated;
        self.value(0)
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.bytes
    }

    fn value(&mut self, depth: usize) -> Result<Value, CorruptKey> {
        // Encoded values were validated; only damaged bytes nest deeper.
        if depth > DEPTH_MAX {
            return Err(CorruptKey);
        }
        let reader = &mut self.reader;
        Ok(match reader.read_byte()? {
            lead::STRING => {
                let text = if self.collated { reader.read_collated()? } else { reader.read_text()? };
                match self.types.next()? {
                    None => Value::String(text),
                    Some(Note::Symbol) => Value::Symbol(text),
                    Some(_) => return Err(CorruptKey),
                }
            }
            lead::OBJECT_ID => Value::ObjectId(reader.read_object_id()?),
            lead::DATE => Value::DateTime((reader.read_uint(8)? ^ 1 << 63) as i64),
            lead::FALSE => Value::Bool(false),
            lead::TRUE => Value::Bool(true),
            lead::NULL => Value::Null,
            lead::UNDEFINED => Value::Undefined,
            lead::MIN_KEY => Value::MinKey,
            lead::MAX_KEY => Value::MaxKey,
            lead::DOCUMENT => Value::Document(self.fields(depth)?),
            lead::ARRAY => {
                let mut writer = Writer::new();
                let mut index = 0;
                while !self.reader.at_end()? {
                    writer.append_index(index, self.value(depth + 1)?.as_raw());
                    index += 1;
                }
                Value::Array(Array::from_document(writer.finish()))
            }
            lead::BINARY => {
                let stored = reader.read_length()?;
                let subtype = reader.read_byte()?;
                let length = if subtype == 2 { stored.checked_sub(4).ok_or(CorruptKey)? } else { stored };
                Value::Binary { subtype, bytes: reader.read_bytes(length)? }
            }
            lead::TIMESTAMP => Value::Timestamp(Timestamp::from_bits(reader.read_uint(8)?)),
            lead::REGEX => Value::Regex { pattern: reader.read_text()?, options: reader.read_text()? },
            lead::DB_POINTER => {
                let length = reader.read_length()?;
                let namespace = String::from_utf8(reader.read_bytes(length)?).map_err(|_| CorruptKey)?;
                Value::DbPointer { namespace, id: reader.read_object_id()? }
            }
            lead::CODE => Value::JavaScript(reader.read_text()?),
            lead::CODE_WITH_SCOPE => {
                let code = reader.read_text()?;
                // Texts of the scope are as they were.
                let collated = std::mem::take(&mut self.collated);
                let scope = self.fields(depth)?;
                self.collated = collated;
                Value::JavaScriptWithScope { code, scope }
            }
            lead @ (lead::NAN | super::NEGATIVE_LARGE..=lead::LARGE) => {
                let note = self.types.next()?;
                number::decode(&mut self.reader, lead, note)?
            }
            _ => return Err(CorruptKey),
        })
    }

    fn fields(&mut self, depth: usize) -> Result<Document, CorruptKey> {
        let mut writer = Writer::new();
        while !self.reader.at_end()? {
            // The bracket: the value repeats it.
            self.reader.skip(1)?;
            let name = self.reader.read_text()?;
            if name.contains('\0') {
                return Err(CorruptKey);
            }
            writer.append(&name, self.value(depth + 1)?.as_raw());
        }
        Ok(writer.finish())
    }
}

/// The bytes of the first component of a key.
pub fn component_length(key: &[u8], descending: bool) -> Result<usize, CorruptKey> {
    let mut reader = KeyReader { bytes: key, mask: if descending { 0xFF } else { 0 } };
    reader.skip_value()?;
    Ok(key.len() - reader.bytes.len())
}

/// A cursor over key bytes; `mask` undoes the inversion of descending components and negative numbers.
pub(super) struct KeyReader<'a> {
    bytes: &'a [u8],
    pub(super) mask: u8,
}

impl KeyReader<'_> {
    fn read_byte(&mut self) -> Result<u8, CorruptKey> {
        let (&first, rest) = self.bytes.split_first().ok_or(CorruptKey)?;
        self.bytes = rest;
        Ok(first ^ self.mask)
    }

    /// Consumes an end byte if one is next.
    fn at_end(&mut self) -> Result<bool, CorruptKey> {
        let &first = self.bytes.first().ok_or(CorruptKey)?;
        let end = first ^ self.mask == END;
        if end {
            self.bytes = &self.bytes[1..];
        }
        Ok(end)
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<(), CorruptKey> {
        self.bytes = self.bytes.get(count..).ok_or(CorruptKey)?;
        Ok(())
    }

    /// A big-endian number of up to eight bytes.
    pub(super) fn read_uint(&mut self, count: usize) -> Result<u64, CorruptKey> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(CorruptKey)?;
        self.bytes = rest;
        Ok(taken.iter().fold(0, |number, byte| number << 8 | u64::from(byte ^ self.mask)))
    }

    fn read_bytes(&mut self, count: usize) -> Result<Vec<u8>, CorruptKey> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(CorruptKey)?;
        self.bytes = rest;
        Ok(taken.iter().map(|byte| byte ^ self.mask).collect())
    }

    fn read_object_id(&mut self) -> Result<ObjectId, CorruptKey> {
        let bytes = self.read_bytes(12)?;
        Ok(ObjectId::from_bytes(bytes.try_into().expect("twelve were read")))
    }

    fn read_length(&mut self) -> Result<usize, CorruptKey> {
        match self.read_byte()? {
            0xFF => Ok(self.read_uint(4)? as usize),
            short => Ok(short.into()),
        }
    }

    fn read_text(&mut self) -> Result<String, CorruptKey> {
        String::from_utf8(self.read_escaped()?).map_err(|_| CorruptKey)
    }

    fn read_collated(&mut self) -> Result<String, CorruptKey> {
        Ok(self.read_escaped()?.into_iter().map(char::from).collect())
    }

    fn read_escaped(&mut self) -> Result<Vec<u8>, CorruptKey> {
        let end = memchr::memchr(END ^ self.mask, self.bytes).ok_or(CorruptKey)?;
        let mut text = self.read_bytes(end)?;
        self.skip(1)?;
        if text.contains(&ESCAPE) {
            let mut escaped = text.into_iter();
            text = Vec::with_capacity(end);
            while let Some(byte) = escaped.next() {
                text.push(match byte {
                    ESCAPE => escaped.next().and_then(|next| next.checked_sub(1)).ok_or(CorruptKey)?,
                    byte => byte,
                });
            }
        }
        Ok(text)
    }

    fn skip_text(&mut self) -> Result<(), CorruptKey> {
        let end = memchr::memchr(END ^ self.mask, self.bytes).ok_or(CorruptKey)?;
        self.skip(end + 1)
    }

    /// Goes past one value without building it. Open containers wait on a stack: `true` for those
    /// whose values have names.
    fn skip_value(&mut self) -> Result<(), CorruptKey> {
        let mut open: Vec<bool> = Vec::new();
        loop {
            match self.read_byte()? {
                lead::STRING | lead::CODE => self.skip_text()?,
                lead::OBJECT_ID => self.skip(12)?,
                lead::DATE | lead::TIMESTAMP => self.skip(8)?,
                lead::FALSE | lead::TRUE | lead::NULL | lead::UNDEFINED | lead::MIN_KEY | lead::MAX_KEY => {}
                lead::DOCUMENT => open.push(true),
                lead::ARRAY => open.push(false),
                lead::BINARY => {
                    let stored = self.read_length()?;
                    let old = self.read_byte()? == 2;
                    self.skip(if old { stored.checked_sub(4).ok_or(CorruptKey)? } else { stored })?;
                }
                lead::REGEX => {
                    self.skip_text()?;
                    self.skip_text()?;
                }
                lead::DB_POINTER => {
                    let length = self.read_length()?;
                    self.skip(length + 12)?;
                }
                lead::CODE_WITH_SCOPE => {
                    self.skip_text()?;
                    open.push(true);
                }
                lead @ (lead::NAN | super::NEGATIVE_LARGE..=lead::LARGE) => number::skip(self, lead)?,
                _ => return Err(CorruptKey),
            }
            while let Some(&named) = open.last() {
                if self.at_end()? {
                    open.pop();
                    continue;
                }
                if named {
                    self.skip(1)?;
                    self.skip_text()?;
                }
                break;
            }
            if open.is_empty() {
                return Ok(());
            }
        }
    }
}
