//! How patterns read: within a write that holds what it relies on, or in a snapshot that nobody holds.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::Result;
use kilim_patterns::{Due, Place, Reader};
use kilim_storage::{Snapshot, Space};

use super::carry::Side;
use super::carry::Touched;
use super::look::find_by_unique;
use super::sources::Use;
use super::sources::find_unique;
use crate::catalog::Collection;
use crate::layout;
use crate::patches::await_deletion;
use crate::patterns::Pattern;
use crate::unit::{Unit, pending};

/// The write path's reader. What it reads does not change before the commit; a conflict ends the attempt.
pub(crate) struct HoldingReader<'r, 'e> {
    pub unit: &'r mut Unit<'e>,
    pub pattern: &'r Arc<Pattern>,
    /// The documents that the change has touched so far: what is stored of them is of the past.
    pub touched: &'r [Touched],
}

impl Reader for HoldingReader<'_, '_> {
    fn source(&mut self, key: RawValue<'_>) -> Result<Option<Document>> {
        let Some((source, field)) = self.pattern.sources_found_by() else { return Ok(None) };
        let own = self.touched.iter().filter(|one| one.collection.namespace == *source);
        let images = own.map(|one| (one.on(Side::Before), one.on(Side::After)));
        if let Some(found) = source_among(images, field, key) {
            return Ok(found.map(RawDocument::to_document));
        }
        match find_unique(self.unit, source, field, key, Use::Copy)? {
            Some(newest) => Ok(Some(newest.document)),
            None => await_deletion(self.unit, self.pattern, key).map(|()| None),
        }
    }

    fn pending(&mut self, key: RawValue<'_>) -> Result<Option<Due>> {
        let key = kilim_patterns::key_bytes(key);
        self.unit.hold_shared(Space::Meta, &layout::pending_key(self.pattern.id, &key))?;
        Ok(pending::newest(self.unit, self.pattern.id, &key)?.map(|pending| pending.due))
    }
}

/// The source with a key as a change leaves it, given the images of the sources that it touches. None where it touches none
/// that has this key or had it. Patterns that keep what is copied from it have run.
pub(crate) fn source_among<'d>(
    images: impl Iterator<Item = (Option<RawDocument<'d>>, Option<RawDocument<'d>>)> + Clone,
    field: &str,
    key: RawValue<'_>,
) -> Option<Option<RawDocument<'d>>> {
    let has_key = |document: &RawDocument<'d>| kilim_patterns::has_value(*document, field, key);
    if let Some(after) = images.clone().filter_map(|(_, after)| after).find(has_key) {
        return Some(Some(after));
    }
    images.filter_map(|(before, _)| before).any(|before| has_key(&before)).then_some(None)
}

/// A reader of what a snapshot has: for checks and estimates.
pub(crate) struct SnapshotReader<'r> {
    pub snapshot: &'r Snapshot,
    pub source: Option<&'r Collection>,
    pub pattern: &'r Pattern,
}

impl Reader for SnapshotReader<'_> {
    fn source(&mut self, key: RawValue<'_>) -> Result<Option<Document>> {
        match (self.source, self.pattern.kind().found_by()) {
            (Some(source), Some((Place::Source, field))) => find_by_unique(self.snapshot, source, field, key),
            _ => Ok(None),
        }
    }

    fn pending(&mut self, key: RawValue<'_>) -> Result<Option<Due>> {
        let key = kilim_patterns::key_bytes(key);
        Ok(crate::patterns::in_snapshot(self.snapshot, self.pattern.id, &key)?.map(|pending| pending.due))
    }
}
