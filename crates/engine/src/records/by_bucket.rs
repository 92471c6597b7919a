//! The rows of a collection with buckets, bucket by bucket: each is read once, and passed over where none of its rows can
//! match. Open rows come last.

use kilim_bson::{Document, ElementType, RawDocument, RawValue};
use kilim_error::Result;
use kilim_patterns::{Bucketing, Packed};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::Bytes;

use super::buckets::{Buckets, FoundBucket, SlipScan, buckets, last_bucket, slips};
use super::read::see;
use super::{Image, Look, Records, RowId, Shape};
use crate::ids::RecordId;
use crate::layout::STAMP_BYTES;

/// Up to this number of buckets a scan keeps the order of insertion. Larger collections have more buckets than stay in
/// memory, so that such a scan would read each of them again and again.
const IN_ORDER_MAX: u64 = 256;

/// Slips that are passed over before whoever scans is asked whether to go on.
const SLIPS_AT_ONCE: usize = 1024;

/// All rows of a collection, in no particular order.
pub(crate) struct BucketScan {
    records: Records,
    sealed: Buckets,
    /// The bucket that is being read, and the positions that are left of it.
    current: Option<(FoundBucket, std::vec::IntoIter<(usize, RecordId)>)>,
    /// Once all buckets are read.
    open: Option<SlipScan>,
}

/// A row of a collection with buckets, or what may have been one.
pub(crate) enum Seen<'a> {
    Row(RowId, Image),
    /// One that lies in a bucket: the values of fields, in the places of their names.
    Fields(&'a [Option<RawValue<'a>>]),
    Passed,
}

impl Records {
    /// All rows bucket by bucket, where that is better than the order of insertion.
    pub fn by_bucket(&self) -> Result<Option<BucketScan>> {
        let Shape::Bucketed(_) = self.home.shape else { return Ok(None) };
        if last_bucket(&self.snapshot, self.home.collection)? <= IN_ORDER_MAX {
            return Ok(None);
        }
        let sealed = buckets(&self.home, &self.snapshot, None);
        Ok(Some(BucketScan { records: self.clone(), sealed, current: None, open: None }))
    }
}

impl BucketScan {
    /// Looks at the next row; none behind the last.
    pub fn next_matching(&mut self, filter: Option<&Filter>) -> Result<Option<Look>> {
        if let Some(open) = &mut self.open {
            for row in open.by_ref().take(SLIPS_AT_ONCE) {
                if let (record, Ok(image)) = row? {
                    return self.look(record.into(), image, filter).map(Some);
                }
            }
            return Ok(if open.is_ended() { None } else { Some(Look::Passed) });
        }
        if let Some((bucket, left)) = &mut self.current {
            if let Some((position, record)) = left.next() {
                let image = bucket.image_of(&self.records.home, position)?;
                return self.look(record.into(), image, filter).map(Some);
            }
            self.current = None;
        }
        match self.sealed.next().transpose()? {
            Some(bucket) => {
                // What is pending may change what a row is seen with.
                let filter = filter.filter(|_| self.records.overlay.is_none());
                if filter.is_none_or(|filter| self.may_hold(&bucket, filter)) {
                    let live = bucket.live().into_iter();
                    self.current = Some((bucket, live));
                }
            }
            None => self.begin_open(),
        }
        Ok(Some(Look::Passed))
    }

    /// Shows all rows that are left. Those that lie in buckets are shown as the values of fields of these names.
    pub fn each(&mut self, names: &[Box<str>], see: &mut dyn FnMut(Seen<'_>) -> Result<()>) -> Result<()> {
        loop {
            // What is pending changes documents.
            if self.current.is_none() && self.open.is_none() && self.records.overlay.is_none() {
                see(Seen::Passed)?;
                match self.sealed.next().transpose()? {
                    Some(bucket) => self.each_of(bucket, names, see)?,
                    None => self.begin_open(),
                }
                continue;
            }
            match self.next_matching(None)? {
                Some(Look::Row(id, image)) => see(Seen::Row(id, image))?,
                Some(Look::Passed) => see(Seen::Passed)?,
                None => return Ok(()),
            }
        }
    }

    fn each_of(
        &mut self,
        bucket: FoundBucket,
        names: &[Box<str>],
        see: &mut dyn FnMut(Seen<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(walk) = bucket.packed().and_then(|packed| packed.walk(names)) else {
            let live = bucket.live().into_iter();
            self.current = Some((bucket, live));
            return Ok(());
        };
        let mut values: Vec<Option<RawValue<'_>>> = vec![None; names.len()];
        for position in bucket.in_use() {
            let read = walk.row(position, |at, value| {
                values[at] = value.and_then(|(kind, bytes)| {
                    let kind = ElementType::from_byte(kind)?;
                    // SAFETY: what comes out of a bucket is what the write door stored, byte for byte.
                    Some(unsafe { RawValue::from_validated(kind, bytes) })
                });
            });
            if read.is_none() {
                let what = format!("has no measurement at {position}");
                return Err(self.records.home.broken(bucket.number, &what));
            }
            see(Seen::Fields(&values))?;
        }
        Ok(())
    }

    fn begin_open(&mut self) {
        let (snapshot, collection) = (&self.records.snapshot, self.records.home.collection);
        self.open = Some(slips(snapshot, collection, RecordId(0)));
    }

    fn look(&self, id: RowId, image: Image, filter: Option<&Filter>) -> Result<Look> {
        let image = match &self.records.overlay {
            None => image,
            Some(overlay) => match see(&**overlay, image)? {
                Some(image) => image,
                None => return Ok(Look::Passed),
            },
        };
        match filter {
            Some(filter) if !filter.matches(image.document())? => Ok(Look::Passed),
            _ => Ok(Look::Row(id, image)),
        }
    }

    /// Whether a row of a bucket can match, as far as its meta and its bounds tell.
    fn may_hold(&self, bucket: &FoundBucket, filter: &Filter) -> bool {
        let Some(bucketing) = self.records.home.shape.bucketing() else { return true };
        let packed = bucket.packed().filter(|packed| packed.fingerprint() == Some(bucketing.fingerprint));
        match packed.and_then(Packed::told) {
            Some(told) => may_hold(bucketing, told, filter),
            None => true,
        }
    }
}

impl FoundBucket {
    pub(super) fn image_of(&self, home: &super::Home, position: usize) -> Result<Image> {
        let mut row = Vec::with_capacity(256);
        row.extend_from_slice(&self.image.as_bytes()[..STAMP_BYTES]);
        self.packed()
            .and_then(|packed| packed.row(position, &mut row))
            .ok_or_else(|| home.broken(self.number, &format!("has no measurement at {position}")))?;
        // SAFETY: what comes out of a bucket is what the write door stored, byte for byte.
        Ok(unsafe { Image::from_bytes(Bytes::from(row)) })
    }
}

/// Whether a bucket of which this is told can have a row that matches. All of its rows have the same meta, and those of a
/// bucket by time have dates between its bounds.
fn may_hold(bucketing: &Bucketing, told: RawDocument<'_>, filter: &Filter) -> bool {
    let (path, predicate) = match filter {
        Filter::And(all) => return all.iter().all(|one| may_hold(bucketing, told, one)),
        Filter::Field { path, predicate } => (path, predicate),
        _ => return true,
    };
    let first = path.components().first().map(|step| &*step.name);
    // A filter that fails is left to fail on a row.
    let holds_of = |name: &str, value: Option<RawValue<'_>>| {
        let mut alone = Document::new();
        value.into_iter().for_each(|value| alone.push(name, value));
        filter.matches(alone.as_raw()).unwrap_or(true)
    };
    if bucketing.meta.as_deref().is_some_and(|meta| first == Some(meta)) {
        return holds_of(first.unwrap_or_default(), told.get("meta"));
    }
    if bucketing.span_millis.is_none() || path.as_str() != &*bucketing.field {
        return true;
    }
    match predicate {
        Predicate::Compare(Comparison::Lt | Comparison::Lte, _) => {
            holds_of(&bucketing.field, told.get("from"))
        }
        Predicate::Compare(Comparison::Gt | Comparison::Gte, _) => holds_of(&bucketing.field, told.get("to")),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Document, Value, doc};
    use kilim_patterns::Declaration;
    use kilim_query::filter::Filter;

    use super::may_hold;

    #[test]
    fn a_bucket_is_passed_over_by_its_meta_and_its_bounds_only() {
        let declared = doc! {"name": "b", "bucket": {"timeField": "ts", "metaField": "s"}};
        let declaration = Declaration::parse("m", declared.as_raw()).unwrap();
        let bucketing = declaration.kind.bucketing().unwrap();
        let at = |millis: i64| Value::DateTime(millis);
        let told = doc! {"meta": {"id": 7}, "span": at(0), "from": at(1000), "to": at(2000), "count": 5};
        let holds =
            |filter: Document| may_hold(bucketing, told.as_raw(), &Filter::parse(filter.as_raw()).unwrap());
        for (filter, expected) in [
            (doc! {}, true),
            (doc! {"s.id": 7}, true),
            (doc! {"s.id": 8}, false),
            (doc! {"s": {"id": 7}}, true),
            (doc! {"s": {"$exists": false}}, false),
            (doc! {"s.id": {"$ne": 7}}, false),
            (doc! {"ts": {"$gte": at(2000)}}, true),
            (doc! {"ts": {"$gt": at(2000)}}, false),
            (doc! {"ts": {"$lt": at(1000)}}, false),
            (doc! {"ts": {"$lte": at(1000), "$gte": at(0)}}, true),
            (doc! {"ts": {"$lt": 5}}, false),
            (doc! {"ts": {"$gt": Value::MinKey}}, true),
            (doc! {"ts": at(5000)}, true),
            (doc! {"t": 1}, true),
            (doc! {"t": 1, "s.id": 8}, false),
            (doc! {"$or": [{"s.id": 8}, {"t": 1}]}, true),
        ] {
            assert_eq!(holds(filter.clone()), expected, "{filter:?}");
        }
    }
}
