//! The nodes of a tree as a snapshot has them: by the indexes that the declaration wanted, or over all records where one is
//! missing. Labels are those that are seen, where a job has yet to write others ([`Shift`]).

use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::{Document, RawValue, compare, encode_value};
use kilim_error::Result;
use kilim_patterns::{LabelSide, Shift, StoredRange, Tree, stored_ranges};
use kilim_storage::{Direction, Snapshot, Space};

use super::look::find_by_unique;
use crate::catalog::{Collection, RecordId};
use crate::index::Index;
use crate::layout;
use crate::patterns::Pattern;
use crate::records::Records;

/// Behind every key that begins with what stands before it.
const BEHIND: u8 = 0xFF;

/// A tree's documents in one snapshot.
pub(crate) struct TreeLook<'l> {
    pub tree: &'l Tree,
    pub collection: &'l Collection,
    pub snapshot: &'l Snapshot,
    pub shifts: &'l [Shift],
}

/// A label takes no more in a key.
const LABEL_KEY_BYTES: usize = 16;

/// The labels of a tree that a job has yet to write, in one snapshot.
pub(crate) fn shifts_in(snapshot: &Snapshot, pattern: &Pattern) -> Result<Vec<Shift>> {
    if pattern.kind().tree().and_then(Tree::label_paths).is_none() {
        return Ok(Vec::new());
    }
    let all = crate::patterns::all_of(snapshot, pattern.id)?;
    Ok(all.iter().filter_map(|pending| Shift::of(&pending.due)).collect())
}

/// A document and where it is stored.
pub(crate) type Stored = (RecordId, Document);

impl TreeLook<'_> {
    pub fn node(&self, id: RawValue<'_>) -> Result<Option<Document>> {
        Ok(find_by_unique(self.snapshot, self.collection, "_id", id)?.map(|document| self.seen(document)))
    }

    /// A document with the labels that are seen.
    pub fn seen(&self, document: Document) -> Document {
        self.tree.shifted(document.as_raw(), self.shifts).unwrap_or(document)
    }

    /// The documents that may name this parent.
    pub fn children(&self, id: RawValue<'_>) -> Result<Vec<Stored>> {
        let mut bytes = Vec::new();
        encode_value(&mut bytes, id, false);
        let index = self.index_over(&[self.tree.parent_path()]);
        let is_told = |index: &&Arc<Index>| bytes.len() <= layout::KEY_BYTES_MAX && tells(index, id);
        let Some(index) = index.filter(is_told) else {
            return self.all(|document| {
                let parent = self.tree.parent_of(document.as_raw()).unwrap_or(RawValue::Null);
                compare(parent, id).is_eq()
            });
        };
        self.with_key(index, &bytes)
    }

    /// The documents that may name this parent and have this order key.
    pub fn children_at(&self, id: RawValue<'_>, order: i64) -> Result<Vec<Stored>> {
        let mut bytes = Vec::new();
        encode_value(&mut bytes, id, false);
        encode_value(&mut bytes, RawValue::Int64(order), false);
        let path = self.tree.order_path().unwrap_or_default();
        let index = self.index_over(&[self.tree.parent_path(), path]);
        let is_told = |index: &&Arc<Index>| bytes.len() <= layout::KEY_BYTES_MAX && tells(index, id);
        match index.filter(is_told) {
            Some(index) => self.with_key(index, &bytes),
            // A tree that was declared by an older program.
            None => self.children(id),
        }
    }

    /// The documents whose keys in an index begin with these bytes.
    fn with_key(&self, index: &Index, bytes: &[u8]) -> Result<Vec<Stored>> {
        let mut lower = layout::index_prefix(index.id).to_vec();
        lower.extend_from_slice(bytes);
        let mut upper = lower.clone();
        upper.push(BEHIND);
        let mut found = Vec::new();
        self.scan(index, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward, |stored| {
            found.push(stored);
            false
        })?;
        Ok(found)
    }

    /// The nearest label on a side, of documents that `counts` lets pass.
    pub fn next_label(
        &self,
        scope: RawValue<'_>,
        from: i64,
        side: LabelSide,
        counts: impl Fn(RecordId) -> bool,
    ) -> Result<Option<i64>> {
        let Some(paths) = self.tree.label_paths() else { return Ok(None) };
        let mut nearest: Option<i64> = None;
        let mut offer = |label: i64| {
            nearest = Some(match side {
                LabelSide::Below => nearest.map_or(label, |known| known.max(label)),
                LabelSide::Above => nearest.map_or(label, |known| known.min(label)),
            });
        };
        let lies_there = |label: i64| match side {
            LabelSide::Below => label < from,
            LabelSide::Above => label > from,
        };
        for (end, path) in paths.into_iter().enumerate() {
            let Some(index) = self.label_index(scope, path) else {
                for (record, document) in self.all(|document| self.is_in(scope, document))? {
                    let labels = self.tree.labels(document.as_raw()).filter(|_| counts(record));
                    labels.into_iter().flatten().filter(|label| lies_there(*label)).for_each(&mut offer);
                }
                break;
            };
            let (from, to, direction) = match side {
                LabelSide::Below => (i64::MIN, from.saturating_sub(1), Direction::Backward),
                LabelSide::Above => (from.saturating_add(1), i64::MAX, Direction::Forward),
            };
            for range in stored_ranges(self.shifts, scope, from, to) {
                self.scan_labels(index, scope, range, direction, |(record, document)| {
                    let is_own = counts(record) && self.is_in(scope, &document);
                    let labels = self.tree.labels(document.as_raw()).filter(|_| is_own);
                    match labels.map(|labels| labels[end]).filter(|label| lies_there(*label)) {
                        Some(label) => {
                            offer(label);
                            true
                        }
                        None => false,
                    }
                })?;
            }
        }
        Ok(nearest)
    }

    /// The documents of a scope with a label in a range.
    pub fn labelled(&self, scope: RawValue<'_>, from: i64, to: i64) -> Result<Vec<Stored>> {
        self.labelled_within(scope, &stored_ranges(self.shifts, scope, from, to), |labels| {
            labels.iter().any(|label| (from..=to).contains(label))
        })
    }

    /// The documents of a scope whose labels a job has yet to write.
    pub fn shifted(&self, shift: &Shift) -> Result<Vec<Stored>> {
        let stored = [StoredRange { from: shift.from, to: shift.to }];
        let seen = shift.from + shift.by..=shift.to + shift.by;
        self.labelled_within(shift.scope.as_raw(), &stored, |labels| seen.contains(&labels[0]))
    }

    /// The documents of a scope with labels that are wanted, given where these are stored.
    fn labelled_within(
        &self,
        scope: RawValue<'_>,
        ranges: &[StoredRange],
        is_wanted: impl Fn([i64; 2]) -> bool,
    ) -> Result<Vec<Stored>> {
        let Some(paths) = self.tree.label_paths() else { return Ok(Vec::new()) };
        let inside = |document: &Document| self.tree.labels(document.as_raw()).is_some_and(&is_wanted);
        let mut found: Vec<Stored> = Vec::new();
        for path in paths {
            let Some(index) = self.label_index(scope, path) else {
                return self.all(|document| inside(document) && self.is_in(scope, document));
            };
            for range in ranges {
                self.scan_labels(index, scope, *range, Direction::Forward, |stored| {
                    if inside(&stored.1) && self.is_in(scope, &stored.1) {
                        found.push(stored);
                    }
                    false
                })?;
            }
        }
        found.sort_by_key(|(record, _)| *record);
        found.dedup_by_key(|(record, _)| *record);
        Ok(found)
    }

    /// Visits the documents of a scope with a stored label in a range, until `visit` has seen enough.
    fn scan_labels(
        &self,
        index: &Index,
        scope: RawValue<'_>,
        range: StoredRange,
        direction: Direction,
        visit: impl FnMut(Stored) -> bool,
    ) -> Result<()> {
        let lower = self.bound(index, scope, Some(range.from).filter(|from| *from > i64::MIN));
        let mut upper = self.bound(index, scope, Some(range.to).filter(|to| *to < i64::MAX));
        upper.push(BEHIND);
        self.scan(index, Bound::Included(&lower), Bound::Excluded(&upper), direction, visit)
    }

    /// The documents of a scope.
    pub fn all_in(&self, scope: RawValue<'_>) -> Result<Vec<Stored>> {
        self.all(|document| self.is_in(scope, document))
    }

    pub fn is_in(&self, scope: RawValue<'_>, document: &Document) -> bool {
        compare(self.tree.scope_of(document.as_raw()).as_raw(), scope).is_eq()
    }

    /// All documents that are wanted.
    fn all(&self, wanted: impl Fn(&Document) -> bool) -> Result<Vec<Stored>> {
        let mut found = Vec::new();
        for row in Records::new(self.collection.home(), self.snapshot).all() {
            let (id, image) = row?;
            let document = self.seen(image.document().to_document());
            if wanted(&document) {
                found.push((id.record, document));
            }
        }
        Ok(found)
    }

    /// Visits the documents of a range of an index, until `visit` has seen enough.
    fn scan(
        &self,
        index: &Index,
        lower: Bound<&Vec<u8>>,
        upper: Bound<&Vec<u8>>,
        direction: Direction,
        mut visit: impl FnMut(Stored) -> bool,
    ) -> Result<()> {
        let records = Records::new(self.collection.home(), self.snapshot);
        let (lower, upper) = (lower.map(|key| &key[..]), upper.map(|key| &key[..]));
        for entry in self.snapshot.scan(Space::Index, lower, upper, direction) {
            let (key, value) = entry?;
            let record = layout::record_id_of(if index.spec.unique { &value[..8] } else { &key });
            let Some(image) = records.get(record.into())? else { continue };
            if visit((record, self.seen(image.document().to_document()))) {
                break;
            }
        }
        Ok(())
    }

    /// Where the labels of a scope begin in an index, or one of them.
    fn bound(&self, index: &Index, scope: RawValue<'_>, label: Option<i64>) -> Vec<u8> {
        let mut bound = layout::index_prefix(index.id).to_vec();
        if self.tree.scope_path().is_some() {
            encode_value(&mut bound, scope, false);
        }
        if let Some(label) = label {
            encode_value(&mut bound, RawValue::Int64(label), false);
        }
        bound
    }

    /// The index over the labels of a scope. None where its keys do not tell that scope: an array is there by its elements, and
    /// of a very long value there is a part.
    fn label_index(&self, scope: RawValue<'_>, path: &str) -> Option<&Arc<Index>> {
        if self.tree.scope_path().is_some() {
            let mut bytes = Vec::new();
            encode_value(&mut bytes, scope, false);
            if matches!(scope, RawValue::Array(_)) || bytes.len() + LABEL_KEY_BYTES > layout::KEY_BYTES_MAX {
                return None;
            }
        }
        let paths: Vec<&str> = self.tree.scope_path().into_iter().chain([path]).collect();
        self.index_over(&paths).filter(|index| self.tree.scope_path().is_none() || tells(index, scope))
    }

    /// An index whose keys begin with these paths and has one for every document.
    fn index_over(&self, paths: &[&str]) -> Option<&Arc<Index>> {
        self.collection.indexes.iter().find(|index| {
            let spec = &index.spec;
            let parts = spec.key.iter().take(paths.len()).zip(paths);
            spec.key.len() >= paths.len()
                && parts.clone().all(|(part, path)| part.path.as_str() == *path && !part.descending)
                && !spec.sparse
                && spec.partial.is_none()
                && spec.has_plain_keys()
                && index.ready_since <= self.snapshot.commit_time()
        })
    }
}

/// Whether an index has a key for every document with this value, which is no array. A document whose path leads through an array
/// has none for a tree, and another one in the index.
fn tells(index: &Index, value: RawValue<'_>) -> bool {
    !matches!(value, RawValue::Null | RawValue::Undefined) || !index.multikey.is_multikey()
}
