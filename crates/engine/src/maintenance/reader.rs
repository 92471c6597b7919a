//! How patterns read: within a write that holds what it relies on, or in a snapshot, where nothing is held.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::Result;
use kilim_patterns::{Due, LabelSide, Nodes, Reader, Role, Shift};
use kilim_storage::{Snapshot, Space};

use super::evaluation::Side;
use super::evaluation::Touched;
use super::look::find_by_unique;
use super::look_at_trees::{TreeLook, shifts_in};
use super::sources::Use;
use super::sources::find_unique;
use crate::catalog::Collection;
use crate::layout;
use crate::patches::await_deletion;
use crate::patterns::Pattern;
use crate::unit::{Unit, pending};

/// The write path's reader. It holds what it reads until the commit; a conflict ends the attempt.
pub(crate) struct HoldingReader<'r, 'e> {
    pub unit: &'r mut Unit<'e>,
    pub pattern: &'r Arc<Pattern>,
    /// The documents that the change has touched so far. Their stored versions are outdated.
    pub touched: &'r [Touched],
}

/// The write path reads trees in [`super::trees`].
impl Nodes for HoldingReader<'_, '_> {}

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

/// The source with a key after a change, given the images of the sources that the change touches. None if no touched source
/// has or had this key; `Some(None)` if the source with this key is gone. The patterns that maintain the fields which are
/// copied from it were evaluated before.
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

/// A reader of a snapshot: for checks and estimates.
pub(crate) struct SnapshotReader<'r> {
    pub snapshot: &'r Snapshot,
    pub source: Option<&'r Collection>,
    pub target: Option<&'r Collection>,
    pub pattern: &'r Pattern,
    /// The labels of a tree that a job has yet to write.
    shifts: Vec<Shift>,
}

impl<'r> SnapshotReader<'r> {
    pub fn new(
        snapshot: &'r Snapshot,
        source: Option<&'r Collection>,
        target: Option<&'r Collection>,
        pattern: &'r Pattern,
    ) -> Result<SnapshotReader<'r>> {
        let shifts = shifts_in(snapshot, pattern)?;
        Ok(SnapshotReader { snapshot, source, target, pattern, shifts })
    }

    fn look(&self) -> Option<TreeLook<'_>> {
        let (tree, collection) = (self.pattern.kind().tree()?, self.target?);
        Some(TreeLook { tree, collection, snapshot: self.snapshot, shifts: &self.shifts })
    }
}

impl Nodes for SnapshotReader<'_> {
    fn node(&mut self, id: RawValue<'_>) -> Result<Option<Document>> {
        self.look().map_or(Ok(None), |look| look.node(id))
    }

    fn children(&mut self, id: RawValue<'_>) -> Result<Vec<Document>> {
        let Some(look) = self.look() else { return Ok(Vec::new()) };
        Ok(look.children(id)?.into_iter().map(|(_, document)| document).collect())
    }

    fn children_at(&mut self, id: RawValue<'_>, order: i64) -> Result<Vec<Document>> {
        let Some(look) = self.look() else { return Ok(Vec::new()) };
        Ok(look.children_at(id, order)?.into_iter().map(|(_, document)| document).collect())
    }

    fn next_label(&mut self, scope: RawValue<'_>, from: i64, side: LabelSide) -> Result<Option<i64>> {
        self.look().map_or(Ok(None), |look| look.next_label(scope, from, side, |_| true))
    }

    fn labelled(&mut self, scope: RawValue<'_>, from: i64, to: i64) -> Result<Vec<Document>> {
        let Some(look) = self.look() else { return Ok(Vec::new()) };
        Ok(look.labelled(scope, from, to)?.into_iter().map(|(_, document)| document).collect())
    }

    fn all(&mut self, scope: RawValue<'_>) -> Result<Vec<Document>> {
        let Some(look) = self.look() else { return Ok(Vec::new()) };
        Ok(look.all_in(scope)?.into_iter().map(|(_, document)| document).collect())
    }
}

impl Reader for SnapshotReader<'_> {
    fn source(&mut self, key: RawValue<'_>) -> Result<Option<Document>> {
        match (self.source, self.pattern.kind().found_by()) {
            (Some(source), Some((Role::Source, field))) => find_by_unique(self.snapshot, source, field, key),
            _ => Ok(None),
        }
    }

    fn pending(&mut self, key: RawValue<'_>) -> Result<Option<Due>> {
        let key = kilim_patterns::key_bytes(key);
        Ok(crate::patterns::in_snapshot(self.snapshot, self.pattern.id, &key)?.map(|pending| pending.due))
    }
}
