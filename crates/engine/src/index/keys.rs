//! The keys of a document in an index, as a set. Which keys a document has is for the kind of the index to say.
//!
//! Invariant: a [`KeySet`] is sorted and holds each key once, and equal documents give equal sets.

use std::ops::Range;

use kilim_bson::{Collator, KeyDecoder, KeyEncoder, Path, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::interrupt;

use super::sorter::word_at;
use super::{IndexSpec, Multikey};
use crate::layout;

/// Keys with their type bits, sorted by key, in one buffer. Cleared and filled again, it allocates
/// nothing once it has grown.
#[derive(Default)]
pub struct KeySet {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    encoder: KeyEncoder,
}

/// Where a key and its type bits lie.
struct Entry {
    /// The key's first bytes, which mostly tell it from others.
    beginning: u64,
    key: Range<usize>,
    type_bits_end: usize,
}

impl KeySet {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and their type bits, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| self.slices(entry))
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// Whether the key is there with the same types.
    pub fn contains_with_bits(&self, key: &[u8], type_bits: &[u8]) -> bool {
        self.find(key).is_some_and(|entry| self.slices(entry).1 == type_bits)
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// The memory that it takes, about.
    pub fn bytes_held(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    fn slices(&self, entry: &Entry) -> (&[u8], &[u8]) {
        (&self.bytes[entry.key.clone()], &self.bytes[entry.key.end..entry.type_bits_end])
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        self.position(key).map(|at| &self.entries[at])
    }

    /// Where a key lies among the others.
    pub(super) fn position(&self, key: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| self.slices(entry).0.cmp(key)).ok()
    }

    pub(super) fn push<'v>(
        &mut self,
        spec: &IndexSpec,
        values: impl Iterator<Item = RawValue<'v>>,
    ) -> Result<()> {
        self.encoder.clear();
        let collator = spec.collator();
        for (part, value) in spec.key.iter().zip(values) {
            check_collatable(part.path.as_str(), value, collator)?;
            self.encoder.push_with(value, part.descending, collator);
        }
        self.take_encoded()
    }

    /// The one key of a document in which no path meets an array, as most documents are; none where the index is sparse and
    /// all paths miss. False where a path meets an array or a value that cannot be collated: nothing was added then.
    pub(super) fn push_straight(&mut self, spec: &IndexSpec, document: RawDocument<'_>) -> Result<bool> {
        self.encoder.clear();
        let collator = spec.collator();
        let mut missing = 0;
        for part in &spec.key {
            let value = match value_at(document, &part.path) {
                Some(RawValue::Array(_)) => return Ok(false),
                Some(value) => value,
                None => {
                    missing += 1;
                    RawValue::Null
                }
            };
            if check_collatable(part.path.as_str(), value, collator).is_err() {
                return Ok(false);
            }
            self.encoder.push_with(value, part.descending, collator);
        }
        if !(spec.sparse && missing == spec.key.len()) {
            self.take_encoded()?;
        }
        Ok(true)
    }

    /// The key of a wildcard index, of values that can be collated.
    pub(super) fn push_pair(
        &mut self,
        around: &Around<'_>,
        path: RawValue<'_>,
        value: RawValue<'_>,
        collator: Option<&dyn Collator>,
    ) -> Result<()> {
        self.encoder.clear();
        for &(value, descending) in &around.before {
            self.encoder.push_with(value, descending, collator);
        }
        // Paths are always in the order of their bytes.
        self.encoder.push(path, false);
        self.encoder.push_with(value, around.descending, collator);
        for &(value, descending) in &around.after {
            self.encoder.push_with(value, descending, collator);
        }
        self.take_encoded()
    }

    fn take_encoded(&mut self) -> Result<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(self.encoder.key());
        let end = self.bytes.len();
        self.bytes.extend_from_slice(self.encoder.type_bits());
        let beginning = word_at(&self.bytes[start..end], 0);
        self.entries.push(Entry { beginning, key: start..end, type_bits_end: self.bytes.len() });
        // A document can have a million keys.
        interrupt::copied(end - start)
    }

    /// Takes the entries out whose places are marked.
    pub(super) fn remove_marked(&mut self, marked: &[bool]) {
        let mut marks = marked.iter();
        self.entries.retain(|_| !marks.next().copied().unwrap_or(false));
    }

    /// Takes the keys of another set behind its own, unsorted.
    pub(super) fn append(&mut self, other: &KeySet) {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let moved = |entry: &Entry| Entry {
            beginning: entry.beginning,
            key: entry.key.start + offset..entry.key.end + offset,
            type_bits_end: entry.type_bits_end + offset,
        };
        self.entries.extend(other.entries.iter().map(moved));
    }

    pub(super) fn sort(&mut self) -> Result<()> {
        let KeySet { bytes, entries, .. } = self;
        // Stable, so that of equal keys the first element's types stay.
        interrupt::sort(entries, |left, right| {
            let by_key = || bytes[left.key.clone()].cmp(&bytes[right.key.clone()]);
            left.beginning.cmp(&right.beginning).then_with(by_key)
        })?;
        entries.dedup_by(|later, earlier| {
            later.beginning == earlier.beginning && bytes[later.key.clone()] == bytes[earlier.key.clone()]
        });
        Ok(())
    }
}

/// What all keys of a document in a wildcard index have in common: values and whether they descend.
pub(super) struct Around<'a> {
    pub before: Vec<(RawValue<'a>, bool)>,
    /// Whether the values at the paths descend.
    pub descending: bool,
    pub after: Vec<(RawValue<'a>, bool)>,
}

/// Replaces what `out` holds by the document's keys, and tells which components of the paths met
/// arrays.
pub fn keys_of(spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
    out.clear();
    // Also of a bucket that its filter leaves out: what it asks of bounds is true of buckets of one type only.
    if let Some(over) = &spec.measurements {
        over.check(document)?;
    }
    if let Some((_, filter)) = &spec.partial
        && !filter.matches(document)?
    {
        return Ok(Multikey::default());
    }
    let multikey = spec.kind.add_keys(spec, document, out)?;
    Ok(with_long_keys(multikey, out))
}

/// Refuses what an index of a collation cannot hold.
pub(super) fn check_collatable(
    path: &str,
    value: RawValue<'_>,
    collator: Option<&dyn Collator>,
) -> Result<()> {
    if collator.is_some() { check_no_symbol(path, value) } else { Ok(()) }
}

/// What a collation makes of a symbol nobody has said.
///
/// Recursion is bounded by the depth of a stored document.
fn check_no_symbol(path: &str, value: RawValue<'_>) -> Result<()> {
    match value {
        RawValue::Symbol(text) => Err(Error::user(
            ErrorCode::CannotBuildIndexKeys,
            format!(
                "KeyString format error: Cannot index type Symbol with a collation. Failed to index element: \
                 {path}: \"{text}\"."
            ),
        )),
        RawValue::Document(document) => {
            document.iter().try_for_each(|(name, value)| check_no_symbol(name, value))
        }
        RawValue::Array(array) => {
            array.as_document().iter().try_for_each(|(name, value)| check_no_symbol(name, value))
        }
        _ => Ok(()),
    }
}

/// Notes keys that the index will not hold whole: its order cannot be trusted among them.
fn with_long_keys(mut multikey: Multikey, keys: &KeySet) -> Multikey {
    if keys.entries.iter().any(|entry| entry.key.len() > layout::KEY_BYTES_MAX) {
        multikey.note_long_key();
    }
    multikey
}

/// The values of a key that [`keys_of`] made; what stands for texts under a collation is described at
/// [`KeyDecoder::next_of`].
pub fn decode_entry_key(spec: &IndexSpec, key: &[u8], type_bits: &[u8]) -> Vec<Value> {
    let mut values = Vec::with_capacity(spec.key.len());
    let decoded = KeyDecoder::new(key, type_bits).and_then(|mut decoder| {
        for (at, part) in spec.key.iter().enumerate() {
            values.push(decoder.next_of(part.descending, spec.is_collated(at))?);
        }
        Ok(())
    });
    debug_assert!(decoded.is_ok(), "the key is one of the index");
    values
}

/// The value at a path, or the first array on the way to it.
pub(super) fn value_at<'a>(document: RawDocument<'a>, path: &Path) -> Option<RawValue<'a>> {
    follow(document, path).0
}

/// Follows a path to its end, or to the first array. The second result is the component to look up from there.
pub(super) fn follow<'a>(document: RawDocument<'a>, path: &Path) -> (Option<RawValue<'a>>, usize) {
    match document.get(&path.components()[0].name) {
        Some(value) => follow_value(value, path, 1),
        None => (None, 0),
    }
}

/// Follows a path from the value of its component before `next`: to its end, or to the first array.
/// The second result is the component to look up from there.
pub(super) fn follow_value<'a>(
    mut value: RawValue<'a>,
    path: &Path,
    mut next: usize,
) -> (Option<RawValue<'a>>, usize) {
    let components = path.components();
    loop {
        let document = match value {
            _ if next == components.len() => return (Some(value), next),
            RawValue::Array(_) => return (Some(value), next),
            RawValue::Document(document) => document,
            _ => return (None, next),
        };
        match document.get(&components[next].name) {
            Some(found) => value = found,
            None => return (None, next),
        }
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Holds, IndexKind, KeyPart, Ordered};
    use kilim_bson::{Document, doc, identical, parse_extended_json};
    use kilim_query::filter::Filter;

    fn spec(key: RawDocument<'_>, sparse: bool) -> IndexSpec {
        let part = |(path, direction): (&str, RawValue<'_>)| KeyPart {
            path: Path::parse(path),
            descending: matches!(direction, RawValue::Int32(-1)),
            holds: Holds::Value,
        };
        IndexSpec {
            name: "index".to_owned(),
            key: key.iter().map(part).collect(),
            key_document: key.to_document(),
            unique: false,
            prepare_unique: false,
            sparse,
            hidden: false,
            expire_after_seconds: None,
            partial: None,
            kind: IndexKind::Ordered(Ordered),
            collation: None,
            measurements: None,
        }
    }

    fn keys(spec: &IndexSpec, document: &Document) -> Vec<Vec<Value>> {
        let mut set = KeySet::default();
        keys_of(spec, document.as_raw(), &mut set).unwrap();
        set.iter().map(|(key, bits)| decode_entry_key(spec, key, bits)).collect()
    }

    /// The components that met arrays, as mongod's explain names them.
    fn multikey_paths(spec: &IndexSpec, multikey: &Multikey) -> Vec<Vec<String>> {
        let prefix = |path: &Path, length: usize| -> String {
            let names: Vec<&str> =
                path.components()[..length].iter().map(|component| &*component.name).collect();
            names.join(".")
        };
        let of_part = |(at, part): (usize, &KeyPart)| -> Vec<String> {
            let bits = multikey.bits.get(at).copied().unwrap_or(0);
            let lengths = 1..=part.path.components().len();
            lengths
                .filter(|length| bits & 1 << (length - 1) != 0)
                .map(|length| prefix(&part.path, length))
                .collect()
        };
        spec.key.iter().enumerate().map(of_part).collect()
    }

    #[test]
    fn keys_and_arrays_met_are_those_recorded_from_mongod() {
        for line in include_str!("keys_recorded.jsonl").lines() {
            let case = parse_extended_json(line).unwrap();
            let field = |name: &str| case.get(name).unwrap();
            let spec = spec(field("key").as_document().unwrap(), field("sparse").as_bool().unwrap());
            let document = field("document").as_document().unwrap();
            let mut set = KeySet::default();
            match keys_of(&spec, document, &mut set) {
                Err(error) => {
                    let expected = case.get("message").and_then(RawValue::as_str);
                    assert_eq!(Some(error.to_string().as_str()), expected, "{line}");
                    assert!(identical(RawValue::Int32(error.code().0), field("code")), "{line}");
                }
                Ok(multikey) => {
                    let expected: Vec<RawValue<'_>> =
                        case.get("keys").and_then(RawValue::as_array).expect(line).iter().collect();
                    assert_eq!(set.len(), expected.len(), "{line}");
                    for ((key, bits), expected) in set.iter().zip(expected) {
                        let values = decode_entry_key(&spec, key, bits);
                        let expected: Vec<_> = expected.as_document().unwrap().iter().collect();
                        assert_eq!(values.len(), expected.len());
                        for (value, (_, expected)) in values.iter().zip(expected) {
                            assert!(identical(value.as_raw(), expected), "{line}: {value:?}");
                        }
                    }
                    let expected = field("multikey").as_document().unwrap().iter();
                    for (ours, (_, theirs)) in multikey_paths(&spec, &multikey).iter().zip(expected) {
                        let theirs: Vec<_> =
                            theirs.as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
                        assert_eq!(*ours, theirs, "{line}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_index_of_a_pattern_holds_every_combination_of_two_arrays() {
        let mut spec = spec(doc! {"a": 1, "b.c": (-1), "d": 1}.as_raw(), false);
        let document = doc! {"a": [1, 2], "b": [{"c": 3}, {"c": [4, 5]}], "d": 9};
        let refused = keys_of(&spec, document.as_raw(), &mut KeySet::default()).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::CannotIndexParallelArrays);
        spec.name = "kilim_pattern_1".to_owned();
        let mut set = KeySet::default();
        let multikey = keys_of(&spec, document.as_raw(), &mut set).unwrap();
        assert_eq!(set.len(), 6);
        assert_eq!(multikey.bits, [0b1, 0b11, 0]);
        assert!(!multikey.is_of_first_part_only());
        let found = keys(&spec, &document);
        assert_eq!(
            found[0].iter().map(|value| format!("{value:?}")).collect::<Vec<_>>(),
            ["Int32(1)", "Int32(5)", "Int32(9)"]
        );
    }

    #[test]
    fn too_many_combinations_leave_the_first_part() {
        let mut spec = spec(doc! {"a": 1, "b": 1}.as_raw(), false);
        spec.name = "kilim_pattern_1".to_owned();
        let numbers = |count: i32| (0..count).map(Value::Int32).collect::<kilim_bson::Array>();
        let mut set = KeySet::default();
        let document = doc! {"a": numbers(500), "b": numbers(500)};
        let multikey = keys_of(&spec, document.as_raw(), &mut set).unwrap();
        assert_eq!(set.len(), 500);
        assert!(multikey.is_of_first_part_only() && multikey.is_multikey());
        let known = Multikey::default().union(&multikey);
        assert!(known.is_of_first_part_only() && known.covers(&multikey) && !known.has_long_keys());
    }

    #[test]
    fn a_partial_index_holds_what_its_filter_matches() {
        let mut spec = spec(doc! {"a": 1}.as_raw(), false);
        let filter = doc! {"b": {"$gt": 1}};
        spec.partial = Some((filter.clone(), Filter::parse(filter.as_raw()).unwrap()));
        assert_eq!(keys(&spec, &doc! {"a": 5, "b": 1}).len(), 0);
        assert_eq!(keys(&spec, &doc! {"a": 5, "b": 2}).len(), 1);
    }

    #[test]
    fn descending_keys_sort_the_other_way() {
        let spec = spec(doc! {"a": (-1)}.as_raw(), false);
        let found = keys(&spec, &doc! {"a": [1, 3, 2]});
        let found: Vec<String> = found.iter().map(|key| format!("{:?}", key[0])).collect();
        assert_eq!(found, ["Int32(3)", "Int32(2)", "Int32(1)"]);
    }

    #[test]
    fn a_set_finds_its_keys_with_and_without_types() {
        let spec = spec(doc! {"a": 1}.as_raw(), false);
        let (mut ints, mut doubles) = (KeySet::default(), KeySet::default());
        keys_of(&spec, doc! {"a": [1, 2, 3]}.as_raw(), &mut ints).unwrap();
        keys_of(&spec, doc! {"a": [2.0, 4.0]}.as_raw(), &mut doubles).unwrap();
        let found: Vec<(bool, bool)> = doubles
            .iter()
            .map(|(key, bits)| (ints.contains(key), ints.contains_with_bits(key, bits)))
            .collect();
        assert_eq!(found, [(true, false), (false, false)]);
    }
}
