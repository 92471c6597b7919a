//! Owned documents and the writer that makes them.

use std::fmt;

use crate::{Decimal128, ObjectId, RawArray, RawDocument, RawValue, Timestamp, Value};

/// A document that owns its validated bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Document {
    bytes: Vec<u8>,
}

/// An array that owns its bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Array {
    document: Document,
}

impl Document {
    pub fn new() -> Document {
        Document { bytes: RawDocument::empty().as_bytes().to_vec() }
    }

    /// # Safety
    /// `bytes` must be one document that has passed validation, whole.
    pub unsafe fn from_validated(bytes: Vec<u8>) -> Document {
        debug_assert!(bytes.len() >= 5 && bytes.last() == Some(&0));
        Document { bytes }
    }

    pub fn as_raw(&self) -> RawDocument<'_> {
        // SAFETY: the bytes were validated, or written by `Writer`, which writes valid ones.
        unsafe { RawDocument::from_validated(&self.bytes) }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn get(&self, name: &str) -> Option<RawValue<'_>> {
        self.as_raw().get(name)
    }

    pub fn iter(&self) -> crate::RawIter<'_> {
        self.as_raw().iter()
    }

    pub fn is_empty(&self) -> bool {
        self.as_raw().is_empty()
    }

    /// Appends a field; the caller sees to it that the name is new.
    ///
    /// A name ends at its first zero byte, as it would for whoever reads the document: what follows would be read as
    /// the value.
    pub fn push<'v>(&mut self, name: &str, value: impl Into<ValueRef<'v>>) {
        let name = match memchr::memchr(0, name.as_bytes()) {
            Some(end) => &name[..end],
            None => name,
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        // For a name and a number at once: documents are mostly made field by field.
        bytes.reserve(name.len() + 48);
        let mut writer = Writer::resume(Document { bytes });
        match value.into() {
            ValueRef::Owned(value) => writer.append(name, value.as_raw()),
            ValueRef::Raw(value) => writer.append(name, value),
        }
        self.bytes = writer.finish().bytes;
    }
}

/// What [`Document::push`] takes: an owned or a borrowed value.
pub enum ValueRef<'v> {
    Owned(Value),
    Raw(RawValue<'v>),
}

macro_rules! value_ref_from {
    (borrowed: $($from:ty => $kind:ident),*; owned: $($owned:ty),* $(,)?) => {
        $(impl<'v> From<$from> for ValueRef<'v> {
            fn from(value: $from) -> ValueRef<'v> {
                ValueRef::Raw(RawValue::$kind(value))
            }
        })*
        $(impl From<$owned> for ValueRef<'_> {
            fn from(value: $owned) -> Self {
                ValueRef::Owned(value.into())
            }
        })*
    };
}

value_ref_from! {
    borrowed: &'v str => String, &'v String => String, RawDocument<'v> => Document, RawArray<'v> => Array,
        f64 => Double, i32 => Int32, i64 => Int64, bool => Bool,
        ObjectId => ObjectId, Timestamp => Timestamp, Decimal128 => Decimal128;
    owned: Value, String, Document, Array, Vec<Value>, Vec<Document>,
}

impl<'v> From<RawValue<'v>> for ValueRef<'v> {
    fn from(value: RawValue<'v>) -> ValueRef<'v> {
        ValueRef::Raw(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for ValueRef<'_> {
    fn from(value: Option<T>) -> Self {
        ValueRef::Owned(value.into())
    }
}

impl Default for Document {
    fn default() -> Document {
        Document::new()
    }
}

impl Array {
    pub fn new() -> Array {
        Array { document: Document::new() }
    }

    pub fn as_raw(&self) -> RawArray<'_> {
        RawArray::from_document(self.document.as_raw())
    }

    pub fn from_document(document: Document) -> Array {
        Array { document }
    }
}

impl Default for Array {
    fn default() -> Array {
        Array::new()
    }
}

/// Writes an array value by value; counts the indexes that are its names.
#[derive(Default)]
pub struct ArrayBuilder {
    writer: Writer,
    len: usize,
}

impl ArrayBuilder {
    pub fn new() -> ArrayBuilder {
        ArrayBuilder::default()
    }

    pub fn push<'v>(&mut self, value: impl Into<ValueRef<'v>>) {
        match value.into() {
            ValueRef::Owned(value) => self.writer.append_index(self.len, value.as_raw()),
            ValueRef::Raw(value) => self.writer.append_index(self.len, value),
        }
        self.len += 1;
    }

    pub fn finish(self) -> Array {
        Array { document: self.writer.finish() }
    }
}

impl FromIterator<Value> for Array {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Array {
        let mut builder = ArrayBuilder::new();
        values.into_iter().for_each(|value| builder.push(value));
        builder.finish()
    }
}

impl<'a> FromIterator<(&'a str, Value)> for Document {
    fn from_iter<I: IntoIterator<Item = (&'a str, Value)>>(fields: I) -> Document {
        let mut writer = Writer::new();
        for (name, value) in fields {
            writer.append(name, value.as_raw());
        }
        writer.finish()
    }
}

impl RawDocument<'_> {
    pub fn to_document(self) -> Document {
        Document { bytes: self.as_bytes().to_vec() }
    }
}

impl RawArray<'_> {
    pub fn to_array(self) -> Array {
        Array { document: self.as_document().to_document() }
    }
}

/// Writes a document front to back into one buffer; nested containers are opened and closed in place.
pub struct Writer {
    bytes: Vec<u8>,
    /// Where the document's own length bytes are.
    start: usize,
    /// Where those of the innermost open container are, or [`NONE_OPEN`]. Until it is closed they hold where those of
    /// the one around it are.
    innermost: u32,
}

const NONE_OPEN: u32 = u32::MAX;

impl Writer {
    pub fn new() -> Writer {
        Writer::with_capacity(256)
    }

    pub fn with_capacity(capacity: usize) -> Writer {
        Writer::after(Vec::with_capacity(capacity))
    }

    /// Writes behind what `prefix` holds already; get all of it back with [`Writer::finish_bytes`].
    pub fn after(prefix: Vec<u8>) -> Writer {
        let start = prefix.len();
        let mut writer = Writer { bytes: prefix, start, innermost: NONE_OPEN };
        writer.bytes.extend_from_slice(&[0; 4]);
        writer
    }

    /// Goes on at the end of a finished document.
    pub fn resume(document: Document) -> Writer {
        let mut bytes = document.bytes;
        bytes.pop();
        Writer { bytes, start: 0, innermost: NONE_OPEN }
    }

    /// Bytes written so far, open containers included.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.len() <= 4
    }

    /// The memory that it takes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn append(&mut self, name: &str, value: RawValue<'_>) {
        self.header(value.element_type() as u8, name);
        self.value(value);
    }

    /// Copies an element under another name.
    #[inline]
    pub fn append_renamed(&mut self, name: &str, element: &crate::RawElement<'_>) {
        self.header(element.element_type() as u8, name);
        self.bytes.extend_from_slice(element.value_bytes());
    }

    /// Appends an array element: the name is its index.
    pub fn append_index(&mut self, index: usize, value: RawValue<'_>) {
        self.index_header(value.element_type() as u8, index);
        self.value(value);
    }

    /// Copies an element into an array: the name is its index there.
    #[inline]
    pub fn append_renumbered(&mut self, index: usize, element: &crate::RawElement<'_>) {
        self.index_header(element.element_type() as u8, index);
        self.bytes.extend_from_slice(element.value_bytes());
    }

    /// Makes room for so many bytes more.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Copies whole elements, as [`RawDocument::elements`] and [`crate::RawIter::next_with_bytes`] give them.
    pub fn append_elements(&mut self, elements: &[u8]) {
        self.bytes.extend_from_slice(elements);
    }

    pub fn open_document(&mut self, name: &str) {
        self.header(crate::ElementType::Document as u8, name);
        self.open_length();
    }

    pub fn open_array(&mut self, name: &str) {
        self.header(crate::ElementType::Array as u8, name);
        self.open_length();
    }

    /// Opens a document as an array element.
    pub fn open_document_at(&mut self, index: usize) {
        self.index_header(crate::ElementType::Document as u8, index);
        self.open_length();
    }

    pub fn open_array_at(&mut self, index: usize) {
        self.index_header(crate::ElementType::Array as u8, index);
        self.open_length();
    }

    /// Closes the innermost open container.
    pub fn close(&mut self) {
        assert_ne!(self.innermost, NONE_OPEN, "close answers an open");
        let start = self.innermost as usize;
        let around = self.bytes[start..start + 4].try_into().expect("four bytes");
        self.innermost = u32::from_le_bytes(around);
        self.end(start);
    }

    fn end(&mut self, start: usize) {
        self.bytes.push(0);
        // Callers bound what they write far below. A longer document has no valid bytes, so none is made.
        let length = i32::try_from(self.bytes.len() - start).expect("a document of less than 2 GiB");
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    pub fn finish(self) -> Document {
        Document { bytes: self.finish_bytes() }
    }

    /// The document's bytes behind the prefix that [`Writer::after`] was given.
    pub fn finish_bytes(mut self) -> Vec<u8> {
        debug_assert_eq!(self.innermost, NONE_OPEN, "every opened container is closed");
        self.end(self.start);
        self.bytes
    }

    fn open_length(&mut self) {
        let start = u32::try_from(self.bytes.len()).expect("a document of less than 2 GiB");
        self.bytes.extend_from_slice(&self.innermost.to_le_bytes());
        self.innermost = start;
    }

    fn header(&mut self, kind: u8, name: &str) {
        debug_assert!(!name.as_bytes().contains(&0), "a field name holds no zero byte");
        self.bytes.push(kind);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
    }

    fn index_header(&mut self, kind: u8, index: usize) {
        self.bytes.push(kind);
        if index < 10 {
            self.bytes.extend_from_slice(&[b'0' + index as u8, 0]);
            return;
        }
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = index;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
        self.bytes.push(0);
    }

    fn text(&mut self, text: &str) {
        let length = i32::try_from(text.len() + 1).expect("a text of less than 2 GiB");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    fn value(&mut self, value: RawValue<'_>) {
        match value {
            RawValue::Double(value) => self.bytes.extend_from_slice(&value.to_le_bytes()),
            RawValue::String(text) | RawValue::JavaScript(text) | RawValue::Symbol(text) => self.text(text),
            RawValue::Document(document) => self.bytes.extend_from_slice(document.as_bytes()),
            RawValue::Array(array) => self.bytes.extend_from_slice(array.as_bytes()),
            RawValue::Binary { subtype, bytes } => {
                let old = subtype == 2;
                let length = i32::try_from(bytes.len()).expect("bytes of less than 2 GiB");
                self.bytes.extend_from_slice(&(length + if old { 4 } else { 0 }).to_le_bytes());
                self.bytes.push(subtype);
                if old {
                    self.bytes.extend_from_slice(&length.to_le_bytes());
                }
                self.bytes.extend_from_slice(bytes);
            }
            RawValue::Undefined | RawValue::Null | RawValue::MaxKey | RawValue::MinKey => {}
            RawValue::ObjectId(id) => self.bytes.extend_from_slice(&id.to_bytes()),
            RawValue::Bool(value) => self.bytes.push(u8::from(value)),
            RawValue::DateTime(value) | RawValue::Int64(value) => {
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            RawValue::Regex { pattern, options } => {
                self.bytes.extend_from_slice(pattern.as_bytes());
                self.bytes.push(0);
                self.bytes.extend_from_slice(options.as_bytes());
                self.bytes.push(0);
            }
            RawValue::DbPointer { namespace, id } => {
                self.text(namespace);
                self.bytes.extend_from_slice(&id.to_bytes());
            }
            RawValue::JavaScriptWithScope { code, scope } => {
                let length = 4 + 4 + code.len() + 1 + scope.as_bytes().len();
                self.bytes.extend_from_slice(&(length as i32).to_le_bytes());
                self.text(code);
                self.bytes.extend_from_slice(scope.as_bytes());
            }
            RawValue::Int32(value) => self.bytes.extend_from_slice(&value.to_le_bytes()),
            RawValue::Timestamp(value) => self.bytes.extend_from_slice(&value.to_bits().to_le_bytes()),
            RawValue::Decimal128(value) => self.bytes.extend_from_slice(&value.to_bytes()),
        }
    }
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl fmt::Debug for RawDocument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Debug for RawArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_raw().fmt(f)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_raw().fmt(f)
    }
}
