//! Borrowed BSON: a document is its bytes, a value is a view into them.
//!
//! Invariant: the bytes behind a [`RawDocument`] have passed validation, so lengths are true, names
//! and strings are UTF-8, and access need not check again.

use crate::{Decimal128, ObjectId, Timestamp};

/// The type byte of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ElementType {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Bool = 0x08,
    DateTime = 0x09,
    Null = 0x0A,
    Regex = 0x0B,
    DbPointer = 0x0C,
    JavaScript = 0x0D,
    Symbol = 0x0E,
    JavaScriptWithScope = 0x0F,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MaxKey = 0x7F,
    MinKey = 0xFF,
}

impl ElementType {
    #[inline]
    pub fn from_byte(byte: u8) -> Option<ElementType> {
        use ElementType::*;
        Some(match byte {
            0x01 => Double,
            0x02 => String,
            0x03 => Document,
            0x04 => Array,
            0x05 => Binary,
            0x06 => Undefined,
            0x07 => ObjectId,
            0x08 => Bool,
            0x09 => DateTime,
            0x0A => Null,
            0x0B => Regex,
            0x0C => DbPointer,
            0x0D => JavaScript,
            0x0E => Symbol,
            0x0F => JavaScriptWithScope,
            0x10 => Int32,
            0x11 => Timestamp,
            0x12 => Int64,
            0x13 => Decimal128,
            0x7F => MaxKey,
            0xFF => MinKey,
            _ => return None,
        })
    }

    /// The name that `$type` accepts and error messages print.
    pub fn name(self) -> &'static str {
        use ElementType::*;
        match self {
            Double => "double",
            String => "string",
            Document => "object",
            Array => "array",
            Binary => "binData",
            Undefined => "undefined",
            ObjectId => "objectId",
            Bool => "bool",
            DateTime => "date",
            Null => "null",
            Regex => "regex",
            DbPointer => "dbPointer",
            JavaScript => "javascript",
            Symbol => "symbol",
            JavaScriptWithScope => "javascriptWithScope",
            Int32 => "int",
            Timestamp => "timestamp",
            Int64 => "long",
            Decimal128 => "decimal",
            MaxKey => "maxKey",
            MinKey => "minKey",
        }
    }
}

/// One value, borrowed.
#[derive(Debug, Clone, Copy)]
pub enum RawValue<'a> {
    Double(f64),
    String(&'a str),
    Document(RawDocument<'a>),
    Array(RawArray<'a>),
    Binary {
        subtype: u8,
        bytes: &'a [u8],
    },
    Undefined,
    ObjectId(ObjectId),
    Bool(bool),
    /// Milliseconds since 1970.
    DateTime(i64),
    Null,
    Regex {
        pattern: &'a str,
        options: &'a str,
    },
    DbPointer {
        namespace: &'a str,
        id: ObjectId,
    },
    JavaScript(&'a str),
    Symbol(&'a str),
    JavaScriptWithScope {
        code: &'a str,
        scope: RawDocument<'a>,
    },
    Int32(i32),
    Timestamp(Timestamp),
    Int64(i64),
    Decimal128(Decimal128),
    MaxKey,
    MinKey,
}

impl<'a> RawValue<'a> {
    /// # Safety
    /// `bytes` must be those of one value of that type in a document that has passed validation, whole.
    #[inline]
    pub unsafe fn from_validated(kind: ElementType, bytes: &'a [u8]) -> RawValue<'a> {
        read_value(kind, bytes)
    }

    pub fn element_type(self) -> ElementType {
        match self {
            RawValue::Double(_) => ElementType::Double,
            RawValue::String(_) => ElementType::String,
            RawValue::Document(_) => ElementType::Document,
            RawValue::Array(_) => ElementType::Array,
            RawValue::Binary { .. } => ElementType::Binary,
            RawValue::Undefined => ElementType::Undefined,
            RawValue::ObjectId(_) => ElementType::ObjectId,
            RawValue::Bool(_) => ElementType::Bool,
            RawValue::DateTime(_) => ElementType::DateTime,
            RawValue::Null => ElementType::Null,
            RawValue::Regex { .. } => ElementType::Regex,
            RawValue::DbPointer { .. } => ElementType::DbPointer,
            RawValue::JavaScript(_) => ElementType::JavaScript,
            RawValue::Symbol(_) => ElementType::Symbol,
            RawValue::JavaScriptWithScope { .. } => ElementType::JavaScriptWithScope,
            RawValue::Int32(_) => ElementType::Int32,
            RawValue::Timestamp(_) => ElementType::Timestamp,
            RawValue::Int64(_) => ElementType::Int64,
            RawValue::Decimal128(_) => ElementType::Decimal128,
            RawValue::MaxKey => ElementType::MaxKey,
            RawValue::MinKey => ElementType::MinKey,
        }
    }

    pub fn as_str(self) -> Option<&'a str> {
        match self {
            RawValue::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_document(self) -> Option<RawDocument<'a>> {
        match self {
            RawValue::Document(document) => Some(document),
            _ => None,
        }
    }

    pub fn as_array(self) -> Option<RawArray<'a>> {
        match self {
            RawValue::Array(array) => Some(array),
            _ => None,
        }
    }

    pub fn as_bool(self) -> Option<bool> {
        match self {
            RawValue::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The document inside a document, array or code with scope.
    pub fn as_container(self) -> Option<RawDocument<'a>> {
        match self {
            RawValue::Document(document) => Some(document),
            RawValue::Array(array) => Some(array.as_document()),
            RawValue::JavaScriptWithScope { scope, .. } => Some(scope),
            _ => None,
        }
    }

    pub fn is_number(self) -> bool {
        matches!(
            self,
            RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_)
        )
    }
}

/// A validated document, borrowed: its four length bytes, elements and final zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawDocument<'a> {
    bytes: &'a [u8],
}

/// An array is a document whose names are not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawArray<'a> {
    document: RawDocument<'a>,
}

impl<'a> RawDocument<'a> {
    /// # Safety
    /// `bytes` must be one document that has passed validation, whole.
    pub unsafe fn from_validated(bytes: &'a [u8]) -> RawDocument<'a> {
        debug_assert!(bytes.len() >= 5 && bytes.last() == Some(&0));
        RawDocument { bytes }
    }

    pub const fn empty() -> RawDocument<'static> {
        RawDocument { bytes: &[5, 0, 0, 0, 0] }
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub fn is_empty(self) -> bool {
        self.bytes.len() <= 5
    }

    pub fn iter(self) -> RawIter<'a> {
        RawIter { bytes: self.bytes, at: 4 }
    }

    /// The first element of that name.
    pub fn get(self, name: &str) -> Option<RawValue<'a>> {
        let mut iter = self.iter();
        while let Some((found, slot)) = iter.next_slot() {
            if found == name.as_bytes() {
                return Some(slot.read(self.bytes));
            }
        }
        None
    }

    /// The first element of each of these names, found in one pass. The places are those of the names, and
    /// empty at first.
    pub fn get_each(self, names: &[Box<str>], places: &mut [Option<RawValue<'a>>]) {
        let mut left = names.len();
        let mut iter = self.iter();
        while left > 0
            && let Some((found, slot)) = iter.next_slot()
        {
            for (name, place) in names.iter().zip(&mut *places) {
                if found == name.as_bytes() && place.is_none() {
                    *place = Some(slot.read(self.bytes));
                    left -= 1;
                    break;
                }
            }
        }
    }

    /// The bytes of the elements, without the length and the final zero: what copies into a
    /// document under construction.
    pub fn elements(self) -> &'a [u8] {
        &self.bytes[4..self.bytes.len() - 1]
    }
}

impl<'a> RawArray<'a> {
    pub fn from_document(document: RawDocument<'a>) -> RawArray<'a> {
        RawArray { document }
    }

    pub fn as_document(self) -> RawDocument<'a> {
        self.document
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.document.bytes
    }

    pub fn is_empty(self) -> bool {
        self.document.is_empty()
    }

    /// Counts by walking: the format stores no count.
    pub fn len(self) -> usize {
        let mut iter = self.document.iter();
        let mut count = 0;
        while iter.next_slot().is_some() {
            count += 1;
        }
        count
    }

    pub fn iter(self) -> impl Iterator<Item = RawValue<'a>> + Clone {
        self.document.iter().map(|(_, value)| value)
    }

    pub fn get(self, index: usize) -> Option<RawValue<'a>> {
        let mut iter = self.document.iter();
        let mut slot = iter.next_slot()?.1;
        for _ in 0..index {
            slot = iter.next_slot()?.1;
        }
        Some(slot.read(self.document.bytes))
    }
}

impl<'a> IntoIterator for RawDocument<'a> {
    type Item = (&'a str, RawValue<'a>);
    type IntoIter = RawIter<'a>;

    fn into_iter(self) -> RawIter<'a> {
        self.iter()
    }
}

/// Where an element's value lies, before it is read: skipping costs no decoding.
#[derive(Clone, Copy)]
struct Slot {
    kind: u8,
    start: usize,
    end: usize,
}

#[derive(Clone)]
pub struct RawIter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RawIter<'a> {
    #[inline(always)]
    fn next_slot(&mut self) -> Option<(&'a [u8], Slot)> {
        let kind = self.bytes[self.at];
        if kind == 0 {
            return None;
        }
        let name_start = self.at + 1;
        let name_end = find_zero(self.bytes, name_start);
        let start = name_end + 1;
        let end = start + value_length(kind, &self.bytes[start..]);
        self.at = end;
        Some((&self.bytes[name_start..name_end], Slot { kind, start, end }))
    }

    /// The next element, its value unread: for those who look at names, and copy.
    #[inline]
    pub fn next_element(&mut self) -> Option<RawElement<'a>> {
        let from = self.at;
        let (name, slot) = self.next_slot()?;
        let bytes = &self.bytes[from..slot.end];
        Some(RawElement { name: text(name), bytes, kind: slot.element_type(), value_at: slot.start - from })
    }

    /// The next value that holds others; those before it are passed over unread.
    pub(crate) fn next_container(&mut self) -> Option<RawDocument<'a>> {
        const HOLD_OTHERS: [u8; 3] =
            [ElementType::Document as u8, ElementType::Array as u8, ElementType::JavaScriptWithScope as u8];
        loop {
            let (_, slot) = self.next_slot()?;
            if HOLD_OTHERS.contains(&slot.kind) {
                return slot.read(self.bytes).as_container();
            }
        }
    }

    /// The next element, if it is one that is asked for; otherwise it stays the next.
    #[inline]
    pub fn next_if(&mut self, wanted: impl FnOnce(&RawElement<'a>) -> bool) -> Option<RawElement<'a>> {
        let from = self.at;
        let element = self.next_element()?;
        if wanted(&element) {
            return Some(element);
        }
        self.at = from;
        None
    }

    /// The next element with the bytes it occupies, type byte and name included, for copying whole.
    pub fn next_with_bytes(&mut self) -> Option<(&'a str, RawValue<'a>, &'a [u8])> {
        let from = self.at;
        let (name, slot) = self.next_slot()?;
        Some((text(name), slot.read(self.bytes), &self.bytes[from..slot.end]))
    }
}

/// An element whose value has not been read.
#[derive(Clone, Copy)]
pub struct RawElement<'a> {
    pub name: &'a str,
    /// All that it occupies, type byte and name included.
    pub bytes: &'a [u8],
    kind: ElementType,
    value_at: usize,
}

impl<'a> RawElement<'a> {
    pub fn value(&self) -> RawValue<'a> {
        read_value(self.kind, &self.bytes[self.value_at..])
    }

    /// The bytes of its value alone.
    pub fn value_bytes(&self) -> &'a [u8] {
        &self.bytes[self.value_at..]
    }

    pub fn element_type(&self) -> ElementType {
        self.kind
    }
}

/// Reads a document that it owns, from the first element to the last, and can wait in between.
pub struct Reading {
    document: crate::Document,
    at: usize,
}

impl Reading {
    pub fn of(document: crate::Document) -> Reading {
        Reading { document, at: 4 }
    }

    /// Reads on. What is left of the elements when `read` returns is for the next time.
    #[inline]
    pub fn on<R>(&mut self, read: impl FnOnce(&mut RawIter<'_>) -> R) -> R {
        let bytes = self.document.as_bytes();
        let mut rest = RawIter { bytes, at: self.at };
        let result = read(&mut rest);
        // A place in other bytes means nothing in these.
        if std::ptr::eq(rest.bytes, bytes) {
            self.at = rest.at;
        }
        result
    }
}

impl<'a> Iterator for RawIter<'a> {
    type Item = (&'a str, RawValue<'a>);

    fn next(&mut self) -> Option<(&'a str, RawValue<'a>)> {
        let (name, slot) = self.next_slot()?;
        Some((text(name), slot.read(self.bytes)))
    }
}

impl Slot {
    fn read<'a>(self, bytes: &'a [u8]) -> RawValue<'a> {
        read_value(self.element_type(), &bytes[self.start..self.end])
    }

    fn element_type(self) -> ElementType {
        ElementType::from_byte(self.kind).expect("validated bytes hold known types only")
    }
}

fn text(bytes: &[u8]) -> &str {
    // SAFETY: the invariant of this module: validation has checked names and strings.
    unsafe { std::str::from_utf8_unchecked(bytes) }
}

/// A word whose lowest set bit is in the first zero byte of `word`, read little-endian; zero if there
/// is none.
#[inline]
pub(crate) fn mark_zero(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// The place of the zero that ends a name.
#[inline]
fn find_zero(bytes: &[u8], start: usize) -> usize {
    // Most names are shorter than a word, nearly all than two: a test or two find their end without a call.
    for from in [start, start + 8] {
        let Some(word) = bytes.get(from..).and_then(<[u8]>::first_chunk) else { break };
        let mark = mark_zero(u64::from_le_bytes(*word));
        if mark != 0 {
            return from + mark.trailing_zeros() as usize / 8;
        }
    }
    start + memchr::memchr(0, &bytes[start..]).expect("validated names end in a zero byte")
}

fn int32(bytes: &[u8]) -> i32 {
    i32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// A length as stored, trusted because validated.
fn length(bytes: &[u8]) -> usize {
    int32(bytes) as usize
}

/// How long values are, by their type's byte: so many bytes, or [`PREFIXED`] and so many beside the length that
/// they begin with, or [`TEXTS`]. A table, since walking over values is what reading a document mostly is.
static LENGTHS: [u8; 256] = {
    use ElementType::*;
    let mut lengths = [0; 256];
    let mut known: &[(ElementType, u8)] = &[
        (Double, 8),
        (DateTime, 8),
        (Timestamp, 8),
        (Int64, 8),
        (Int32, 4),
        (Bool, 1),
        (ObjectId, 12),
        (Decimal128, 16),
        (String, PREFIXED + 4),
        (JavaScript, PREFIXED + 4),
        (Symbol, PREFIXED + 4),
        (Document, PREFIXED),
        (Array, PREFIXED),
        (JavaScriptWithScope, PREFIXED),
        (Binary, PREFIXED + 5),
        (DbPointer, PREFIXED + 16),
        (Regex, TEXTS),
    ];
    while let [(kind, length), rest @ ..] = known {
        lengths[*kind as usize] = *length;
        known = rest;
    }
    lengths
};

const PREFIXED: u8 = 0x80;

/// Two texts, each up to its zero byte.
const TEXTS: u8 = 0xFF;

#[inline(always)]
fn value_length(kind: u8, bytes: &[u8]) -> usize {
    match LENGTHS[usize::from(kind)] {
        TEXTS => texts_length(bytes),
        prefixed @ PREFIXED.. => usize::from(prefixed - PREFIXED) + length(bytes),
        fixed => usize::from(fixed),
    }
}

/// Of two texts that each end in a zero.
#[cold]
fn texts_length(bytes: &[u8]) -> usize {
    let zero = |from| memchr::memchr(0, &bytes[from..]).expect("validated texts end in a zero byte");
    let pattern = zero(0) + 1;
    pattern + zero(pattern) + 1
}

/// A length-prefixed string without its final zero.
fn prefixed_text(bytes: &[u8]) -> &str {
    text(&bytes[4..4 + length(bytes) - 1])
}

fn read_value(kind: ElementType, bytes: &[u8]) -> RawValue<'_> {
    let int64 = || i64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    match kind {
        ElementType::Double => RawValue::Double(f64::from_bits(int64() as u64)),
        ElementType::String => RawValue::String(prefixed_text(bytes)),
        ElementType::Document => RawValue::Document(RawDocument { bytes }),
        ElementType::Array => RawValue::Array(RawArray { document: RawDocument { bytes } }),
        ElementType::Binary => {
            let (subtype, mut content) = (bytes[4], &bytes[5..]);
            if subtype == 2 {
                // The old generic subtype repeats the length inside.
                content = &content[4..];
            }
            RawValue::Binary { subtype, bytes: content }
        }
        ElementType::Undefined => RawValue::Undefined,
        ElementType::ObjectId => {
            RawValue::ObjectId(ObjectId::from_bytes(bytes.try_into().expect("twelve bytes")))
        }
        ElementType::Bool => RawValue::Bool(bytes[0] != 0),
        ElementType::DateTime => RawValue::DateTime(int64()),
        ElementType::Null => RawValue::Null,
        ElementType::Regex => {
            let zero = memchr::memchr(0, bytes).expect("validated texts end in a zero byte");
            RawValue::Regex {
                pattern: text(&bytes[..zero]),
                options: text(&bytes[zero + 1..bytes.len() - 1]),
            }
        }
        ElementType::DbPointer => {
            let id = bytes[bytes.len() - 12..].try_into().expect("twelve bytes");
            RawValue::DbPointer { namespace: prefixed_text(bytes), id: ObjectId::from_bytes(id) }
        }
        ElementType::JavaScript => RawValue::JavaScript(prefixed_text(bytes)),
        ElementType::Symbol => RawValue::Symbol(prefixed_text(bytes)),
        ElementType::JavaScriptWithScope => {
            let scope = &bytes[4 + 4 + length(&bytes[4..])..];
            RawValue::JavaScriptWithScope {
                code: prefixed_text(&bytes[4..]),
                scope: RawDocument { bytes: scope },
            }
        }
        ElementType::Int32 => RawValue::Int32(int32(bytes)),
        ElementType::Timestamp => RawValue::Timestamp(Timestamp::from_bits(int64() as u64)),
        ElementType::Int64 => RawValue::Int64(int64()),
        ElementType::Decimal128 => {
            RawValue::Decimal128(Decimal128::from_bytes(bytes.try_into().expect("sixteen bytes")))
        }
        ElementType::MaxKey => RawValue::MaxKey,
        ElementType::MinKey => RawValue::MinKey,
    }
}
