//! Columns: the values of one field over many documents, as MongoDB compresses them into a binary of subtype 7.
//!
//! A column is a row of parts, each begun by a control byte, up to a zero byte:
//!
//! | Control | What follows |
//! | --- | --- |
//! | below 0x20, 0x7F, 0xFF | a value: the byte is its type, an empty name and its bytes follow |
//! | 0x80 to 0xDF | blocks of eight bytes, one more than the low four bits say: differences to the value before (`blocks`) |
//! | 0xF0, 0xF1, 0xF2 | a document that has every field of the documents that follow, then a column for each of its fields, whose parts are mixed: each is read when its field needs one. 0xF0 takes an array for one value; the documents of 0xF2 are arrays |
//!
//! What a difference means depends on the type of the value before (`stream`).
//!
//! The bytes come from anywhere, so everything is checked and what comes out is bounded.

mod blocks;
mod encode;
mod scalars;
mod stream;

use std::fmt;

pub use self::encode::encode_column;
pub use self::scalars::Scalars;
use self::stream::Stream;
use crate::{Document, ElementType, RawDocument, RawValue, Value, Writer};

/// The subtype of binaries that are columns.
pub const COLUMN_SUBTYPE: u8 = 7;

/// Why bytes are no column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadColumn(&'static str);

impl fmt::Display for BadColumn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "not a compressed column: {}", self.0)
    }
}

impl std::error::Error for BadColumn {}

/// The values of a column, each under its number. A document that has no value has no field of its number. `bytes_max`
/// bounds the result, which may be far larger than the column.
pub fn decode_column(column: &[u8], bytes_max: usize) -> Result<Document, BadColumn> {
    let mut reader = Reader { bytes: column };
    let mut out = Values { writer: Writer::new(), next: 0, bytes_max };
    let mut stream = Stream::new(Value::Undefined);
    loop {
        match reader.control()? {
            Control::End => {
                return match reader.bytes.is_empty() {
                    true => Ok(out.writer.finish()),
                    false => Err(BadColumn("something follows its end")),
                };
            }
            Control::Interleaved { is_array, whole_arrays, reference } => {
                let last = interleaved(&mut reader, is_array, whole_arrays, reference, &mut out)?;
                if let Some(last) = last {
                    stream = Stream::new(last);
                }
            }
            control => {
                stream.take(control)?;
                while let Some(value) = stream.next()? {
                    out.push(value)?;
                }
            }
        }
    }
}

/// What the decoder gives.
struct Values {
    writer: Writer,
    next: usize,
    bytes_max: usize,
}

impl Values {
    fn push(&mut self, value: Option<&Value>) -> Result<(), BadColumn> {
        if let Some(value) = value {
            self.writer.append_index(self.next, value.as_raw());
        }
        self.next += 1;
        // A missing value costs nothing but its number, which is bounded all the same.
        match self.writer.len() > self.bytes_max || self.next > self.bytes_max {
            true => Err(TOO_LARGE),
            false => Ok(()),
        }
    }
}

/// What a control byte begins.
enum Control<'a> {
    End,
    Value(Value),
    /// Blocks of differences. Differences of doubles are those of the numbers times a scale, or of their bits.
    Blocks {
        scale: Option<f64>,
        blocks: &'a [u8],
    },
    Interleaved {
        is_array: bool,
        whole_arrays: bool,
        reference: RawDocument<'a>,
    },
}

struct Reader<'a> {
    bytes: &'a [u8],
}

const CUT_OFF: BadColumn = BadColumn("it is cut off");
const TOO_LARGE: BadColumn = BadColumn("its values are too large");
const UNKNOWN: BadColumn = BadColumn("a control byte is unknown");

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], BadColumn> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(CUT_OFF)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn control(&mut self) -> Result<Control<'a>, BadColumn> {
        let control = self.peek().ok_or(CUT_OFF)?;
        Ok(match control {
            0 => {
                self.take(1)?;
                Control::End
            }
            1..0x20 | 0x7F | 0xFF => Control::Value(self.value()?),
            0x80..0xE0 => {
                let (scale, blocks) = self.blocks()?;
                Control::Blocks { scale, blocks }
            }
            0xF0..=0xF2 => {
                self.take(1)?;
                let malformed = |_| BadColumn("a reference document is malformed");
                let (reference, rest) = RawDocument::parse_prefix(self.bytes).map_err(malformed)?;
                self.bytes = rest;
                let (is_array, whole_arrays) = (control == 0xF2, control == 0xF0);
                Control::Interleaved { is_array, whole_arrays, reference }
            }
            _ => return Err(UNKNOWN),
        })
    }

    /// The blocks behind a control byte that says so, and the scale of doubles in them.
    fn blocks(&mut self) -> Result<(Option<f64>, &'a [u8]), BadColumn> {
        let control = self.take(1)?[0];
        let scale = match control >> 4 {
            0x9 => Some(1.0),
            0xA => Some(10.0),
            0xB => Some(100.0),
            0xC => Some(10_000.0),
            0xD => Some(100_000_000.0),
            _ => None,
        };
        let count = usize::from(control & 0xF) + 1;
        Ok((scale, self.take(8 * count)?))
    }

    /// A value as an element without a name.
    fn value(&mut self) -> Result<Value, BadColumn> {
        let malformed = BadColumn("a value is malformed");
        let kind = ElementType::from_byte(self.bytes[0]).ok_or(malformed)?;
        if self.bytes.get(1) != Some(&0) {
            return Err(malformed);
        }
        let size = 2 + size_of_value(kind, &self.bytes[2..]).ok_or(CUT_OFF)?;
        let mut writer = Writer::with_capacity(size + 8);
        writer.append_elements(self.take(size)?);
        // Validated here, before anything trusts it.
        let document = Document::parse(writer.finish_bytes()).map_err(|_| malformed)?;
        document.get("").map(RawValue::to_value).ok_or(malformed)
    }
}

/// How many bytes a value has that begins here. Whether they are all there is not looked at.
fn size_of_value(kind: ElementType, bytes: &[u8]) -> Option<usize> {
    let length = |at: usize| {
        let four = bytes.get(at..at.checked_add(4)?)?;
        usize::try_from(i32::from_le_bytes(four.try_into().ok()?)).ok()
    };
    let zero = |from: usize| Some(from + bytes.get(from..)?.iter().position(|byte| *byte == 0)? + 1);
    match kind {
        ElementType::Double | ElementType::DateTime | ElementType::Timestamp | ElementType::Int64 => Some(8),
        ElementType::Int32 => Some(4),
        ElementType::ObjectId => Some(12),
        ElementType::Decimal128 => Some(16),
        ElementType::Bool => Some(1),
        ElementType::Undefined | ElementType::Null | ElementType::MaxKey | ElementType::MinKey => Some(0),
        ElementType::String | ElementType::JavaScript | ElementType::Symbol => length(0)?.checked_add(4),
        ElementType::Binary => length(0)?.checked_add(5),
        ElementType::DbPointer => length(0)?.checked_add(16),
        ElementType::Document | ElementType::Array | ElementType::JavaScriptWithScope => length(0),
        ElementType::Regex => zero(zero(0)?),
    }
}

/// A field of a reference document.
enum Field<'a> {
    /// With a column of its own.
    Leaf(&'a str, Stream<'a>),
    Container {
        name: &'a str,
        is_array: bool,
        fields: Vec<Field<'a>>,
    },
}

fn fields_of<'a>(reference: RawDocument<'a>, whole_arrays: bool) -> Vec<Field<'a>> {
    let field = |(name, value): (&'a str, RawValue<'a>)| match value {
        RawValue::Array(_) if whole_arrays => Field::Leaf(name, Stream::new(value.to_value())),
        RawValue::Document(inner) => {
            Field::Container { name, is_array: false, fields: fields_of(inner, whole_arrays) }
        }
        RawValue::Array(inner) => {
            Field::Container { name, is_array: true, fields: fields_of(inner.as_document(), whole_arrays) }
        }
        value => Field::Leaf(name, Stream::new(value.to_value())),
    };
    reference.iter().map(field).collect()
}

/// Decodes documents whose fields are mixed. Gives the last one.
fn interleaved<'a>(
    reader: &mut Reader<'a>,
    is_array: bool,
    whole_arrays: bool,
    reference: RawDocument<'a>,
    out: &mut Values,
) -> Result<Option<Value>, BadColumn> {
    let mut fields = fields_of(reference, whole_arrays);
    let width = leaves(&fields).count();
    let mut last = None;
    for row in 1.. {
        // Rows whose fields are all missing give no bytes, and cost time all the same.
        if width.saturating_mul(row) > out.bytes_max {
            break;
        }
        if are_at_end(&fields).ok_or(BadColumn("a reference document has no field"))?
            && reader.peek() == Some(0)
        {
            reader.take(1)?;
            return match leaves(&fields).all(Stream::is_at_end) {
                true => Ok(last),
                false => Err(BadColumn("the fields of documents are of different number")),
            };
        }
        let mut writer = Writer::new();
        append_next(&mut fields, reader, &mut writer)?;
        let value = match (writer.is_empty(), is_array) {
            (true, _) => None,
            (false, false) => Some(Value::Document(writer.finish())),
            (false, true) => {
                let document = writer.finish();
                Some(RawValue::Array(crate::RawArray::from_document(document.as_raw())).to_value())
            }
        };
        out.push(value.as_ref())?;
        last = value.or(last);
    }
    Err(TOO_LARGE)
}

/// The streams of all fields, in their order.
fn leaves<'f, 'a>(fields: &'f [Field<'a>]) -> Box<dyn Iterator<Item = &'f Stream<'a>> + 'f> {
    Box::new(fields.iter().flat_map(|field| match field {
        Field::Leaf(_, stream) => Box::new(std::iter::once(stream)) as Box<dyn Iterator<Item = _>>,
        Field::Container { fields, .. } => leaves(fields),
    }))
}

/// Whether the first field needs another part. None where there is no field that has parts.
fn are_at_end(fields: &[Field<'_>]) -> Option<bool> {
    leaves(fields).next().map(Stream::is_at_end)
}

/// Appends the next value of each field that has one.
fn append_next<'a>(
    fields: &mut [Field<'a>],
    reader: &mut Reader<'a>,
    out: &mut Writer,
) -> Result<(), BadColumn> {
    for field in fields {
        match field {
            Field::Leaf(name, stream) => {
                while stream.is_at_end() {
                    stream.take(reader.control()?)?;
                }
                if let Some(value) = stream.next()?.flatten() {
                    out.append(name, value.as_raw());
                }
            }
            Field::Container { name, is_array, fields } => {
                let mut inner = Writer::new();
                append_next(fields, reader, &mut inner)?;
                // A container that is empty in the reference document is there in every document.
                if inner.is_empty() && !fields.is_empty() {
                    continue;
                }
                let inner = inner.finish();
                match is_array {
                    false => out.append(name, RawValue::Document(inner.as_raw())),
                    true => out.append(name, RawValue::Array(crate::RawArray::from_document(inner.as_raw()))),
                }
            }
        }
    }
    Ok(())
}
