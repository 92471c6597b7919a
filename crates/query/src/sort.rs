//! Sorts: which fields, which way, and the key by which documents compare.
//!
//! A document's key is the smallest, in the sort's own order, of the keys that its arrays give: an
//! ascending sort takes the least element, a descending one the greatest, a compound one the best
//! combination. A missing field counts as null, an empty array as undefined.
//!
//! Invariant: keys compare by their bytes as documents compare by the sort.

use std::sync::Arc;

use kilim_bson::{
    Array, Collator, Component, KeyDecoder, KeyEncoder, Path, RawArray, RawDocument, RawValue, Value, Writer,
    encode_value_with,
};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::{FoundBy, Scope, check_available};
use crate::filter::number::{self, display, display_document};
use crate::interrupt;
use crate::path::check_field_path;

/// Index keys have no more fields than this, and a sort must fit an index.
const PARTS_MAX: usize = 32;

#[derive(Debug, Clone)]
pub struct Sort {
    parts: Vec<SortPart>,
    natural: bool,
    /// How texts compare.
    collation: Option<Collation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPart {
    /// For a score and for a pair a name that no field has.
    pub path: Path,
    pub descending: bool,
    /// By what is known of documents beside their fields, the greatest first.
    pub score: Option<Score>,
    /// By a value that is stored in an array of names and values.
    pub pair: Option<Arc<Pair>>,
}

/// A value that users know by a path, in documents that have it in an array of names and values: `[{k: name, v: value}]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// As users name it. Documents without the array may have it there.
    pub path: Path,
    /// The names of the documents that lead to the array, and its own.
    pub array: Path,
    pub name: Box<str>,
    /// From the element to the value: `v`, and the path within it.
    pub value: Path,
}

impl Pair {
    /// The value, up to the first array, with what is left of the path there.
    fn find<'a>(&self, document: RawDocument<'a>) -> (Option<RawValue<'a>>, &[Component]) {
        let array = match value_or_array_at(document, self.array.components()) {
            (Some(RawValue::Array(array)), []) => Some(array),
            _ => None,
        };
        let is_named = |element: &RawDocument<'a>| {
            element.get("k").and_then(RawValue::as_str).is_some_and(|name| *name == *self.name)
        };
        let element = array.and_then(|array| array.iter().filter_map(RawValue::as_document).find(is_named));
        match element {
            Some(element) => value_or_array_at(element, self.value.components()),
            None => value_or_array_at(document, self.path.components()),
        }
    }
}

/// What documents have beside their fields to be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    /// How well they match a `$text`.
    Text,
    /// How far they are.
    Distance,
}

impl Score {
    /// What `$meta` calls it.
    fn name(self) -> &'static str {
        match self {
            Score::Text => "textScore",
            Score::Distance => "geoNearDistance",
        }
    }
}

impl SortPart {
    /// The path that users know.
    pub fn user_path(&self) -> &str {
        self.pair.as_ref().map_or(self.path.as_str(), |pair| pair.path.as_str())
    }

    /// The value by which a document is sorted, null where it is missing; nothing if an array is met.
    fn scalar_of<'a>(&self, document: RawDocument<'a>) -> Option<RawValue<'a>> {
        let found = match &self.pair {
            None => return scalar_at(document, self.path.components()),
            Some(pair) => pair.find(document).0,
        };
        match found {
            Some(RawValue::Array(_)) => None,
            found => Some(found.unwrap_or(RawValue::Null)),
        }
    }

    /// As explain shows it.
    pub fn append_to(&self, out: &mut Writer) {
        let direction = if self.descending { -1 } else { 1 };
        match self.score {
            None => out.append(self.user_path(), RawValue::Int32(direction)),
            Some(score) => {
                out.open_document(self.path.as_str());
                out.append("$meta", RawValue::String(score.name()));
                out.close();
            }
        }
    }
}

impl Sort {
    /// A sort by the collation of a scope.
    pub fn parse_in(spec: RawDocument<'_>, scope: &Scope<'_>) -> Result<Sort> {
        Ok(Sort { collation: scope.collation().clone(), ..Sort::parse_with(spec, scope.found_by())? })
    }

    pub fn parse(spec: RawDocument<'_>) -> Result<Sort> {
        Sort::parse_with(spec, FoundBy::Fields)
    }

    fn parse_with(spec: RawDocument<'_>, found_by: FoundBy) -> Result<Sort> {
        if let Some(direction) = spec.get("$natural") {
            if spec.iter().nth(1).is_some() {
                return Err(Error::user(
                    ErrorCode::BadValue,
                    format!("Cannot include '$natural' in compound sort: {}", display_document(spec)),
                ));
            }
            let descending = direction.is_number() && number::to_f64(direction) < 0.0;
            return Ok(Sort {
                parts: vec![SortPart { path: Path::parse("$natural"), descending, score: None, pair: None }],
                natural: true,
                collation: None,
            });
        }
        let mut parts: Vec<SortPart> = Vec::new();
        for (name, value) in spec.iter() {
            let scores = parts.iter().filter(|part| part.score.is_some()).count();
            let score = value.as_document().map(|meta| score_of(meta, found_by)).transpose()?.flatten();
            parts.push(match score {
                Some(_) => SortPart {
                    path: Path::parse(&format!("$computed{scores}")),
                    descending: true,
                    score,
                    pair: None,
                },
                None => parse_part(name, value)?,
            });
        }
        if parts.len() > PARTS_MAX {
            return Err(Error::location(13103, "too many compound keys"));
        }
        Ok(Sort { parts, natural: false, collation: None })
    }

    /// How texts compare; none where they do by their bytes.
    pub fn collation(&self) -> &Option<Collation> {
        &self.collation
    }

    pub(crate) fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
    }

    /// The fields in order of weight; for a natural sort the one pseudo-field `$natural`.
    pub fn parts(&self) -> &[SortPart] {
        &self.parts
    }

    /// The sort by its first fields alone.
    pub fn leading(&self, parts: usize) -> Sort {
        Sort { parts: self.parts[..parts].to_vec(), ..self.clone() }
    }

    /// Whether it is the order of insertion, or its reverse. Documents have no key for it.
    pub fn is_natural(&self) -> bool {
        self.natural
    }

    /// Whether any order will do.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether documents are sorted by how well they match a `$text`.
    pub fn wants_text_score(&self) -> bool {
        self.parts.iter().any(|part| part.score == Some(Score::Text))
    }

    /// Whether that is all they are sorted by, so that the documents need not be looked at.
    pub fn is_by_text_score_alone(&self) -> bool {
        matches!(&self.parts[..], [part] if part.score == Some(Score::Text))
    }

    /// Appends the document's key: comparing such keys as bytes is comparing documents.
    pub fn key_of(&self, document: RawDocument<'_>, out: &mut Vec<u8>) -> Result<()> {
        self.key_with_score(document, None, out)
    }

    /// Appends the key of a document with its score.
    pub fn key_with_score(
        &self,
        document: RawDocument<'_>,
        score: Option<f64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        // As mongod has it, what sorts by `_id` alone takes it for what it is, an array too.
        if let [part] = &self.parts[..]
            && part.path.as_str() == "_id"
        {
            let id = document.get("_id").unwrap_or(RawValue::Null);
            encode_value_with(out, id, part.descending, self.collator());
            return Ok(());
        }
        for part in &self.parts {
            let value = match part.score {
                Some(_) => Some(score_value(score)),
                None => part.scalar_of(document),
            };
            match value {
                Some(value) => encode_value_with(out, value, part.descending, self.collator()),
                None => {
                    out.truncate(start);
                    return self.key_through_arrays(document, score, out);
                }
            }
        }
        Ok(())
    }

    /// Appends how the key begins, where the first of two fields tells that by itself; whether it does.
    pub fn leading_key_of(&self, document: RawDocument<'_>, out: &mut Vec<u8>) -> bool {
        // Of two fields only one can lead through an array, so nothing can be wrong with the other.
        let [first, _] = &self.parts[..] else { return false };
        if self.parts.iter().any(|part| part.score.is_some()) {
            return false;
        }
        match first.scalar_of(document) {
            Some(value) => {
                encode_value_with(out, value, first.descending, self.collator());
                true
            }
            None => false,
        }
    }

    /// The values that the document's key is made of, one for each field. Under a collation its keys stand for texts,
    /// in the form that [`KeyDecoder::next_of`] has for them.
    pub fn values_of(&self, document: RawDocument<'_>) -> Result<Array> {
        let mut smallest =
            Smallest { sort: self, key: None, candidate: Vec::new(), values: Some(Array::new()) };
        smallest.expand(document, self.columns(document, None))?;
        let values = smallest.values.unwrap_or_default();
        match self.collator() {
            None => Ok(values),
            Some(collator) => values.as_raw().iter().map(|value| collated(value, collator)).collect(),
        }
    }

    fn columns<'a>(&self, document: RawDocument<'a>, score: Option<f64>) -> Vec<Column<'a, '_>> {
        let columns = self.parts.iter().map(|part| match (part.score, &part.pair) {
            (Some(_), _) => Column { rest: &[], value: score_value(score), addressed: None },
            (None, None) => Column { rest: part.path.components(), value: RawValue::Null, addressed: None },
            (None, Some(pair)) => {
                let (value, rest) = pair.find(document);
                let addressed = Addressed {
                    array: RawArray::from_document(RawDocument::empty()),
                    value,
                    rest,
                    nested: false,
                };
                Column { rest: part.path.components(), value: RawValue::Null, addressed: Some(addressed) }
            }
        });
        columns.collect()
    }

    /// The sort with some of its paths as pairs, where `pair_of` knows one.
    pub fn with_pairs(&self, pair_of: impl Fn(&str) -> Option<Pair>) -> Option<Sort> {
        let mut is_changed = false;
        let part = |part: &SortPart| match pair_of(part.path.as_str()) {
            Some(pair) if part.score.is_none() && part.pair.is_none() => {
                is_changed = true;
                // No field has this name, and no index is over it.
                let path = Path::parse(&format!("\0{}", pair.path.as_str()));
                SortPart { path, pair: Some(Arc::new(pair)), ..part.clone() }
            }
            _ => part.clone(),
        };
        let parts = self.parts.iter().map(part).collect();
        is_changed.then(|| Sort { parts, ..self.clone() })
    }

    fn key_through_arrays(
        &self,
        document: RawDocument<'_>,
        score: Option<f64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut smallest = Smallest { sort: self, key: None, candidate: Vec::new(), values: None };
        smallest.expand(document, self.columns(document, score))?;
        out.extend_from_slice(&smallest.key.unwrap_or_default());
        Ok(())
    }
}

/// A value with the collation's keys in place of its texts.
fn collated(value: RawValue<'_>, collator: &dyn Collator) -> Result<Value> {
    match value {
        RawValue::String(_) | RawValue::Symbol(_) | RawValue::Document(_) | RawValue::Array(_) => {}
        value => return Ok(value.to_value()),
    }
    let mut encoder = KeyEncoder::new();
    encoder.push_with(value, false, Some(collator));
    let decoder = KeyDecoder::new(encoder.key(), encoder.type_bits());
    decoder
        .and_then(|mut decoder| decoder.next_of(false, true))
        .map_err(|_| Error::bug("a key that was just made cannot be read"))
}

fn parse_part(name: &str, value: RawValue<'_>) -> Result<SortPart> {
    match value {
        RawValue::Document(document) => return Err(refuse_meta(document)),
        value if !value.is_number() => {
            return Err(Error::location(
                15974,
                format!("Illegal key in $sort specification: {name}: {}", display(value)),
            ));
        }
        _ => {}
    }
    let descending = match number::rounded_i64(value) {
        Some(Ok(1)) => false,
        Some(Ok(-1)) => true,
        _ => {
            return Err(Error::location(
                15975,
                "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
            ));
        }
    };
    check_field_path(name)?;
    Ok(SortPart { path: Path::parse(name), descending, score: None, pair: None })
}

/// A score as a value; a document may come without one where `$text` is one of several alternatives.
fn score_value<'a>(score: Option<f64>) -> RawValue<'a> {
    score.map_or(RawValue::Null, RawValue::Double)
}

/// The score that a `$meta` sorts by, if it is one; refuses one that documents found in this way do not have.
fn score_of(document: RawDocument<'_>, found_by: FoundBy) -> Result<Option<Score>> {
    let mut fields = document.iter();
    let (Some(("$meta", RawValue::String(name))), None) = (fields.next(), fields.next()) else {
        return Ok(None);
    };
    let score = [Score::Text, Score::Distance].into_iter().find(|score| score.name() == name);
    score.map(|score| check_available(name, found_by).map(|()| score)).transpose()
}

fn refuse_meta(document: RawDocument<'_>) -> Error {
    match document.iter().next() {
        Some(("$meta", _)) if document.iter().nth(1).is_some() => {
            Error::user(ErrorCode::FailedToParse, "Cannot have additional keys in a $meta sort specification")
        }
        Some(("$meta", RawValue::String("randVal"))) => {
            Error::user(ErrorCode::NotImplemented, "sorting by $meta randVal is not supported yet")
        }
        Some(("$meta", other)) => {
            Error::location(31138, format!("Illegal $meta sort: $meta: {}", display(other)))
        }
        _ => Error::location(17312, "$meta is the only expression supported by $sort right now"),
    }
}

/// The value of a path that meets no array, null where it is missing; nothing if an array is met.
fn scalar_at<'a>(document: RawDocument<'a>, path: &[Component]) -> Option<RawValue<'a>> {
    match value_or_array_at(document, path).0 {
        Some(RawValue::Array(_)) => None,
        Some(value) => Some(value),
        None => Some(RawValue::Null),
    }
}

/// Follows a path through documents, up to the first array, with what is left of the path there.
fn value_or_array_at<'a, 'p>(
    document: RawDocument<'a>,
    path: &'p [Component],
) -> (Option<RawValue<'a>>, &'p [Component]) {
    let (mut document, mut path) = (document, path);
    while let Some((component, rest)) = path.split_first() {
        match document.get(&component.name) {
            Some(RawValue::Document(nested)) if !rest.is_empty() => document = nested,
            Some(value) if rest.is_empty() || matches!(value, RawValue::Array(_)) => {
                return (Some(value), rest);
            }
            _ => return (None, rest),
        }
        path = rest;
    }
    (None, path)
}

/// One part of the key while arrays are expanded.
#[derive(Clone, Copy)]
struct Column<'a, 'p> {
    /// What is left of the path; empty once `value` is known.
    rest: &'p [Component],
    value: RawValue<'a>,
    /// Where the array just entered has an element of the index that `rest` begins with.
    addressed: Option<Addressed<'a, 'p>>,
}

#[derive(Clone, Copy)]
struct Addressed<'a, 'p> {
    array: RawArray<'a>,
    value: Option<RawValue<'a>>,
    rest: &'p [Component],
    /// The addressed element is itself an array, which then is not expanded further.
    nested: bool,
}

struct Smallest<'s> {
    sort: &'s Sort,
    key: Option<Vec<u8>>,
    candidate: Vec<u8>,
    /// What the key is made of, where somebody asks.
    values: Option<Array>,
}

impl<'s> Smallest<'s> {
    /// Resolves every column against one document, and where a path meets an array, once for each of
    /// its elements. Two different arrays would make a product, which is refused.
    fn expand<'a>(&mut self, document: RawDocument<'a>, mut columns: Vec<Column<'a, 's>>) -> Result<()> {
        let mut array: Option<RawArray<'a>> = None;
        let mut through = vec![false; columns.len()];
        let mut expandable = true;
        for (column, through) in columns.iter_mut().zip(&mut through) {
            let Some(first) = column.rest.first() else { continue };
            let own = document.get(&first.name).is_some();
            let (found, rest) = match column.addressed.take() {
                Some(addressed) if own => return Err(ambiguous(&first.name, addressed.array)),
                Some(addressed) => {
                    expandable &= !(addressed.nested && matches!(addressed.value, Some(RawValue::Array(_))));
                    (addressed.value, addressed.rest)
                }
                None => value_or_array_at(document, column.rest),
            };
            match found {
                Some(RawValue::Array(met)) => {
                    if array.is_some_and(|other| !std::ptr::eq(other.as_bytes(), met.as_bytes())) {
                        return Err(Error::user(
                            ErrorCode::BadValue,
                            "cannot sort with keys that are parallel arrays",
                        ));
                    }
                    array = Some(met);
                    *through = true;
                    column.rest = rest;
                }
                found => {
                    column.value = found.unwrap_or(RawValue::Null);
                    column.rest = &[];
                }
            }
        }
        let Some(array) = array else {
            self.offer(&columns);
            return Ok(());
        };
        for (column, _) in columns.iter_mut().zip(&through).filter(|(column, _)| !column.rest.is_empty()) {
            column.addressed = address(array, column.rest);
        }
        if array.is_empty() {
            return self.element(RawValue::Undefined, array, &columns, &through, true);
        }
        array.iter().try_for_each(|element| self.element(element, array, &columns, &through, expandable))
    }

    fn element<'a>(
        &mut self,
        element: RawValue<'a>,
        array: RawArray<'a>,
        columns: &[Column<'a, 's>],
        through: &[bool],
        expandable: bool,
    ) -> Result<()> {
        interrupt::tick()?;
        let mut columns = columns.to_vec();
        for (column, _) in
            columns.iter_mut().zip(through).filter(|(column, through)| **through && column.rest.is_empty())
        {
            column.value = if expandable { element } else { RawValue::Array(array) };
        }
        self.expand(element.as_document().unwrap_or(RawDocument::empty()), columns)
    }

    fn offer(&mut self, columns: &[Column<'_, '_>]) {
        self.candidate.clear();
        for (column, part) in columns.iter().zip(&self.sort.parts) {
            encode_value_with(&mut self.candidate, column.value, part.descending, self.sort.collator());
        }
        if self.key.as_ref().is_none_or(|key| self.candidate < *key) {
            self.key = Some(self.candidate.clone());
            if let Some(values) = &mut self.values {
                *values = columns.iter().map(|column| column.value.to_value()).collect();
            }
        }
    }
}

/// What a path that begins with an index finds in the array, followed up to the next array.
fn address<'a, 'p>(array: RawArray<'a>, path: &'p [Component]) -> Option<Addressed<'a, 'p>> {
    let element = array.get(path[0].index?)?;
    let rest = &path[1..];
    let (value, rest) = match element {
        RawValue::Document(document) if !rest.is_empty() => value_or_array_at(document, rest),
        RawValue::Array(_) => (Some(element), rest),
        value if rest.is_empty() => (Some(value), rest),
        _ => (None, rest),
    };
    Some(Addressed { array, value, rest, nested: matches!(element, RawValue::Array(_)) })
}

fn ambiguous(name: &str, array: RawArray<'_>) -> Error {
    Error::location(
        16746,
        format!(
            "Ambiguous field name found in array (do not use numeric field names in embedded elements in an \
             array), field: '{name}' for array: {}",
            display_document(array.as_document())
        ),
    )
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Document, Value, doc};

    use super::*;

    /// Every expectation is what mongod answers.
    #[test]
    fn documents_sort_as_on_mongod() {
        for (sort, documents, expected) in [
            (
                doc! {"a": 1},
                vec![
                    doc! {"a": 2},
                    doc! {"a": 1},
                    doc! {},
                    doc! {"a": "x"},
                    doc! {"a": null},
                    doc! {"a": []},
                    doc! {"a": [5, 0]},
                    doc! {"a": Value::MinKey},
                    doc! {"a": true},
                    doc! {"a": f64::NAN},
                ],
                vec![7, 5, 2, 4, 9, 6, 1, 0, 3, 8],
            ),
            (
                doc! {"a": -1},
                vec![
                    doc! {"a": 2},
                    doc! {"a": [1, 9]},
                    doc! {},
                    doc! {"a": []},
                    doc! {"a": "x"},
                    doc! {"a": [3]},
                ],
                vec![4, 1, 5, 0, 2, 3],
            ),
            (
                doc! {"a": 1, "b": -1},
                vec![
                    doc! {"a": 1, "b": 1},
                    doc! {"a": 1, "b": 2},
                    doc! {"a": 0, "b": 0},
                    doc! {"a": [1, 0], "b": 5},
                ],
                vec![3, 2, 1, 0],
            ),
            (
                doc! {"a.b": 1},
                vec![
                    doc! {"a": [{"b": 3}, {"b": 1}]},
                    doc! {"a": {"b": 2}},
                    doc! {"a": []},
                    doc! {"a": [{}]},
                    doc! {"a": [1]},
                    doc! {"a": {"b": []}},
                ],
                vec![5, 2, 3, 4, 0, 1],
            ),
            (
                doc! {"a.b": 1, "a.c": -1},
                vec![
                    doc! {"a": [{"b": 1, "c": 1}, {"b": 1, "c": 5}]},
                    doc! {"a": [{"b": 1, "c": 3}, {"b": 0, "c": 0}]},
                    doc! {"a": {"b": 1, "c": 4}},
                ],
                vec![1, 0, 2],
            ),
            (
                doc! {"a.0": 1},
                vec![doc! {"a": [3, 1]}, doc! {"a": [1, 3]}, doc! {"a": {"0": 2}}, doc! {"a": [[0], 9]}],
                vec![1, 2, 0, 3],
            ),
            (
                doc! {"a.1.b": -1},
                vec![doc! {"a": [{"b": 9}, {"b": 1}]}, doc! {"a": [{"b": 1}, {"b": 2}]}, doc! {"a": []}],
                vec![1, 0, 2],
            ),
        ] {
            let parsed = Sort::parse(sort.as_raw()).expect("a sort");
            let mut keyed: Vec<(Vec<u8>, usize)> = Vec::new();
            for (at, document) in documents.iter().enumerate() {
                let mut key = Vec::new();
                parsed.key_of(document.as_raw(), &mut key).expect("a key");
                keyed.push((key, at));
            }
            keyed.sort();
            let order: Vec<usize> = keyed.into_iter().map(|(_, at)| at).collect();
            assert_eq!(order, expected, "{sort:?}");
        }
    }

    #[test]
    fn malformed_sorts_get_the_errors_of_mongod() {
        for (sort, code, message) in [
            (doc! {"a": 2}, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"),
            (doc! {"a": "x"}, 15974, "Illegal key in $sort specification: a: \"x\""),
            (doc! {"a": 0}, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"),
            (doc! {"a": true}, 15974, "Illegal key in $sort specification: a: true"),
            (doc! {"a": null}, 15974, "Illegal key in $sort specification: a: null"),
            (doc! {"a": {}}, 17312, "$meta is the only expression supported by $sort right now"),
            (
                doc! {"a": {"$meta": "textScore"}},
                40218,
                "query requires text score metadata, but it is not available",
            ),
            (doc! {"a": {"$meta": "foo"}}, 31138, "Illegal $meta sort: $meta: \"foo\""),
            (doc! {"a": {"$foo": 1}}, 17312, "$meta is the only expression supported by $sort right now"),
            (doc! {"a": {"x": 1}}, 17312, "$meta is the only expression supported by $sort right now"),
            (
                doc! {"$natural": 1, "a": 1},
                2,
                "Cannot include '$natural' in compound sort: { $natural: 1, a: 1 }",
            ),
            (
                doc! {"a": 1, "$natural": 1},
                2,
                "Cannot include '$natural' in compound sort: { a: 1, $natural: 1 }",
            ),
            (
                doc! {"a.$": 1},
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ),
            (
                doc! {"$a": 1},
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ),
            (doc! {"": 1}, 40352, "FieldPath cannot be constructed with empty string"),
            (doc! {"a.": 1}, 40353, "FieldPath must not end with a '.'."),
            (doc! {".a": 1}, 15998, "FieldPath field names may not be empty strings."),
            (doc! {"a..b": 1}, 15998, "FieldPath field names may not be empty strings."),
            (
                doc! {"a": f64::NAN},
                15975,
                "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
            ),
            (doc! {"a": [1]}, 15974, "Illegal key in $sort specification: a: [ 1 ]"),
            (
                doc! {"a.$b": 1},
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ),
            (
                doc! {"a.b.$c.d": 1},
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ),
            (
                doc! {"$meta": 1},
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ),
            (
                doc! {"a": 1099511627776i64},
                15975,
                "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
            ),
            (doc! {"a": 1e+30}, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"),
            (doc! {"a": {"$meta": 1}}, 31138, "Illegal $meta sort: $meta: 1"),
            (doc! {"a": {"$meta": "recordId"}}, 31138, "Illegal $meta sort: $meta: \"recordId\""),
            (
                doc! {"a": {"$meta": "textScore", "b": 1}},
                9,
                "Cannot have additional keys in a $meta sort specification",
            ),
            (doc! {"a": -2}, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"),
            (doc! {"a": -0.5}, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"),
            (doc! {"a": 0.5}, 15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"),
        ] {
            let error = Sort::parse(sort.as_raw()).expect_err("malformed");
            assert_eq!((error.code().0, error.to_string().as_str()), (code, message), "{sort:?}");
        }
        let many: Document = (0..33)
            .map(|field| format!("f{field}"))
            .collect::<Vec<_>>()
            .iter()
            .map(|name| (&**name, Value::Int32(1)))
            .collect();
        assert_eq!(Sort::parse(many.as_raw()).expect_err("too many").code().0, 13103);
    }

    #[test]
    fn two_arrays_have_no_common_key() {
        let key = |sort: Document, document: Document| {
            let sort = Sort::parse(sort.as_raw()).expect("a sort");
            sort.key_of(document.as_raw(), &mut Vec::new()).map_err(|error| error.code().0)
        };
        assert_eq!(key(doc! {"a": 1, "b": 1}, doc! {"a": [1], "b": [2]}), Err(2));
        assert_eq!(key(doc! {"a": 1, "b": 1}, doc! {"a": [], "b": [2]}), Err(2));
        assert_eq!(key(doc! {"a.b": 1, "a.c": 1}, doc! {"a": [{"b": 1, "c": 2}]}), Ok(()));
        assert_eq!(key(doc! {"a.0": 1}, doc! {"a": [{"0": 1}]}), Err(16746));
    }

    #[test]
    fn natural_order_stands_alone() {
        for (direction, descending) in
            [(Value::Int32(1), false), (Value::Int32(-1), true), (Value::from("x"), false)]
        {
            let sort = Sort::parse(doc! {"$natural": direction}.as_raw()).expect("a sort");
            assert!(sort.is_natural());
            assert_eq!(sort.parts()[0].descending, descending);
        }
    }
}
