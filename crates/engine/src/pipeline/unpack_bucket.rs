//! `$_internalUnpackBucket`: buckets in, measurements out.
//!
//! Where later stages look at the latest or earliest measurements of each meta only, the others are left out. A bucket whose
//! bounds are worse than what was met is not unpacked at all. Where buckets are read without a condition, they are read from
//! the better end, so that nearly all are passed over; what is kept is given in the order of its buckets.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kilim_bson::{Document, ObjectId, RawDocument, RawValue, Writer};
use kilim_error::Result;
use kilim_query::expression::Dependencies;
use kilim_query::interrupt;
use kilim_query::stage::{self, Beyond, Foremost, Stage};
use kilim_query::time_series::{META, Rows};

use super::Step;
use super::budget::STAGE_BYTES_MAX;
use crate::operator::{ExecContext, Row};
use crate::plan::{Hint, ReadRequest};

pub(super) struct UnpackBucket {
    stage: Arc<stage::UnpackBucket>,
    input: Box<dyn Step>,
    /// What is left of the bucket at hand.
    rows: Option<Rows>,
    /// What is kept of the buckets, where only the best measurements are wanted.
    best: Option<Best>,
    /// How many buckets were unpacked.
    unpacked: i64,
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
    /// Each with its bucket and its place there.
    measurements: Vec<(Place, Document)>,
}

type Place = (Option<ObjectId>, usize);

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
fn wanted(stages: &[Stage]) -> Option<Arc<[Box<str>]>> {
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
    pub(super) fn new(stage: &Arc<stage::UnpackBucket>, input: Box<dyn Step>) -> UnpackBucket {
        let best = stage.foremost.map(|foremost| Best {
            foremost,
            metas: HashMap::new(),
            bytes: 0,
            given: Vec::new(),
            is_at_end: false,
        });
        UnpackBucket { stage: stage.clone(), input, rows: None, best, unpacked: 0 }
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
            let Some(bucket) = self.input.next(context)? else { return Ok(None) };
            self.rows = self.stage.rows(bucket.document())?;
            self.unpacked += i64::from(self.rows.is_some());
        }
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }

    fn report(&self, out: &mut Writer) {
        out.append("bucketsUnpacked", RawValue::Int64(self.unpacked));
    }
}
