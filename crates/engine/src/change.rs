//! A change of one document, as the door takes it.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};

use crate::catalog::Collection;
use crate::patterns::Pattern;
use crate::records::RowId;

/// One change: an insert has no `before`, a delete has no `after`. It borrows everything, so handing it on costs nothing.
#[derive(Clone, Copy)]
pub(crate) struct Change<'c> {
    pub collection: &'c Arc<Collection>,
    /// None for a document that is not stored yet.
    pub row: Option<RowId>,
    pub before: Option<Before<'c>>,
    pub after: Option<RawDocument<'c>>,
    pub cause: Cause<'c>,
    /// How an event tells of a document that stays.
    pub form: Form<'c>,
    /// What `after` has of an array that continues in pages.
    pub array: ArrayForm,
    /// What is left of the pages, where `array` says that elements were removed.
    pub remaining: Option<Remaining<'c>>,
    /// What indexes over such an array are to forget and to hold.
    pub elements: Option<Elements<'c>>,
}

/// What a document has of an array that continues in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrayForm {
    /// All of it.
    Whole,
    /// All of it, to be stored without pages.
    Folded,
    /// The inline part. Pages stay as they are.
    Inline,
    /// What is left of the inline part.
    Remaining,
    /// The inline part, and behind it what is to be appended to the pages.
    Appended,
}

/// Elements of a document's array, each list as documents of nothing but the array. They take the place of the document for
/// indexes over that array.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'c> {
    pub field: &'c str,
    pub before: &'c [Document],
    pub after: &'c [Document],
    /// Elements that stay. A key of one that goes stays too if one of these has it.
    pub kept: &'c [Document],
    /// The array has no pages any more. Of equal elements in several pages any may have given its types to a key; from here on
    /// it is the first again.
    pub is_folded: bool,
}

/// What is left of pages that elements were removed from.
#[derive(Clone, Copy)]
pub(crate) struct Remaining<'c> {
    pub removed: &'c [Document],
    pub kept: &'c [Document],
    /// Pages that changed, by their numbers.
    pub pages: &'c [(u32, Document)],
    /// Behind these pages there are none any more.
    pub page_count: u32,
    /// All elements that are left.
    pub count: u64,
}

/// How an event tells of a document that was there before and is there after the change.
#[derive(Clone, Copy)]
pub(crate) enum Form<'c> {
    /// The whole document is replaced, and shown.
    Replacement,
    /// By what operators changed.
    Described(RawDocument<'c>),
    /// By the difference of the two documents, or by the whole document if that is about as small.
    Smaller,
    /// By the difference of the two documents.
    Difference,
}

/// Why a document changes.
#[derive(Clone, Copy)]
pub enum Cause<'c> {
    /// A statement of a user.
    User,
    /// Patterns that keep their fields true. There is one at least; they are in the order of their graph.
    Pattern(&'c [Arc<Pattern>]),
    /// The document's time has passed.
    Expiry,
    /// A capped collection needed the room.
    Eviction,
    /// A collection is filled or replaced as a whole.
    Import,
    /// It goes along with a collection that becomes another. As on MongoDB, no event tells of it.
    Copy,
    /// The database's own work: a job, or a schema change.
    Job,
}

impl Cause<'_> {
    /// Whether it is done for somebody who may be kept from writing, or whose documents are validated.
    pub(crate) fn is_of_user(self) -> bool {
        matches!(self, Cause::User | Cause::Import | Cause::Copy)
    }
}

/// A document before its change.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    /// What the record and its keys are made of.
    pub stored: RawDocument<'a>,
    /// What the user saw and changed. It differs from `stored` if something is pending for the document.
    pub seen: RawDocument<'a>,
}

impl<'a> Before<'a> {
    /// As it is stored.
    pub(crate) fn of(stored: RawDocument<'a>) -> Before<'a> {
        Before { stored, seen: stored }
    }

    /// What is stored, if the user saw something else.
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
        Change {
            collection,
            row: None,
            before: None,
            after: Some(document),
            cause,
            form: Form::Difference,
            array: ArrayForm::Whole,
            remaining: None,
            elements: None,
        }
    }

    pub(crate) fn update(
        collection: &'c Arc<Collection>,
        row: impl Into<RowId>,
        before: Before<'c>,
        after: RawDocument<'c>,
        cause: Cause<'c>,
    ) -> Change<'c> {
        let (row, form) = (Some(row.into()), Form::Difference);
        let (array, remaining, elements) = (ArrayForm::Inline, None, None);
        let (before, after) = (Some(before), Some(after));
        Change { collection, row, before, after, cause, form, array, remaining, elements }
    }

    pub(crate) fn delete(
        collection: &'c Arc<Collection>,
        row: impl Into<RowId>,
        before: Before<'c>,
        cause: Cause<'c>,
    ) -> Change<'c> {
        let (row, form) = (Some(row.into()), Form::Difference);
        let (array, remaining, elements) = (ArrayForm::Whole, None, None);
        let (before, after) = (Some(before), None);
        Change { collection, row, before, after, cause, form, array, remaining, elements }
    }

    /// The document as it is stored before the change.
    pub(crate) fn stored_before(&self) -> Option<RawDocument<'c>> {
        self.before.map(|before| before.stored)
    }

    /// How an event tells of this change if patterns have made `after` of it.
    pub(crate) fn form_of(&self, after: Option<RawDocument<'_>>) -> Form<'c> {
        let as_asked = self.after.map(RawDocument::as_bytes) == after.map(RawDocument::as_bytes);
        match self.form {
            Form::Described(_) if !as_asked => Form::Difference,
            form => form,
        }
    }
}
