//! A whole collection in memory, by the values of one field: what a join without an index reads from.
//!
//! Built in one scan, only where the collection fits a bound. Values that are equal have equal bytes, across the
//! numeric types too and under the collation, so the table answers as a filter would.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kilim_bson::{Collator, Path, RawDocument, RawValue, encode_value, encode_value_with};
use kilim_collation::{Collation, collator};
use kilim_error::Result;
use kilim_query::expression::FieldPath;
use kilim_query::stage::foreign_values;
use kilim_storage::Snapshot;

use super::Examined;
use crate::catalog::Collection;
use crate::operator::{ExecContext, Row, RowData};
use crate::records::Records;

/// What one table may hold.
const TABLE_BYTES_MAX: i64 = 100 * 1024 * 1024;
/// What an entry takes beside its record and its key.
const ENTRY_BYTES: usize = 96;

/// By which values a record is found.
#[derive(Clone)]
pub(in crate::pipeline) enum KeyOf {
    /// All that an equality filter on the path compares with.
    Filter(Path),
    /// The one value that the path has in an expression.
    Expression(FieldPath),
}

pub(in crate::pipeline) struct HashTable {
    rows: Vec<Row>,
    by_value: HashMap<Box<[u8]>, Vec<u32>, RandomState>,
    /// Which texts are equal.
    collation: Option<Collation>,
}

impl HashTable {
    /// Whether the collection is known to be too large for a table.
    pub(in crate::pipeline) fn fits(collection: &Collection, snapshot: &Snapshot) -> Result<bool> {
        // A record of such a collection is not all of its document.
        if collection.shape.paged().is_some() {
            return Ok(false);
        }
        let counter = collection.home().counts(snapshot)?;
        Ok(counter.bytes.saturating_add(counter.count.saturating_mul(ENTRY_BYTES as i64)) < TABLE_BYTES_MAX)
    }

    /// None if the collection turns out too large after all.
    pub(in crate::pipeline) fn build(
        collection: &Collection,
        snapshot: &Snapshot,
        key_of: &KeyOf,
        collation: &Option<Collation>,
        examined: &mut Examined,
        context: &mut ExecContext<'_>,
    ) -> Result<Option<HashTable>> {
        let mut table =
            HashTable { rows: Vec::new(), by_value: HashMap::default(), collation: collation.clone() };
        let mut bytes = 0;
        let mut key = Vec::new();
        examined.scans += 1;
        collection.shared.scans.total.add(1);
        for row in collection_rows(collection, snapshot) {
            context.tick()?;
            let row = row?;
            examined.documents += 1;
            let position = table.rows.len() as u32;
            bytes += row.document().as_bytes().len();
            key_of.visit(row.document(), &mut |value| {
                key.clear();
                value.encode(&mut key, collator(collation));
                bytes += table.note(&key, position);
            });
            table.rows.push(row);
            if bytes as i64 > TABLE_BYTES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(table))
    }

    /// Notes a record under a key; what that takes.
    fn note(&mut self, key: &[u8], position: u32) -> usize {
        match self.by_value.get_mut(key) {
            Some(known) => {
                if known.last() != Some(&position) {
                    known.push(position);
                }
                size_of::<u32>()
            }
            None => {
                self.by_value.insert(key.into(), vec![position]);
                ENTRY_BYTES + key.len()
            }
        }
    }

    /// The positions of the records under an encoded value.
    fn positions(&self, key: &[u8]) -> &[u32] {
        self.by_value.get(key).map_or(&[], |positions| &positions[..])
    }

    /// Appends the records under the value that an expression gave, or under none.
    pub(in crate::pipeline) fn find_value(&self, value: Option<RawValue<'_>>, found: &mut Vec<Row>) {
        let mut key = Vec::new();
        value.map_or(Key::Missing, Key::Value).encode(&mut key, collator(&self.collation));
        self.find(std::iter::once(&key[..]), found);
    }

    /// Appends the records under some of these values, in their order in the collection.
    pub(in crate::pipeline) fn find<'k>(
        &self,
        mut keys: impl ExactSizeIterator<Item = &'k [u8]>,
        found: &mut Vec<Row>,
    ) {
        let rows = |positions: &[u32], found: &mut Vec<Row>| {
            found.extend(positions.iter().map(|&position| self.rows[position as usize].clone()));
        };
        if keys.len() == 1 {
            return keys.by_ref().for_each(|key| rows(self.positions(key), found));
        }
        let mut positions: Vec<u32> = keys.flat_map(|key| self.positions(key)).copied().collect();
        positions.sort_unstable();
        positions.dedup();
        rows(&positions, found);
    }
}

/// All rows as they are stored, in the order of their insertion: for collections of which nothing is pending.
pub(in crate::pipeline) fn collection_rows(
    collection: &Collection,
    snapshot: &Snapshot,
) -> impl Iterator<Item = Result<Row>> + use<> {
    Records::new(collection.home(), snapshot).all().map(|row| {
        let (id, image) = row?;
        Ok(Row::new(id, RowData::Record(image)))
    })
}

/// A value by which a record is found.
enum Key<'a> {
    Value(RawValue<'a>),
    /// A filter for null finds undefined too.
    Undefined,
    Missing,
}

impl Key<'_> {
    fn encode(&self, out: &mut Vec<u8>, collator: Option<&dyn Collator>) {
        match self {
            Key::Value(value) => encode_value_with(out, *value, false, collator),
            Key::Undefined => encode_value(out, RawValue::Null, false),
            // Expressions take nothing for undefined.
            Key::Missing => encode_value(out, RawValue::Undefined, false),
        }
    }
}

impl KeyOf {
    fn visit(&self, document: RawDocument<'_>, note: &mut dyn FnMut(Key<'_>)) {
        match self {
            KeyOf::Filter(path) => foreign_values(document, path, &mut |value| {
                if matches!(value, RawValue::Undefined) {
                    note(Key::Undefined);
                }
                note(Key::Value(value));
            }),
            KeyOf::Expression(path) => match path.evaluate(document).raw() {
                Some(value) => note(Key::Value(value)),
                None => note(Key::Missing),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Document, ElementType, Value, doc};
    use kilim_query::filter::{Comparison, Filter, Predicate};

    use super::*;

    fn values() -> Vec<Value> {
        let list = doc! {"v": [
            null, 0, 1, 1i64, 1.0, 2.5, "a", "b", true, [], [1], [1, 2], [[1]], [null], {}, {"x": 1}, {"x": 1.0},
            {"x": [1, 2]}, [{"x": 1}, {"x": "a"}], [{"x": []}], {"x": null}, [{"y": 1}], [[{"x": 1}]],
        ]};
        let list = list.get("v").and_then(RawValue::as_array).expect("an array");
        list.iter().map(RawValue::to_value).chain([Value::Double(f64::NAN), Value::Undefined]).collect()
    }

    fn keys(document: &Document, path: &str) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        KeyOf::Filter(Path::parse(path)).visit(document.as_raw(), &mut |key| {
            let mut bytes = Vec::new();
            key.encode(&mut bytes, None);
            keys.push(bytes);
        });
        keys
    }

    #[test]
    fn a_record_is_under_the_values_that_a_filter_finds_it_by() {
        for held in values() {
            let mut document = Document::new();
            document.push("v", held);
            for document in [&document, &Document::new()] {
                for path in ["v", "v.x", "v.0", "v.0.x"] {
                    let keys = keys(document, path);
                    for value in values() {
                        // No filter can ask for it.
                        if value.as_raw().element_type() == ElementType::Undefined {
                            continue;
                        }
                        let mut key = Vec::new();
                        encode_value(&mut key, value.as_raw(), false);
                        let predicate = Predicate::Compare(Comparison::Eq, value.clone().into());
                        let filter = Filter::Field { path: Path::parse(path), predicate };
                        let matches = filter.matches(document.as_raw()).expect("no expression");
                        assert_eq!(keys.contains(&key), matches, "{path}: {value:?} in {document:?}");
                    }
                }
            }
        }
    }
}
