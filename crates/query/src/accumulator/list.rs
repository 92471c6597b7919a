//! Values in a list: `$push`, `$firstN`, `$lastN` and, without repetition, `$addToSet`.

use std::collections::{HashSet, VecDeque};

use kilim_bson::{Array, ArrayBuilder, Collator, RawValue, Value, Writer, encode_value_with};

use super::held::payload;

/// `$push`: the array under construction.
pub struct List {
    writer: Writer,
    len: usize,
}

impl List {
    pub fn new() -> List {
        List { writer: Writer::with_capacity(32), len: 0 }
    }

    /// How many bytes it grew.
    pub fn push(&mut self, value: RawValue<'_>) -> isize {
        let before = self.writer.len();
        self.writer.append_index(self.len, value);
        self.len += 1;
        (self.writer.len() - before) as isize
    }

    pub fn bytes(&self) -> usize {
        self.writer.len()
    }

    pub fn finish(self) -> Array {
        Array::from_document(self.writer.finish())
    }

    /// A copy of the array as it is now.
    pub(super) fn copied(&mut self) -> Array {
        let written = std::mem::replace(&mut self.writer, Writer::new()).finish();
        self.writer = Writer::resume(written.clone());
        Array::from_document(written)
    }
}

impl Default for List {
    fn default() -> List {
        List::new()
    }
}

/// `$addToSet`: different values in the order of their first appearance.
#[derive(Default)]
pub struct Set {
    /// Sort keys, which are equal where values are, whatever their types.
    keys: HashSet<Box<[u8]>>,
    values: List,
    key: Vec<u8>,
    key_bytes: usize,
}

/// What an entry of a hash set costs beside its bytes.
const ENTRY_BYTES: usize = 24;

impl Set {
    pub fn new() -> Set {
        Set::default()
    }

    /// How many bytes it grew.
    pub fn insert(&mut self, value: RawValue<'_>, collator: Option<&dyn Collator>) -> isize {
        self.key.clear();
        encode_value_with(&mut self.key, value, false, collator);
        if self.keys.contains(&self.key[..]) {
            return 0;
        }
        self.keys.insert(self.key[..].into());
        let key_bytes = self.key.len() + ENTRY_BYTES;
        self.key_bytes += key_bytes;
        self.values.push(value) + key_bytes as isize
    }

    pub fn bytes(&self) -> usize {
        self.key_bytes + self.values.bytes()
    }

    pub fn finish(self) -> Array {
        self.values.finish()
    }

    pub(super) fn copied(&mut self) -> Array {
        self.values.copied()
    }
}

/// `$firstN` and `$lastN`: the values at one end of the input.
pub struct Window {
    n: usize,
    values: VecDeque<Value>,
    bytes: usize,
    /// Set once a value came that is not wanted any more.
    closed: bool,
}

impl Window {
    pub(super) fn new(n: u64) -> Window {
        Window {
            n: usize::try_from(n).unwrap_or(usize::MAX),
            values: VecDeque::new(),
            bytes: 0,
            closed: false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_full(&self) -> bool {
        self.values.len() >= self.n
    }

    pub(super) fn capacity(&self) -> usize {
        self.n
    }

    /// Appends, dropping what is too much at the front; how many bytes it grew.
    pub(super) fn push(&mut self, value: RawValue<'_>) -> isize {
        let before = self.bytes;
        if self.is_full()
            && let Some(first) = self.values.pop_front()
        {
            self.bytes -= size_of::<Value>() + payload(first.as_raw());
        }
        self.bytes += size_of::<Value>() + payload(value);
        self.values.push_back(value.to_value());
        self.bytes as isize - before as isize
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn to_array(&self) -> Array {
        let mut array = ArrayBuilder::new();
        self.values.iter().for_each(|value| array.push(value.as_raw()));
        array.finish()
    }
}
