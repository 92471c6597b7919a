//! `$_internalUnpackBucket`: buckets in, measurements out.
//!
//! Where later stages look at the latest or earliest measurements of each meta only, the others are left out. A bucket whose
//! bounds are worse than what was met is not unpacked at all. Where buckets are read without a condition, they are read from
//! the better end, so that nearly all are passed over; what is kept is given in the order of its buckets.
//!
//! Where a `$sort` by the time follows, buckets are unpacked in the order of their bounds (`Ordered`). They are met twice then:
//! first for their bounds, later for their measurements. A small collection is kept from the first time.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::vec::IntoIter;

use kilim_bson::{Document, ObjectId, RawDocument, RawValue, Writer};
use kilim_error::Result;
use kilim_query::expression::Dependencies;
use kilim_query::interrupt;
use kilim_query::stage::{self, Beyond, Foremost, InOrder, Match, Stage};
use kilim_query::time_series::{META, OnBounds, Rows};
use kilim_storage::Snapshot;

use super::budget::STAGE_BYTES_MAX;
use super::{Opening, Step};
use crate::catalog::Collection;
use crate::operator::{ExecContext, Row, RowData, Shown, Viewer};
use crate::plan::{Hint, ReadRequest};
use crate::records::{Records, RowId};

pub(super) struct UnpackBucket {
    stage: Arc<stage::UnpackBucket>,
    input: Box<dyn Step>,
    /// What is left of the bucket at hand.
    rows: Option<Rows>,
    /// What is kept of the buckets, where only the best measurements are wanted.
    best: Option<Best>,
    /// The buckets in order, where one is wanted.
    ordered: Option<Ordered>,
    /// How many buckets were unpacked.
    unpacked: i64,
}

/// Buckets in the order of the first keys that their measurements may have.
struct Ordered {
    order: InOrder,
    records: Records,
    buckets: Option<IntoIter<Place>>,
    /// No measurement that is yet to come sorts before this key. None where there are too many buckets to be put in order.
    horizon: Option<Box<[u8]>>,
}

/// A bucket, with its place in the order.
struct Place {
    first: Box<[u8]>,
    row: RowId,
    kept: Option<Row>,
}

/// So many bytes of buckets are kept from one look at them to the next.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Ordered {
    /// Looks at all buckets and puts them in order.
    fn begin(
        &mut self,
        stage: &stage::UnpackBucket,
        input: &mut dyn Step,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let (mut places, mut kept_bytes, mut bytes) = (Vec::new(), 0, 0);
        while let Some(row) = input.next(context)? {
            context.tick()?;
            let first = stage.first_key(row.document(), &self.order).into_boxed_slice();
            kept_bytes += row.document().as_bytes().len();
            bytes += first.len() + size_of::<Place>();
            let id = row.id;
            places.push(Place { first, row: id, kept: (kept_bytes <= KEPT_BYTES_MAX).then_some(row) });
            // The rest is read as it comes, and sorted as anything else.
            if bytes > STAGE_BYTES_MAX {
                self.horizon = None;
                break;
            }
        }
        if self.horizon.is_some() {
            interrupt::sort(&mut places, |one, other| {
                one.first.cmp(&other.first).then(one.row.cmp(&other.row))
            })?;
        }
        self.buckets = Some(places.into_iter());
        Ok(())
    }

    /// The next bucket.
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(place) = self.buckets.as_mut().and_then(Iterator::next) else { return Ok(None) };
        if let Some(horizon) = &mut self.horizon {
            *horizon = place.first;
        }
        match place.kept {
            Some(row) => Ok(Some(row)),
            None => Ok(Some(Row::new(place.row, RowData::Record(self.records.fetch_stored(place.row)?)))),
        }
    }
}

/// The best measurements of each meta so far.
struct Best {
    foremost: Foremost,
    metas: HashMap<Option<Vec<u8>>, OfMeta>,
    bytes: usize,
    /// What is to be given, the last first.
    given: Vec<Document>,
    is_at_end: bool,
}

struct OfMeta {
    millis: i64,
    measurements: Vec<(Spot, Document)>,
}

/// Where a measurement is: its bucket, and its place there.
type Spot = (Option<ObjectId>, usize);

/// Reads buckets from the end at which the latest ones are, where nothing else says how they are read.
pub(super) fn read_from_better_end(stages: &[Stage], request: &mut ReadRequest) {
    if let Some(Stage::UnpackBucket(stage)) = stages.first()
        && stage.foremost == Some(Foremost::Latest)
        && request.filter.is_trivial()
        && request.hint.is_none()
    {
        request.hint = Some(Hint::Natural { backward: true });
    }
}

/// Has the read pass over buckets whose bounds tell that no measurement is asked for: by the time, and by what indexes are
/// over.
pub(super) fn read_by_bounds(stages: &mut Vec<Stage>, collection: Option<&Collection>, snapshot: &Snapshot) {
    let Some(at) = stages.iter().position(|stage| matches!(stage, Stage::UnpackBucket(_))) else { return };
    let Stage::UnpackBucket(stage) = &stages[at] else { return };
    let (Some(filter), Some(collection)) = (&stage.filter, collection) else { return };
    let (measured, places) = (collection.measured_paths(snapshot), collection.measured_places(snapshot));
    let bounds = OnBounds {
        time_field: &stage.time_field,
        meta_field: stage.meta_field.as_deref(),
        span_millis: Some(stage.span_millis()),
        measured: &measured,
        places: &places,
        collation: &collection.collation,
    };
    if let Some(filter) = bounds.weaker(filter) {
        stages.insert(at, Stage::Match(Match { filter: Arc::new(filter) }));
    }
}

/// Tells each stage of this kind which fields the stages behind it read.
pub(super) fn narrow(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        let wanted = wanted(&stages[at + 1..]);
        if let Stage::UnpackBucket(stage) = &mut stages[at] {
            Arc::make_mut(stage).wanted = wanted;
        }
    }
}

/// The fields that stages read, if these are not all.
pub(super) fn wanted(stages: &[Stage]) -> Option<Arc<[Box<str>]>> {
    let mut needed = Dependencies::default();
    stages.iter().find(|stage| stage.behaviour().dependencies(&mut needed) == Beyond::Nothing)?;
    if needed.whole_document {
        return None;
    }
    let first = |path: &str| Box::from(path.split('.').next().unwrap_or(path));
    let names: BTreeSet<Box<str>> = needed.fields.iter().map(|path| first(path)).collect();
    Some(names.into_iter().collect())
}

impl UnpackBucket {
    pub(super) fn new(
        stage: &Arc<stage::UnpackBucket>,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> UnpackBucket {
        let best = stage.foremost.map(|foremost| Best {
            foremost,
            metas: HashMap::new(),
            bytes: 0,
            given: Vec::new(),
            is_at_end: false,
        });
        let ordered = stage.order.clone().zip(opening.collection).map(|(order, collection)| Ordered {
            order,
            records: Records::new(collection.home(), opening.reader.snapshot()),
            buckets: None,
            horizon: Some(Box::default()),
        });
        UnpackBucket { stage: stage.clone(), input, rows: None, best, ordered, unpacked: 0 }
    }
}

impl Best {
    /// Takes the measurements of a bucket that are not worse than those of the same meta before. Whether it was unpacked.
    fn take(&mut self, stage: &stage::UnpackBucket, bucket: RawDocument<'_>) -> Result<bool> {
        let meta = bucket.get(META).map(|meta| {
            let mut key = Writer::new();
            key.append("", meta);
            key.finish().into_bytes()
        });
        let known = self.metas.get(&meta).map(|known| known.millis);
        let is_worse = |millis: i64, than: i64| self.foremost.compare(millis, than) == Ordering::Less;
        let bound = stage.best_bound(bucket, self.foremost);
        if bound.zip(known).is_some_and(|(bound, known)| is_worse(bound, known)) {
            return Ok(false);
        }
        let Some(rows) = stage.rows(bucket)? else { return Ok(false) };
        let time = |row: &Document| match row.get(&stage.time_field) {
            Some(RawValue::DateTime(millis)) => Some(millis),
            _ => None,
        };
        let id = match bucket.get("_id") {
            Some(RawValue::ObjectId(id)) => Some(id),
            _ => None,
        };
        for (at, row) in rows.enumerate() {
            let Some(millis) = time(&row) else { continue };
            interrupt::copied(row.as_bytes().len())?;
            let kept = self.metas.entry(meta.clone()).or_insert(OfMeta { millis, measurements: Vec::new() });
            match self.foremost.compare(millis, kept.millis) {
                Ordering::Less => continue,
                Ordering::Equal => {}
                Ordering::Greater => {
                    let before = kept.measurements.drain(..).map(|(_, row)| row.as_bytes().len());
                    self.bytes -= before.sum::<usize>();
                    kept.millis = millis;
                }
            }
            self.bytes += row.as_bytes().len();
            kept.measurements.push(((id, at), row));
        }
        Ok(true)
    }

    /// Gives everything that is kept.
    fn give(&mut self) {
        let kept = self.metas.drain().flat_map(|(_, kept)| kept.measurements);
        let mut kept: Vec<_> = kept.collect();
        kept.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        self.given = kept.into_iter().map(|(_, row)| row).collect();
        self.bytes = 0;
    }
}

impl UnpackBucket {
    fn next_best(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let Some(best) = &mut self.best else { return Ok(None) };
        loop {
            context.tick()?;
            if let Some(row) = best.given.pop() {
                return Ok(Some(Row::of(row)));
            }
            if best.is_at_end {
                return Ok(None);
            }
            // More than a stage may hold is given early: later stages choose among all that they get.
            while best.bytes <= STAGE_BYTES_MAX {
                context.tick()?;
                let Some(bucket) = self.input.next(context)? else {
                    best.is_at_end = true;
                    break;
                };
                self.unpacked += i64::from(best.take(&self.stage, bucket.document())?);
            }
            best.give();
        }
    }
}

impl UnpackBucket {
    /// The next bucket that is to be unpacked.
    fn next_bucket(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let Some(ordered) = &mut self.ordered else { return self.input.next(context) };
        if ordered.buckets.is_none() {
            ordered.begin(&self.stage, &mut *self.input, context)?;
        }
        match ordered.next()? {
            Some(bucket) => Ok(Some(bucket)),
            // There is more where not all were put in order.
            None if ordered.horizon.is_none() => self.input.next(context),
            None => Ok(None),
        }
    }
}

/// Shows measurements as documents, each written where the one before was.
fn show_documents(
    mut rows: Rows,
    written: &mut Vec<u8>,
    viewer: &mut dyn Viewer,
    context: &mut ExecContext<'_>,
) -> Result<()> {
    loop {
        written.clear();
        let mut out = Writer::after(std::mem::take(written));
        let Some(()) = rows.write_next(&mut out) else { return Ok(()) };
        *written = out.finish_bytes();
        interrupt::copied(written.len())?;
        // SAFETY: a `Writer` wrote one whole document.
        viewer.see(Shown::Document(unsafe { RawDocument::from_validated(written) }), context)?;
    }
}

impl Step for UnpackBucket {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if self.best.is_some() {
            return self.next_best(context);
        }
        loop {
            context.tick()?;
            if let Some(measurement) = self.rows.as_mut().and_then(Iterator::next) {
                interrupt::copied(measurement.as_bytes().len())?;
                return Ok(Some(Row::of(measurement)));
            }
            let Some(bucket) = self.next_bucket(context)? else { return Ok(None) };
            self.rows = self.stage.rows(bucket.document())?;
            self.unpacked += i64::from(self.rows.is_some());
        }
    }

    fn show(&mut self, viewer: &mut dyn Viewer, context: &mut ExecContext<'_>) -> Result<()> {
        let by_fields = match self.stage.wanted.clone() {
            Some(names) => self.best.is_none() && viewer.takes_fields(&names),
            None => false,
        };
        let mut written = Vec::new();
        if self.best.is_some() {
            while let Some(row) = self.next_best(context)? {
                viewer.see(Shown::Row(&row), context)?;
            }
            return Ok(());
        }
        if let Some(rows) = self.rows.take() {
            show_documents(rows, &mut written, viewer, context)?;
        }
        while let Some(bucket) = self.next_bucket(context)? {
            context.tick()?;
            let Some(opened) = self.stage.open(bucket.document())? else { continue };
            self.unpacked += 1;
            let walk = if by_fields { self.stage.walk(&opened) } else { None };
            let Some(mut walk) = walk else {
                show_documents(self.stage.rows_of(opened)?, &mut written, viewer, context)?;
                continue;
            };
            interrupt::copied(opened.bytes())?;
            while let Some(values) = walk.next_values() {
                viewer.see(Shown::Fields(values), context)?;
            }
        }
        Ok(())
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }

    fn horizon(&self) -> Option<&[u8]> {
        self.ordered.as_ref()?.horizon.as_deref()
    }

    fn report(&self, out: &mut Writer) {
        out.append("bucketsUnpacked", RawValue::Int64(self.unpacked));
    }
}
