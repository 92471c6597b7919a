//! What `<name>.buckets` shows: the buckets of a collection, and its open measurements by the place where they belong.
//!
//! What is told of a bucket was computed when it was made. Where some of its measurements have left it since, and for open
//! measurements, it is computed here. So it is true in every snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result, StorageError};
use kilim_patterns::{Bucketing, Place};

use super::{Reader, Step};
use crate::ids::RecordId;
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};
use crate::records::{self, Buckets, FoundBucket, Records};

pub(super) struct PackedBuckets {
    reader: Reader,
    namespace: Namespace,
    reading: Option<Reading>,
}

struct Reading {
    bucketing: Arc<Bucketing>,
    records: Records,
    sealed: Buckets,
    /// Open measurements, once all buckets were shown: those of each place, in order.
    open: Option<std::collections::btree_map::IntoIter<Place, Vec<RecordId>>>,
    /// What is left of the place that was taken last.
    left: Option<(Place, std::vec::IntoIter<Document>, u64)>,
}

impl PackedBuckets {
    pub(super) fn new(namespace: &Namespace, reader: &Reader) -> PackedBuckets {
        PackedBuckets { reader: reader.clone(), namespace: namespace.clone(), reading: None }
    }

    fn begin(&self) -> Result<Reading> {
        let collection = self.reader.collection(&self.namespace);
        let Some((collection, bucketing)) = collection.and_then(|it| Some((it, it.shape.bucketing()?)))
        else {
            return Err(Error::user(
                ErrorCode::PatternNotFound,
                format!("{} has no buckets: createPattern with 'bucket' packs its documents", self.namespace),
            ));
        };
        let (home, snapshot) = (collection.home(), self.reader.snapshot());
        let sealed = records::buckets(&home, snapshot, None);
        let records = Records::new(home, snapshot);
        Ok(Reading { bucketing: bucketing.clone(), records, sealed, open: None, left: None })
    }
}

impl Step for PackedBuckets {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let reading = match &mut self.reading {
            Some(reading) => reading,
            None => {
                let begun = self.begin()?;
                self.reading.insert(begun)
            }
        };
        Ok(reading.next(context)?.map(Row::of))
    }
}

impl Reading {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Document>> {
        if self.open.is_none() {
            while let Some(bucket) = self.sealed.next() {
                context.tick()?;
                if let Some(shown) = self.sealed_bucket(&bucket?)? {
                    return Ok(Some(shown));
                }
            }
            self.open = Some(self.find_open(context)?.into_iter());
        }
        loop {
            context.tick()?;
            if let Some(shown) = self.open_bucket()? {
                return Ok(Some(shown));
            }
            let Some((place, ids)) = self.open.as_mut().and_then(Iterator::next) else { return Ok(None) };
            let mut rows = Vec::with_capacity(ids.len());
            for record in ids {
                rows.extend(
                    self.records.get(record.into())?.map(|image| (record, image.document().to_document())),
                );
            }
            self.bucketing.sort(&mut rows, |(record, row)| (record.0, row.as_raw()));
            let rows: Vec<Document> = rows.into_iter().map(|(_, row)| row).collect();
            self.left = Some((place, rows.into_iter(), 0));
        }
    }

    /// A bucket as it is shown; none where nothing of it is in use any more.
    fn sealed_bucket(&self, bucket: &FoundBucket) -> Result<Option<Document>> {
        let broken = || StorageError::Corrupt(format!("bucket {} cannot be read", bucket.number));
        let packed = bucket.packed().ok_or_else(broken)?;
        let is_own = packed.fingerprint() == Some(self.bucketing.fingerprint);
        if is_own && bucket.holes.is_empty() && !self.bucketing.shows_rows() {
            let told = packed.told().ok_or_else(broken)?;
            return Ok(Some(self.bucketing.shown(bucket.number, told, None)));
        }
        let live = bucket.live();
        let rows: Option<Vec<Document>> = live.iter().map(|(at, _)| bucket.row(*at)).collect();
        let rows = rows.ok_or_else(broken)?;
        let raw: Vec<RawDocument<'_>> = rows.iter().map(Document::as_raw).collect();
        let Some(first) = raw.first() else { return Ok(None) };
        let told = self.bucketing.told(&self.bucketing.place(*first), &raw)?;
        Ok(Some(self.bucketing.shown(bucket.number, told.as_raw(), Some(&raw))))
    }

    /// The next bucket's worth of the open measurements of a place.
    fn open_bucket(&mut self) -> Result<Option<Document>> {
        let Some((place, rows, number)) = &mut self.left else { return Ok(None) };
        let count = self.bucketing.portion(rows.as_slice().iter().map(Document::as_raw));
        if count == 0 {
            self.left = None;
            return Ok(None);
        }
        let portion: Vec<Document> = rows.by_ref().take(count).collect();
        let raw: Vec<RawDocument<'_>> = portion.iter().map(Document::as_raw).collect();
        let told = self.bucketing.told(place, &raw)?;
        let shown = self.bucketing.open(*number, told.as_raw(), &raw);
        *number += 1;
        Ok(Some(shown))
    }

    fn find_open(&self, context: &mut ExecContext<'_>) -> Result<BTreeMap<Place, Vec<RecordId>>> {
        let mut places: BTreeMap<Place, Vec<RecordId>> = BTreeMap::new();
        let collection = self.records.home().collection;
        for row in records::slips(self.records.snapshot(), collection, RecordId(0)) {
            context.tick()?;
            let (record, row) = row?;
            if let Ok(image) = row {
                places.entry(self.bucketing.place(image.document())).or_default().push(record);
            }
        }
        Ok(places)
    }
}
