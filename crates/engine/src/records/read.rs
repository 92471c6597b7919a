//! From stored records to the rows that are seen of them.

use std::fmt::Debug;
use std::sync::Arc;

use kilim_bson::RawDocument;
use kilim_error::{Result, StorageError};
use kilim_patterns::Sight;
use kilim_query::filter::Filter;
use kilim_storage::{Bytes, Snapshot, Space};

use super::buckets::Slip;
use super::pages::Source;
use super::split::{matches, shown};
use super::{Home, Image, RowId, View};
use crate::ids::RecordId;

/// The records of a collection in one snapshot.
#[derive(Clone)]
pub(crate) struct Records {
    pub(super) home: Home,
    pub(super) snapshot: Snapshot,
    pub(super) overlay: Option<Arc<dyn Overlay>>,
    pub(super) view: View,
}

/// What a job has yet to write into the documents of a collection, in one snapshot.
pub(crate) trait Overlay: Debug + Send + Sync {
    /// A document as it is seen.
    fn see(&self, document: RawDocument<'_>) -> Result<Sight>;
}

impl Records {
    /// The records as they are stored.
    pub fn new(home: Home, snapshot: &Snapshot) -> Records {
        Records { home, snapshot: snapshot.clone(), overlay: None, view: View::Stored }
    }

    /// The records as they are seen through what is pending.
    pub fn through<O: Overlay + 'static>(self, overlay: Option<&Arc<O>>) -> Records {
        Records { overlay: overlay.map(|overlay| overlay.clone() as Arc<dyn Overlay>), ..self }
    }

    /// The records with as much of long arrays as is asked for.
    pub fn viewed(self, view: View) -> Records {
        Records { view, ..self }
    }

    /// Whether a row matches a filter, all of its array considered.
    pub fn matches(&self, filter: &Filter, row: RowId, image: &Image) -> Result<bool> {
        matches(&self.snapshot, &self.home, row, image.document(), filter)
    }

    /// Whether more of long arrays is asked for than their documents hold.
    pub fn unfolds(&self) -> bool {
        self.home.shape.paged().is_some() && matches!(self.view, View::Whole | View::Slice(_))
    }

    /// A row, as it is stored, with as much of its array as is asked for.
    pub fn shown(&self, row: RowId, image: Image) -> Result<Image> {
        shown(&self.snapshot, &self.home, row, image, self.view)
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// A row, or none where there is no such row or it is not there any more.
    pub fn get(&self, row: RowId) -> Result<Option<Image>> {
        match self.stored(row.record)? {
            Some(stored) => self.see(self.home.row(row, stored, &self.snapshot)?),
            None => Ok(None),
        }
    }

    /// The row that an index entry of the same snapshot points to; none where it is not there any more.
    pub fn fetch(&self, row: RowId) -> Result<Option<Image>> {
        self.see(Some(self.fetch_stored(row)?))
    }

    /// The row that an index entry of the same snapshot points to, as it is stored.
    pub fn fetch_stored(&self, row: RowId) -> Result<Image> {
        Ok(self.fetch_with_slip(row)?.0)
    }

    /// The same, and where it lies if that is a bucket.
    pub(super) fn fetch_with_slip(&self, row: RowId) -> Result<(Image, Option<Slip>)> {
        if let Some(stored) = self.stored(row.record)? {
            let slip = self.home.shape.slip_of(&stored);
            if let Some(image) = self.home.row(row, stored, &self.snapshot)? {
                return Ok((image, slip));
            }
        }
        Err(StorageError::Corrupt(format!(
            "an index of collection {} points to record {}, which does not exist",
            self.home.collection.0, row.record.0
        ))
        .into())
    }

    /// Whether there is a record with this number.
    pub fn has(&self, record: RecordId) -> Result<bool> {
        Ok(self.stored(record)?.is_some())
    }

    fn stored(&self, record: RecordId) -> Result<Option<Bytes>> {
        self.snapshot.get(Space::Records, &self.home.key(record))
    }

    pub(super) fn see(&self, image: Option<Image>) -> Result<Option<Image>> {
        match (image, &self.overlay) {
            (Some(image), Some(overlay)) => see(&**overlay, image),
            (image, _) => Ok(image),
        }
    }
}

/// A row through what is pending; none where it is not there any more.
pub(super) fn see(overlay: &dyn Overlay, image: Image) -> Result<Option<Image>> {
    Ok(match overlay.see(image.document())? {
        Sight::AsStored => Some(image),
        Sight::Other(seen) => Some(image.with(&seen)),
        Sight::Gone => None,
    })
}

impl Home {
    /// One row of a record that the store has.
    pub(super) fn row<S: Source>(&self, row: RowId, stored: Bytes, source: &S) -> Result<Option<Image>> {
        // SAFETY: the bytes come from the store, where only this module puts records.
        let mut rows = unsafe { self.rows(row.record, stored, source)? };
        Ok(rows.find(|(id, _)| *id == row).map(|(_, image)| image))
    }
}
