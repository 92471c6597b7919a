//! How documents are stored: what a record's bytes mean, and what is stored for a document.
//!
//! Filters, indexes, change events and patterns see rows only. A plain collection stores what it shows. Other shapes store
//! something else, and are translated here ([decision 0014](../../../../docs/decisions/0014-shapes.md)).

use std::borrow::Cow;
use std::sync::Arc;

use kilim_bson::RawDocument;
use kilim_error::Result;
use kilim_patterns::{Bucketing, Paging, Versions};
use kilim_storage::{Bytes, CommitTime};

use super::buckets::{Bucketed, Slip};
use super::pages::Source;
use super::{Home, Image, RowId};
use crate::ids::{CollectionId, IndexId, RecordId};

#[derive(Debug, Clone, Default)]
pub enum Shape {
    /// A record is one document; both directions are free.
    #[default]
    Plain,
    /// A record is one document of any version; its row is that document in the current one.
    Versioned(Arc<Versioned>),
    /// A record is one document, whose long array may continue in pages.
    Paged(Arc<Paged>, Option<Members>),
    /// A record is a page of another collection's document.
    Pages,
    /// A record is one document, or says in which bucket that lies.
    Bucketed(Arc<Bucketed>),
}

/// How the documents of a collection are divided, and where their pages lie.
#[derive(Debug, PartialEq, Eq)]
pub struct Paged {
    pub paging: Arc<Paging>,
    /// The collection of the pages.
    pub overflow: CollectionId,
}

/// An index over the elements of all documents, by which one is found without reading pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members {
    pub index: IndexId,
    /// States before this commit lack entries.
    pub since: CommitTime,
}

/// The versions of a collection's documents.
#[derive(Debug, Clone, Default)]
pub struct Versioned {
    /// Those in force; none once all steps are completed.
    pub(crate) versions: Option<Versions>,
    /// Those that were in force before some step was completed, and the commit time from which on no record needs that step.
    /// States from before can still be read: by transactions and cursors that began then. The next start forgets them.
    pub(crate) retired: Vec<(CommitTime, Versions)>,
}

/// The rows of one record, in the order of their positions.
pub(crate) struct Rows(Option<(RowId, Image)>);

impl Home {
    /// The rows of a record as it is stored in a state.
    ///
    /// # Safety
    ///
    /// The bytes are what the store has for a record that was written in this shape.
    #[inline]
    pub(super) unsafe fn rows<S: Source>(&self, record: RecordId, stored: Bytes, source: &S) -> Result<Rows> {
        if let Shape::Bucketed(bucketed) = &self.shape
            && let Some(slip) = self.shape.slip_of(&stored)
        {
            return Ok(Rows(Some((record.into(), self.sealed_row(bucketed, slip, &stored, source)?))));
        }
        // SAFETY: the write door stores documents that have passed validation, as this function's caller says.
        let image = unsafe { Image::from_bytes(stored) };
        Ok(Rows(Some((record.into(), self.shape.seen(image)?))))
    }
}

impl Shape {
    #[inline]
    fn seen(&self, image: Image) -> Result<Image> {
        match self {
            Shape::Plain | Shape::Paged(..) | Shape::Pages | Shape::Bucketed(_) => Ok(image),
            Shape::Versioned(versioned) => versioned.seen(image),
        }
    }

    /// Where the row of a stored record lies, if that is a bucket.
    #[inline]
    pub(super) fn slip_of(&self, stored: &[u8]) -> Option<Slip> {
        match self {
            Shape::Bucketed(_) => Slip::of(stored),
            _ => None,
        }
    }

    /// The stored bytes of a document, without the commit time.
    pub(super) fn to_stored<'d>(&self, document: RawDocument<'d>) -> Cow<'d, [u8]> {
        match self {
            Shape::Plain | Shape::Versioned(_) | Shape::Paged(..) | Shape::Pages | Shape::Bucketed(_) => {
                Cow::Borrowed(document.as_bytes())
            }
        }
    }

    /// Whether a record counts for as many bytes as its row has.
    pub(crate) fn counts_rows(&self) -> bool {
        !matches!(self, Shape::Versioned(_))
    }

    /// How long arrays are divided, where they are.
    pub fn paged(&self) -> Option<&Arc<Paged>> {
        match self {
            Shape::Paged(paged, _) => Some(paged),
            _ => None,
        }
    }

    /// How measurements are packed, where they are.
    pub fn bucketing(&self) -> Option<&Arc<Bucketing>> {
        match self {
            Shape::Bucketed(bucketed) => bucketed.bucketing.as_ref(),
            _ => None,
        }
    }

    /// The versions in force.
    pub fn versions(&self) -> Option<&Versions> {
        match self {
            Shape::Versioned(versioned) => versioned.versions.as_ref(),
            _ => None,
        }
    }

    /// The shape with these versions in force. `since`: from that commit time on no record needs a step that is in force now
    /// and is not among them.
    pub(crate) fn with_versions(&self, versions: Option<Versions>, since: Option<CommitTime>) -> Shape {
        let mut versioned = match self {
            Shape::Versioned(versioned) => (**versioned).clone(),
            _ => Versioned::default(),
        };
        if let (Some(old), Some(since)) = (versioned.versions.take(), since) {
            versioned.retired.push((since, old));
        }
        versioned.versions = versions;
        match versioned.versions.is_none() && versioned.retired.is_empty() {
            true => Shape::Plain,
            false => Shape::Versioned(Arc::new(versioned)),
        }
    }
}

impl Versioned {
    fn seen(&self, image: Image) -> Result<Image> {
        let mut image = image;
        if !self.retired.is_empty() {
            // What a transaction has written itself has no commit time yet.
            let time = image.commit_time();
            for (_, versions) in self.retired.iter().filter(|(since, _)| time != 0 && time < *since) {
                if let Some(seen) = versions.seen(image.document())? {
                    image = image.with(&seen);
                }
            }
        }
        match &self.versions {
            Some(versions) => match versions.seen(image.document())? {
                Some(seen) => Ok(image.with(&seen)),
                None => Ok(image),
            },
            None => Ok(image),
        }
    }
}

impl Rows {
    pub(super) fn none() -> Rows {
        Rows(None)
    }

    /// The next row, without taking it.
    pub(super) fn first(&self) -> Option<&Image> {
        self.0.as_ref().map(|(_, image)| image)
    }
}

impl Iterator for Rows {
    type Item = (RowId, Image);

    fn next(&mut self) -> Option<(RowId, Image)> {
        self.0.take()
    }
}
