//! A change of one document, as the door takes it.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};

use crate::catalog::Collection;
use crate::patterns::Pattern;
use crate::records::RowId;

/// One change: an insert has no `before`, a delete has no `after`. It borrows everything, so that it costs nothing to
/// hand on.
#[derive(Clone, Copy)]
pub(crate) struct Change<'c> {
    pub collection: &'c Arc<Collection>,
    /// None for a document that is not stored yet.
    pub row: Option<RowId>,
    pub before: Option<Before<'c>>,
    pub after: Option<RawDocument<'c>>,
    pub cause: Cause<'c>,
}

/// Why a document changes.
#[derive(Clone, Copy)]
pub enum Cause<'c> {
    /// A statement of a user.
    User,
    /// A pattern that keeps its fields true.
    Pattern(&'c Pattern),
    /// The document's time has passed.
    Expiry,
    /// A capped collection needed the room.
    Eviction,
    /// A collection is filled or replaced as a whole.
    Import,
    /// The database's own work: a job, or a schema change.
    Job,
}

/// A document before its change.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    /// What the record and its keys are made of.
    pub stored: RawDocument<'a>,
    /// What the change was made of: another where a pattern has not come to write the document yet.
    pub seen: RawDocument<'a>,
}

impl<'a> Before<'a> {
    /// As it is stored.
    pub(crate) fn of(stored: RawDocument<'a>) -> Before<'a> {
        Before { stored, seen: stored }
    }

    /// What is stored, where something else was seen.
    pub(crate) fn stored_apart(self) -> Option<Document> {
        (self.stored.as_bytes() != self.seen.as_bytes()).then(|| self.stored.to_document())
    }
}

impl<'c> Change<'c> {
    pub(crate) fn insert(
        collection: &'c Arc<Collection>,
        document: RawDocument<'c>,
        cause: Cause<'c>,
    ) -> Change<'c> {
        Change { collection, row: None, before: None, after: Some(document), cause }
    }

    pub(crate) fn update(
        collection: &'c Arc<Collection>,
        row: impl Into<RowId>,
        before: Before<'c>,
        after: RawDocument<'c>,
        cause: Cause<'c>,
    ) -> Change<'c> {
        Change { collection, row: Some(row.into()), before: Some(before), after: Some(after), cause }
    }

    pub(crate) fn delete(
        collection: &'c Arc<Collection>,
        row: impl Into<RowId>,
        before: Before<'c>,
        cause: Cause<'c>,
    ) -> Change<'c> {
        Change { collection, row: Some(row.into()), before: Some(before), after: None, cause }
    }

    /// The document as it is stored before the change.
    pub(crate) fn stored_before(&self) -> Option<RawDocument<'c>> {
        self.before.map(|before| before.stored)
    }
}
