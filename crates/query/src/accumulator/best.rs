//! The values that come first or last by an order: `$minN`, `$maxN`, `$top`, `$topN`, `$bottom`, `$bottomN`.
//!
//! Values stand in a tree by sort key and arrival. A full tree takes a newcomer only if it is strictly
//! better than the worst it holds, so of equals the earlier stay.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use kilim_bson::{
    Array, ArrayBuilder, Collator, Document, RawArray, RawDocument, RawValue, Value, encode_value_with,
};
use kilim_error::{Error, ErrorCode, Result};

use super::held::payload;
use crate::expression::{Dependencies, Evaluated, FieldPath, Scope};
use crate::sort::Sort;

/// Which end of the order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Low,
    High,
}

/// Up to `n` values from one end of an order.
pub struct Best {
    n: usize,
    end: End,
    values: BTreeMap<(Box<[u8]>, u64), Value>,
    arrivals: u64,
    bytes: usize,
    key: Vec<u8>,
}

/// What an entry costs beside the bytes of its key and its value.
const ENTRY_BYTES: usize = size_of::<(Box<[u8]>, u64)>() + size_of::<Value>();

impl Best {
    pub(super) fn new(n: u64, end: End) -> Best {
        Best {
            n: usize::try_from(n).unwrap_or(usize::MAX),
            end,
            values: BTreeMap::new(),
            arrivals: 0,
            bytes: 0,
            key: Vec::new(),
        }
    }

    /// Offers a value that is its own key; how many bytes were gained.
    pub(super) fn offer(&mut self, value: RawValue<'_>, collator: Option<&dyn Collator>) -> isize {
        self.key.clear();
        encode_value_with(&mut self.key, value, false, collator);
        if self.is_wanted() { self.take(value.to_value()) } else { 0 }
    }

    /// Offers a document; its output is computed only if it is wanted.
    pub(super) fn offer_document(
        &mut self,
        order: &Order,
        document: RawDocument<'_>,
        output: impl FnOnce() -> Result<Value>,
    ) -> Result<isize> {
        self.key.clear();
        order.key_of(document, &mut self.key)?;
        Ok(if self.is_wanted() { self.take(output()?) } else { 0 })
    }

    /// Offers what another has kept, with its key.
    pub(super) fn offer_keyed(&mut self, key: &[u8], value: RawValue<'_>) -> isize {
        self.key.clear();
        self.key.extend_from_slice(key);
        if self.is_wanted() { self.take(value.to_value()) } else { 0 }
    }

    /// Whether what `key` belongs to is good enough.
    fn is_wanted(&self) -> bool {
        if self.values.len() < self.n {
            return true;
        }
        let key = &self.key[..];
        match self.end {
            End::Low => self.values.last_key_value().is_some_and(|((worst, _), _)| key < &worst[..]),
            End::High => self.values.first_key_value().is_some_and(|((worst, _), _)| key > &worst[..]),
        }
    }

    /// Whether something with this key may be among what is kept.
    pub(super) fn may_hold(&self, key: &[u8]) -> bool {
        if self.values.len() < self.n {
            return true;
        }
        match self.end {
            End::Low => self.values.last_key_value().is_some_and(|((worst, _), _)| key <= &worst[..]),
            End::High => self.values.first_key_value().is_some_and(|((worst, _), _)| key >= &worst[..]),
        }
    }

    /// Whether it makes a difference when something with this key came.
    pub(super) fn depends_on_arrival(&self, key: &[u8]) -> bool {
        let at = |key: &[u8]| {
            let (first, last) = ((Box::from(key), 0), (Box::from(key), u64::MAX));
            self.values.range(first..=last).count()
        };
        if at(key) > 0 {
            return true;
        }
        // Of equals that are the worst, a better one drives out the earliest.
        let full = self.values.len() >= self.n;
        match self.values.first_key_value() {
            Some(((worst, _), _)) if self.end == End::High && full && key > &worst[..] => at(worst) > 1,
            _ => false,
        }
    }

    /// Puts another value in the place of the one with this key; false where there is not one.
    pub(super) fn replace(&mut self, key: &[u8], value: Value) -> bool {
        let (first, last) = ((Box::from(key), 0), (Box::from(key), u64::MAX));
        let mut found = self.values.range_mut(first..=last);
        let (Some((_, place)), None) = (found.next(), found.next()) else { return false };
        self.bytes = self.bytes + payload(value.as_raw()) - payload(place.as_raw());
        *place = value;
        true
    }

    pub(super) fn capacity(&self) -> usize {
        self.n
    }

    /// The key of a value that is its own.
    pub(super) fn key_of(value: RawValue<'_>, collator: Option<&dyn Collator>) -> Vec<u8> {
        let mut key = Vec::new();
        encode_value_with(&mut key, value, false, collator);
        key
    }

    fn take(&mut self, value: Value) -> isize {
        let before = self.bytes;
        if self.values.len() >= self.n {
            let worst = match self.end {
                End::Low => self.values.pop_last(),
                End::High => self.values.pop_first(),
            };
            if let Some(((key, _), value)) = worst {
                self.bytes -= key.len() + payload(value.as_raw()) + ENTRY_BYTES;
            }
        }
        self.bytes += self.key.len() + payload(value.as_raw()) + ENTRY_BYTES;
        self.values.insert((self.key[..].into(), self.arrivals), value);
        self.arrivals += 1;
        self.bytes as isize - before as isize
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// In ascending order of their keys; of equals, the earlier first.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.values.values()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        self.values.iter().map(|((key, _), value)| (&key[..], value))
    }
}

/// The `n` least or greatest of an array's elements, the best first, null passed over.
pub(crate) fn extremes(
    array: RawArray<'_>,
    n: u64,
    wanted: Ordering,
    collator: Option<&dyn Collator>,
) -> Result<Array> {
    let mut best = Best::new(n, if wanted.is_lt() { End::Low } else { End::High });
    for element in array.iter() {
        crate::interrupt::tick()?;
        if !matches!(element, RawValue::Null | RawValue::Undefined) {
            best.offer(element, collator);
        }
    }
    let mut found = ArrayBuilder::new();
    if wanted.is_lt() {
        best.values().for_each(|value| found.push(value.as_raw()));
    } else {
        best.values().rev().for_each(|value| found.push(value.as_raw()));
    }
    Ok(found.finish())
}

/// By what `$top` and its kin sort. Each field is read as an expression reads it, not as `$sort` does: what
/// an array of documents gives is an array, and an array is compared as a whole.
#[derive(Debug)]
pub(crate) struct Order {
    sort: Sort,
    paths: Vec<FieldPath>,
}

impl Order {
    pub(super) fn sort(&self) -> &Sort {
        &self.sort
    }

    pub(super) fn parse(spec: RawDocument<'_>, scope: &Scope<'_>) -> Result<Order> {
        let sort = Sort::parse_in(spec, scope)?;
        if sort.is_natural() {
            return Err(Error::location(
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ));
        }
        let paths = sort.parts().iter().map(|part| FieldPath::parse(part.path.as_str()));
        Ok(Order { paths: paths.collect::<Result<_>>()?, sort })
    }

    pub(super) fn key_of(&self, document: RawDocument<'_>, out: &mut Vec<u8>) -> Result<()> {
        let mut met_array = false;
        let collator = self.sort.collator();
        for (path, part) in self.paths.iter().zip(self.sort.parts()) {
            let value = path.evaluate(document);
            match value.raw() {
                Some(RawValue::Array(array)) => {
                    if std::mem::replace(&mut met_array, true) {
                        return Err(Error::user(
                            ErrorCode::BadValue,
                            "cannot sort with keys that are parallel arrays",
                        ));
                    }
                    // An array counts as a whole, but an empty one counts as nothing at all.
                    let value = if array.is_empty() { RawValue::Undefined } else { RawValue::Array(array) };
                    encode_value_with(out, value, part.descending, collator);
                }
                Some(value) => encode_value_with(out, value, part.descending, collator),
                None => encode_value_with(out, RawValue::Null, part.descending, collator),
            }
        }
        Ok(())
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, bool)> {
        self.sort.parts().iter().map(|part| (part.path.as_str(), part.descending))
    }

    pub(super) fn to_document(&self) -> Document {
        let directions = self
            .sort
            .parts()
            .iter()
            .map(|part| (part.path.as_str(), Value::Int32(if part.descending { -1 } else { 1 })));
        directions.collect()
    }

    pub(super) fn dependencies(&self, needed: &mut Dependencies) {
        self.paths.iter().for_each(|path| needed.field(path.as_str()));
    }
}

/// An output as it is kept: nothing becomes null.
pub(super) fn output(value: Evaluated<'_>) -> Value {
    value.into_value().unwrap_or(Value::Null)
}
