//! The keys of a document in an index.
//!
//! Most documents have one key: the value at each path, null where there is none. A path that meets an
//! array fans out: one key per element, all other values repeated. Arrays within arrays fan out
//! again only along the path. An empty array at the end of a path is undefined, to be told from null.
//! A numeric component may name an array position; then the array does not fan out for that path.
//! Two paths may not fan out over different arrays: the keys would be their product.
//! An index with a hashed part holds no arrays; a wildcard index has keys of its own kind.
//!
//! Invariant: a [`KeySet`] is sorted and holds each key once, and equal documents give equal sets.

use std::ops::Range;

use kilim_bson::{
    Collator, KeyDecoder, KeyEncoder, Path, RawArray, RawDocument, RawValue, Rounding, Value, Writer,
};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::hashed_key;

use super::{IndexSpec, Multikey};
use crate::layout;
use kilim_query::text::document as shell_text;

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

    fn slices(&self, entry: &Entry) -> (&[u8], &[u8]) {
        (&self.bytes[entry.key.clone()], &self.bytes[entry.key.end..entry.type_bits_end])
    }

    fn find(&self, key: &[u8]) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| self.slices(entry).0.cmp(key)).ok()?;
        Some(&self.entries[at])
    }

    fn push<'v>(&mut self, spec: &IndexSpec, values: impl Iterator<Item = RawValue<'v>>) -> Result<()> {
        self.encoder.clear();
        let collator = spec.collator();
        for (part, value) in spec.key.iter().zip(values) {
            check_collatable(part.path.as_str(), value, collator)?;
            self.encoder.push_with(value, part.descending, collator);
        }
        self.take_encoded();
        Ok(())
    }

    /// The key of a wildcard index, of values that can be collated.
    pub(super) fn push_pair(
        &mut self,
        around: &Around<'_>,
        path: RawValue<'_>,
        value: RawValue<'_>,
        collator: Option<&dyn Collator>,
    ) {
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
        self.take_encoded();
    }

    fn take_encoded(&mut self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(self.encoder.key());
        let end = self.bytes.len();
        self.bytes.extend_from_slice(self.encoder.type_bits());
        self.entries.push(Entry { key: start..end, type_bits_end: self.bytes.len() });
    }

    fn sort(&mut self) {
        let KeySet { bytes, entries, .. } = self;
        // Stable, so that of equal keys the first element's types stay.
        entries.sort_by(|left, right| bytes[left.key.clone()].cmp(&bytes[right.key.clone()]));
        entries.dedup_by(|later, earlier| bytes[later.key.clone()] == bytes[earlier.key.clone()]);
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
    if let Some((_, filter)) = &spec.partial
        && !filter.matches(document)?
    {
        return Ok(Multikey::default());
    }
    if let Some(wildcard) = &spec.wildcard {
        let multikey = wildcard.add_keys(document, spec.collator(), out)?;
        out.sort();
        return Ok(with_long_keys(multikey, out));
    }
    if spec.is_hashed() {
        push_hashed(spec, document, out)?;
        return Ok(with_long_keys(Multikey::default(), out));
    }
    if let [part] = spec.key.as_slice()
        && let [component] = part.path.components()
    {
        let value = document.get(&component.name);
        match value {
            Some(RawValue::Array(_)) => {}
            None if spec.sparse => return Ok(Multikey::default()),
            value => {
                out.push(spec, std::iter::once(value.unwrap_or(RawValue::Null)))?;
                return Ok(with_long_keys(Multikey::default(), out));
            }
        }
    }
    let fields: Vec<Field<'_>> =
        vec![Field { next: 0, value: RawValue::Null, positional: None }; spec.key.len()];
    let mut fan_out = FanOut { spec, out, multikey: Multikey::default() };
    fan_out.expand(fields, document, 0)?;
    let multikey = fan_out.multikey;
    out.sort();
    Ok(with_long_keys(multikey, out))
}

/// The one key of a document in an index with a hashed part, where arrays may stand nowhere.
fn push_hashed(spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<()> {
    let mut values = Vec::with_capacity(spec.key.len());
    for part in &spec.key {
        let (found, next) = follow(document, &part.path);
        if let Some(RawValue::Array(_)) = found {
            let names: Vec<&str> =
                part.path.components()[..next].iter().map(|component| &*component.name).collect();
            return Err(Error::location(
                16766,
                format!(
                    "Error: hashed indexes do not currently support array values. Found array at path: {}",
                    names.join(".")
                ),
            ));
        }
        values.push(found);
    }
    if spec.sparse && values.iter().all(Option::is_none) {
        return Ok(());
    }
    let values = values.iter().zip(&spec.key).map(|(value, part)| {
        let value = value.unwrap_or(RawValue::Null);
        if part.hashed { RawValue::Int64(hash_of(value, spec.collator())) } else { value }
    });
    out.push(spec, values)
}

/// A value in a hashed part. Values that are equal have one hash, so a decimal counts by its whole part, as other
/// numbers do, and a text by the collator's key for it.
pub fn hash_of(value: RawValue<'_>, collator: Option<&dyn Collator>) -> i64 {
    match (value, collator) {
        (RawValue::Decimal128(number), _) => match number.round_to_whole(Rounding::TowardZero).to_i64() {
            Some(whole) => hashed_key(RawValue::Int64(whole)),
            None => hashed_key(value),
        },
        (RawValue::String(_) | RawValue::Symbol(_) | RawValue::Document(_), Some(collator)) => {
            let mut writer = Writer::new();
            append_collated(&mut writer, "", value, collator);
            hashed_key(writer.finish().get("").expect("a field just written"))
        }
        (value, _) => hashed_key(value),
    }
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

/// Appends the value with the collator's keys in place of texts, each byte as the character of that number.
///
/// Recursion is bounded by the depth of a stored document.
fn append_collated(out: &mut Writer, name: &str, value: RawValue<'_>, collator: &dyn Collator) {
    match value {
        RawValue::String(text) | RawValue::Symbol(text) => {
            let mut key = Vec::with_capacity(text.len() * 2);
            collator.write_key(text, &mut key);
            let key: String = key.into_iter().map(char::from).collect();
            out.append(name, RawValue::String(&key));
        }
        RawValue::Document(document) => {
            out.open_document(name);
            for (name, value) in document {
                append_collated(out, name, value, collator);
            }
            out.close();
        }
        RawValue::Array(array) => {
            out.open_array(name);
            for (name, value) in array.as_document() {
                append_collated(out, name, value, collator);
            }
            out.close();
        }
        value => out.append(name, value),
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

struct FanOut<'s, 'o> {
    spec: &'s IndexSpec,
    out: &'o mut KeySet,
    multikey: Multikey,
}

/// How far a key part has come along its path.
#[derive(Clone, Copy)]
struct Field<'a> {
    /// The component to look up next; the path's length when `value` is settled.
    next: usize,
    value: RawValue<'a>,
    /// Set where the next component is a position in the array being fanned out.
    positional: Option<Positional<'a>>,
}

/// An array element addressed by number, and what the path leads to from there.
#[derive(Clone, Copy)]
struct Positional<'a> {
    array: RawArray<'a>,
    element: RawValue<'a>,
    found: Option<RawValue<'a>>,
    next: usize,
}

impl FanOut<'_, '_> {
    /// Follows every unsettled field from `object` on, to its end or to an array, and fans out over
    /// that array. `missing` counts the fields found absent so far.
    ///
    /// Recursion is bounded by the components of the longest path.
    fn expand<'a>(
        &mut self,
        mut fields: Vec<Field<'a>>,
        object: RawDocument<'a>,
        mut missing: usize,
    ) -> Result<()> {
        let spec = self.spec;
        let mut array: Option<(RawArray<'a>, &str)> = None;
        let mut met_array = vec![false; fields.len()];
        // A position that holds an array is indexed by that array whole.
        let mut whole = false;
        for ((part, field), met_array) in spec.key.iter().zip(&mut fields).zip(&mut met_array) {
            let components = part.path.components();
            if field.next == components.len() {
                continue;
            }
            let (found, nested) = field.follow(object, &part.path)?;
            match found {
                None => {
                    field.next = components.len();
                    field.value = RawValue::Null;
                    missing += 1;
                }
                Some(RawValue::Array(found)) => {
                    let name = &*components[field.next - 1].name;
                    match array {
                        None => array = Some((found, name)),
                        Some((first, first_name)) => {
                            // The same array, not an equal one.
                            if !std::ptr::eq(first.as_bytes(), found.as_bytes()) {
                                return Err(Error::user(
                                    ErrorCode::CannotIndexParallelArrays,
                                    format!("cannot index parallel arrays [{name}] [{first_name}]"),
                                ));
                            }
                        }
                    }
                    *met_array = true;
                    whole |= nested;
                }
                Some(value) => {
                    field.next = components.len();
                    field.value = value;
                }
            }
        }
        let Some((array, _)) = array else {
            if !(spec.sparse && missing == fields.len()) {
                self.out.push(spec, fields.iter().map(|field| field.value))?;
            }
            return Ok(());
        };

        let mut terminal = vec![false; fields.len()];
        for (at, (part, field)) in spec.key.iter().zip(&mut fields).enumerate() {
            if !met_array[at] {
                continue;
            }
            let components = part.path.components();
            terminal[at] = field.next == components.len();
            if terminal[at] {
                if !whole {
                    self.met_array(at, field.next - 1);
                }
                continue;
            }
            let element = components[field.next].index.and_then(|index| array.get(index));
            field.positional = element.map(|element| {
                let (found, next) = follow_value(element, &part.path, field.next + 1);
                Positional { array, element, found, next }
            });
            // An empty array at a named position gives one key, and mongod does not count it.
            if field.positional.is_none() && !(whole && array.is_empty()) {
                self.met_array(at, field.next - 1);
            }
        }
        if array.is_empty() {
            return self.expand_element(
                &fields,
                &terminal,
                RawValue::Undefined,
                RawValue::Undefined,
                missing,
            );
        }
        for element in array.iter() {
            let settled = if whole { RawValue::Array(array) } else { element };
            self.expand_element(&fields, &terminal, settled, element, missing)?;
        }
        Ok(())
    }

    /// Goes on in one element of an array; paths that end at the array are settled.
    fn expand_element<'a>(
        &mut self,
        fields: &[Field<'a>],
        terminal: &[bool],
        settled: RawValue<'a>,
        element: RawValue<'a>,
        missing: usize,
    ) -> Result<()> {
        let mut fields = fields.to_vec();
        for (field, &terminal) in fields.iter_mut().zip(terminal) {
            if terminal {
                field.value = settled;
            }
        }
        self.expand(fields, element.as_document().unwrap_or(RawDocument::empty()), missing)
    }

    fn met_array(&mut self, part: usize, component: usize) {
        let bits = &mut self.multikey.bits;
        bits.resize(self.spec.key.len(), 0);
        bits[part] |= Multikey::bit_of(component);
    }
}

impl<'a> Field<'a> {
    /// Looks the rest of the path up, as far as the next array. Also tells whether a position named
    /// in the path holds an array itself.
    fn follow(&mut self, object: RawDocument<'a>, path: &Path) -> Result<(Option<RawValue<'a>>, bool)> {
        let positional = self.positional.take();
        let in_object = object.get(&path.components()[self.next].name);
        match (in_object, positional) {
            (Some(_), Some(positional)) => Err(Error::location(
                16746,
                format!(
                    "Ambiguous field name found in array (do not use numeric field names in embedded \
                     elements in an array), field: '{}' for array: {}",
                    path.components()[self.next].name,
                    shell_text(positional.array.as_document())
                ),
            )),
            (Some(value), None) => {
                let (found, next) = follow_value(value, path, self.next + 1);
                self.next = next;
                Ok((found, false))
            }
            (None, Some(positional)) => {
                self.next = positional.next;
                let nested = matches!(positional.element, RawValue::Array(_));
                Ok((positional.found, nested))
            }
            (None, None) => Ok((None, false)),
        }
    }
}

/// The value at a path, or the first array on the way to it.
pub(super) fn value_at<'a>(document: RawDocument<'a>, path: &Path) -> Option<RawValue<'a>> {
    follow(document, path).0
}

/// Follows a path to its end, or to the first array. The second result is the component to look up from there.
fn follow<'a>(document: RawDocument<'a>, path: &Path) -> (Option<RawValue<'a>>, usize) {
    match document.get(&path.components()[0].name) {
        Some(value) => follow_value(value, path, 1),
        None => (None, 0),
    }
}

/// Follows a path from the value of its component before `next`: to its end, or to the first array.
/// The second result is the component to look up from there.
fn follow_value<'a>(mut value: RawValue<'a>, path: &Path, mut next: usize) -> (Option<RawValue<'a>>, usize) {
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
    use crate::index::KeyPart;
    use kilim_bson::{Document, doc, identical, parse_extended_json};
    use kilim_query::filter::Filter;

    fn spec(key: RawDocument<'_>, sparse: bool) -> IndexSpec {
        let part = |(path, direction): (&str, RawValue<'_>)| KeyPart {
            path: Path::parse(path),
            descending: matches!(direction, RawValue::Int32(-1)),
            hashed: false,
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
            wildcard: None,
            collation: None,
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
