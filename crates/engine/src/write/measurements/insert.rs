//! Inserts of measurements: into the open buckets of their meta.
//!
//! Measurements of one command that have the same meta are written together. A few go behind those in the smallest open
//! bucket. When that is full, the buckets of the smaller tiers are joined into one (`Tiers`), and the new measurements
//! begin a bucket of their own. Joining is part of the same commit, so no measurement is ever in two buckets or in none. Buckets
//! that take no further measurements are joined for good, and compressed.
//!
//! Buckets are locked from the newest to the oldest, which is the order of their record ids, so inserts do not wait for each
//! other in a circle.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::fast::RandomState;
use kilim_bson::{Document, RawDocument, Value};
use kilim_collation::collator;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::time_series::{Bucket, Fields, MEASUREMENTS_MAX, TimeSeries};

use super::super::admit::{check_not_blocked, check_size};
use super::super::done::inserted;
use super::super::store::new_row;
use super::super::{InsertOutcome, door, is_statement_error};
use super::{dropped, series_in, series_of};
use crate::catalog::{Collection, Open, TIERS, Tiers, View};
use crate::change::{Before, Change};
use crate::index::{KeySet, keys_of};
use crate::limits;
use crate::records::{Image, RowId};
use crate::unit::Unit;

/// A measurement on its way.
struct Measurement<'d> {
    /// Where it is in the command.
    position: usize,
    document: RawDocument<'d>,
    millis: i64,
    statement: i32,
}

/// Measurements by their meta, in the order in which metas come.
struct Groups<'d> {
    series: &'d TimeSeries,
    groups: Vec<(Option<Value>, Vec<Measurement<'d>>)>,
    /// By the meta as measurements have it: most spell it alike.
    by_spelling: HashMap<&'d [u8], usize, RandomState>,
    /// By the meta in the form in which it is compared.
    by_meta: HashMap<Option<Vec<u8>>, usize, RandomState>,
}

impl<'d> Groups<'d> {
    fn new(series: &'d TimeSeries) -> Groups<'d> {
        Groups { series, groups: Vec::new(), by_spelling: HashMap::default(), by_meta: HashMap::default() }
    }

    /// Adds a measurement. `check` may refuse one whose meta is new.
    fn add(
        &mut self,
        measurement: Measurement<'d>,
        check: impl FnOnce(&Option<Value>) -> Result<()>,
    ) -> Result<()> {
        let spelling = self.series.spelling_of_meta(measurement.document);
        let group = match self.by_spelling.get(spelling) {
            Some(group) => *group,
            None => {
                let meta = self.series.meta_of(measurement.document);
                let key = meta.clone().map(|meta| Document::into_bytes([("", meta)].into_iter().collect()));
                let group = match self.by_meta.entry(key) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        check(&meta)?;
                        self.groups.push((meta, Vec::new()));
                        *new.insert(self.groups.len() - 1)
                    }
                };
                self.by_spelling.insert(spelling, group);
                group
            }
        };
        self.groups[group].1.push(measurement);
        Ok(())
    }
}

/// Inserts measurements. One that no bucket can hold is refused with its position; an error of the store or the operation ends
/// the command.
///
/// Measurements are written meta by meta, not in the order of the command. So what would be refused is looked for before the
/// first is written: an ordered insert must not write what comes behind an error.
pub fn insert_measurements(
    unit: &mut Unit<'_>,
    view: &View,
    documents: &[RawDocument<'_>],
    ordered: bool,
    statements: impl Fn(usize) -> i32,
) -> Result<InsertOutcome> {
    let series = series_of(view)?;
    let namespace = &view.namespace;
    if unit.is_transaction() {
        return Err(Error::user(
            ErrorCode::OperationNotSupportedInTransaction,
            format!(
                "time-series insert failed: {namespace} :: caused by :: Cannot insert into a time-series collection in a \
                 multi-document transaction: {namespace}"
            ),
        ));
    }
    check_not_blocked(unit, namespace)?;
    unit.writes_measurements = true;
    let mut outcome = InsertOutcome::default();
    let mut groups = Groups::new(series);
    let collection = unit.collection(&view.on)?;
    for (position, &document) in documents.iter().enumerate() {
        let statement = statements(position);
        if unit.answered(statement).is_some() {
            outcome.inserted += 1;
            continue;
        }
        let checked = check_measurement(series, collection.as_deref(), document).and_then(|millis| {
            groups.add(Measurement { position, document, millis, statement }, |meta| match &collection {
                Some(collection) => check_meta(series, collection, meta, millis, document),
                None => Ok(()),
            })
        });
        if let Err(error) = checked {
            outcome.errors.push((position, error));
            if ordered {
                break;
            }
        }
    }
    for (meta, measurements) in groups.groups {
        let mut left = &measurements[..];
        while !left.is_empty() {
            match fill_bucket(unit, view, &meta, left) {
                Ok(taken) => {
                    outcome.inserted += taken;
                    left = &left[taken..];
                    unit.streamed()?;
                }
                Err(error) if is_statement_error(&error) => {
                    outcome.errors.extend(left.iter().map(|refused| (refused.position, error.clone())));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if ordered && !outcome.errors.is_empty() && !left.is_empty() {
            break;
        }
    }
    outcome.errors.sort_by_key(|(position, _)| *position);
    if ordered {
        outcome.errors.truncate(1);
    }
    Ok(outcome)
}

/// When a measurement was taken, unless it can go into no bucket.
fn check_measurement(
    series: &TimeSeries,
    collection: Option<&Collection>,
    measurement: RawDocument<'_>,
) -> Result<i64> {
    let Some(millis) = series.time_of(measurement) else {
        let message =
            format!("'{}' must be present and contain a valid BSON UTC datetime value", series.time_field);
        return Err(Error::user(ErrorCode::BadValue, message));
    };
    let indexes = collection.iter().flat_map(|collection| collection.indexes.iter());
    let mut over = indexes.filter_map(|index| index.spec.measurements.as_ref());
    over.try_for_each(|over| over.check_measurement(measurement))?;
    // A bucket has each value three times, two of them as bounds, and a document around it: of small fields that is five
    // times their size.
    if measurement.as_bytes().len() > limits::DOCUMENT_BYTES_MAX / 8 {
        check_size(bucket_of(series, &series.meta_of(measurement), millis, measurement).as_raw())?;
    }
    Ok(millis)
}

/// Refuses a measurement whose meta an index does not take. A meta that has open buckets is in all indexes.
fn check_meta(
    series: &TimeSeries,
    collection: &Collection,
    meta: &Option<Value>,
    millis: i64,
    measurement: RawDocument<'_>,
) -> Result<()> {
    if collection.indexes.is_empty() || collection.shared.open_buckets.get(meta).is_some() {
        return Ok(());
    }
    let bucket = bucket_of(series, meta, millis, measurement);
    let mut keys = KeySet::default();
    collection.indexes.iter().try_for_each(|index| keys_of(&index.spec, bucket.as_raw(), &mut keys).map(drop))
}

/// The bucket of one measurement.
fn bucket_of(
    series: &TimeSeries,
    meta: &Option<Value>,
    millis: i64,
    measurement: RawDocument<'_>,
) -> Document {
    let bucket = Bucket::new(meta.clone(), series.begin(millis));
    bucket.with(series, [measurement], None).into_document()
}

/// Puts as many of these measurements as go together into the open buckets of their meta, or into a new one. How many
/// these are: at least one.
fn fill_bucket(
    unit: &mut Unit<'_>,
    view: &View,
    meta: &Option<Value>,
    measurements: &[Measurement<'_>],
) -> Result<usize> {
    loop {
        unit.operation.check()?;
        let Some(collection) = unit.enter(&view.on)? else { return Err(dropped(&view.namespace)) };
        let series = series_in(&collection)?;
        if series_of(view)?.meta_field != series.meta_field
            || series_of(view)?.time_field != series.time_field
        {
            return Err(dropped(&view.namespace));
        }
        match (Filling { collection: &collection, series, meta, measurements }).fill(unit) {
            Ok(Some(taken)) => return Ok(taken),
            Ok(None) => {}
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}

/// Measurements of one meta on their way into a bucket.
struct Filling<'f, 'd> {
    collection: &'f Arc<Collection>,
    series: &'f TimeSeries,
    meta: &'f Option<Value>,
    measurements: &'f [Measurement<'d>],
}

/// An open bucket whose record is held.
struct Held {
    row: RowId,
    stored: Image,
    bucket: Bucket,
}

/// A bucket that is not stored yet, and how many of the measurements are in it.
struct New {
    bucket: Bucket,
    taken: usize,
}

impl Filling<'_, '_> {
    /// How many measurements were written; none where what was known of the open buckets is outdated.
    fn fill(&self, unit: &mut Unit<'_>) -> Result<Option<usize>> {
        let shared = &self.collection.shared;
        let known = shared.open_buckets.get(self.meta);
        let Some((tiers, newest)) = known.and_then(|tiers| Some((tiers, tiers.newest()?))) else {
            return self.begin_anew(unit).map(Some);
        };
        let Some(newest) = self.hold(unit, newest)? else { return Ok(None) };
        // The writer that held the bucket before may have joined it with others.
        if shared.open_buckets.get(self.meta) != known {
            return Ok(None);
        }
        // A client has written to the buckets themselves.
        if newest.bucket.begin() != tiers.begin {
            shared.open_buckets.forget(self.meta);
            return Ok(None);
        }
        let first = &self.measurements[0];
        let goes_on = newest.bucket.takes(self.series, first.millis, first.document, &mut Fields::default());
        let room = TIERS[0].saturating_sub(newest.bucket.len());
        if goes_on && self.measurements.len() <= room {
            return self.append(unit, tiers, newest).map(Some);
        }
        let own_begin = self.series.begin(first.millis);
        let mut new = self.new_bucket(if goes_on { tiers.begin } else { own_begin })?;
        let plan = Plan::of(&tiers, new.bucket.len(), goes_on);
        if let Plan::Close(_) = plan {
            new = self.new_bucket(own_begin)?;
        }
        let mut buckets = vec![newest];
        for row in plan.joined(&tiers).skip(1) {
            let Some(older) = self.hold(unit, row)? else { return Ok(None) };
            buckets.push(older);
        }
        match (shared.moves.begin(), goes_on) {
            (Some(moving), _) => {
                unit.move_measurements(moving);
                self.carry_out(unit, tiers, plan, buckets, new).map(Some)
            }
            (None, true) => self.append(unit, tiers, buckets.swap_remove(0)).map(Some),
            (None, false) => self.begin_anew(unit).map(Some),
        }
    }

    /// Takes the record of an open bucket. Where it is not what it was when it was opened, the meta's open buckets are
    /// forgotten.
    fn hold(&self, unit: &mut Unit<'_>, row: RowId) -> Result<Option<Held>> {
        let stored = unit.lock_record(self.collection, row)?;
        let bucket = stored.as_ref().and_then(|stored| Bucket::decode(self.series, stored.document()));
        match (stored, bucket.filter(|bucket| bucket.is_of(self.meta))) {
            (Some(stored), Some(bucket)) => Ok(Some(Held { row, stored, bucket })),
            _ => {
                self.collection.shared.open_buckets.forget(self.meta);
                Ok(None)
            }
        }
    }

    /// A bucket of the first measurements, as many as it takes.
    fn new_bucket(&self, begin: i64) -> Result<New> {
        self.filled(Bucket::new(self.meta.clone(), begin))
    }

    /// A bucket of their meta with as many measurements as it takes, the first at least.
    fn filled(&self, mut bucket: Bucket) -> Result<New> {
        let collator = collator(&self.collection.collation);
        let mut fields = Fields::default();
        let mut taken = 0;
        for Measurement { document, millis, .. } in self.measurements {
            if !bucket.offer(self.series, *millis, *document, &mut fields, collator) {
                break;
            }
            taken += 1;
        }
        match taken {
            0 => Err(Error::bug("a bucket does not take a measurement that it was chosen for")),
            taken => Ok(New { bucket, taken }),
        }
    }

    /// Puts measurements behind those of the newest open bucket.
    fn append(&self, unit: &mut Unit<'_>, mut tiers: Tiers, newest: Held) -> Result<usize> {
        let Held { row, stored, bucket } = newest;
        let New { bucket, taken } = self.filled(bucket)?;
        tiers.resize(row, bucket.len());
        self.update(unit, row, &stored, &bucket.into_document())?;
        Ok(self.done(unit, tiers, taken))
    }

    /// Begins a bucket. Those that were open are closed as they are.
    fn begin_anew(&self, unit: &mut Unit<'_>) -> Result<usize> {
        let New { bucket, taken } = self.new_bucket(self.series.begin(self.measurements[0].millis))?;
        let mut tiers = Tiers { begin: bucket.begin(), ..Tiers::default() };
        tiers.open(self.insert(unit, bucket)?);
        Ok(self.done(unit, tiers, taken))
    }

    /// Joins open buckets, given from the newest to the oldest, and stores the new one.
    fn carry_out(
        &self,
        unit: &mut Unit<'_>,
        mut tiers: Tiers,
        plan: Plan,
        buckets: Vec<Held>,
        new: New,
    ) -> Result<usize> {
        let collator = collator(&self.collection.collation);
        if plan == Plan::Beside {
            tiers.open(self.insert(unit, new.bucket)?);
            return Ok(self.done(unit, tiers, new.taken));
        }
        let newest = buckets[0].bucket.id();
        let mut stored = Vec::with_capacity(buckets.len());
        let mut parts = Vec::with_capacity(buckets.len() + 1);
        for Held { row, stored: image, bucket } in buckets.into_iter().rev() {
            stored.push((row, image));
            parts.push(bucket);
        }
        let with_new = matches!(plan, Plan::Grow(_) | Plan::Restart);
        let mut new_bucket = Some(new.bucket);
        parts.extend(new_bucket.take_if(|_| with_new));
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else { return Err(Error::bug("no bucket is joined")) };
        for part in parts {
            if !whole.joins(&part, self.series) {
                // Their fields are of different types, or they would be too large.
                return self.begin_anew(unit);
            }
            whole.join(part, collator);
        }
        let (oldest, others) = stored.split_first().ok_or_else(|| Error::bug("no bucket is joined"))?;
        let count = whole.len();
        door::all_or_nothing(unit, |unit| {
            match plan {
                Plan::Restart => {
                    let whole = whole.restarted(self.series);
                    tiers = Tiers { begin: whole.begin(), ..Tiers::default() };
                    for (row, image) in &stored {
                        self.delete(unit, *row, image)?;
                    }
                    tiers.open(self.insert(unit, whole)?);
                    return Ok(());
                }
                Plan::Close(_) => {
                    let begin = new_bucket.as_ref().map_or(tiers.begin, Bucket::begin);
                    tiers = Tiers { begin, ..Tiers::default() };
                }
                Plan::Beside | Plan::Grow(_) | Plan::Join(_) => {
                    tiers.close(plan.joined(&tiers).collect());
                    tiers.open_in(plan.tier(), Open { row: oldest.0, count });
                }
            }
            let mut others = others;
            if let Some(mut bucket) = new_bucket {
                // The newest is given up; its record serves for the new one.
                match others.split_last().filter(|_| matches!(plan, Plan::Join(_))) {
                    Some(((row, image), rest)) => {
                        others = rest;
                        bucket.rename(newest);
                        tiers.open(Open { row: *row, count: bucket.len() });
                        self.update(unit, *row, image, &bucket.into_document())?;
                    }
                    None => tiers.open(self.insert(unit, bucket)?),
                }
            }
            for (row, image) in others {
                self.delete(unit, *row, image)?;
            }
            let is_changed = stored.len() > 1 || with_new;
            let whole = match plan {
                // A bucket of a few is not written again for the few bytes that it would save.
                Plan::Close(_) if is_changed || count >= TIERS[0] => whole.into_closed_document(self.series),
                _ if is_changed => whole.into_document(),
                _ => return Ok(()),
            };
            self.update(unit, oldest.0, &oldest.1, &whole)
        })?;
        Ok(self.done(unit, tiers, new.taken))
    }

    fn insert(&self, unit: &mut Unit<'_>, bucket: Bucket) -> Result<Open> {
        let (row, count) = (new_row(self.collection), bucket.len());
        // Others may look for it as soon as they know it.
        unit.lock_record(self.collection, row)?;
        let after = bucket.into_document();
        let change = Change::insert(self.collection, after.as_raw(), unit.cause);
        door::write(unit, Change { row: Some(row), ..change }, &|_| false)?;
        Ok(Open { row, count })
    }

    fn update(&self, unit: &mut Unit<'_>, row: RowId, stored: &Image, bucket: &Document) -> Result<()> {
        let before = Before::of(stored.document());
        let change = Change::update(self.collection, row, before, bucket.as_raw(), unit.cause);
        door::write(unit, change, &|_| false).map(drop)
    }

    fn delete(&self, unit: &mut Unit<'_>, row: RowId, stored: &Image) -> Result<()> {
        let change = Change::delete(self.collection, row, Before::of(stored.document()), unit.cause);
        door::write(unit, change, &|_| false).map(drop)
    }

    fn done(&self, unit: &mut Unit<'_>, tiers: Tiers, taken: usize) -> usize {
        self.collection.shared.open_buckets.set(self.meta, tiers);
        for measurement in &self.measurements[..taken] {
            unit.record_statement(measurement.statement, inserted);
        }
        taken
    }
}

/// What becomes of the open buckets of a meta when new measurements do not simply go into the newest. Tiers are joined
/// together with all smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// They stay as they are, beside a new one.
    Beside,
    /// These tiers are joined, and take the new measurements.
    Grow(usize),
    /// These tiers are joined, beside a new one.
    Join(usize),
    /// The largest is full. What is in the others goes with the new measurements into a bucket that begins later.
    Restart,
    /// None of them takes further measurements. These tiers are joined for good.
    Close(usize),
}

impl Plan {
    /// For so many measurements. `goes_on`: these fit into the open buckets by their time and fields.
    fn of(tiers: &Tiers, count: usize, goes_on: bool) -> Plan {
        let largest = TIERS.len() - 1;
        let all = tiers.count_up_to(largest);
        let is_full = all + count > MEASUREMENTS_MAX;
        if !goes_on || (is_full && all <= MEASUREMENTS_MAX && all + TIERS[0] > MEASUREMENTS_MAX) {
            let closing = |tier: &usize| tiers.count_up_to(*tier) <= MEASUREMENTS_MAX;
            return Plan::Close((0..TIERS.len()).rev().find(closing).unwrap_or(0));
        }
        let own = Tiers::for_count(count);
        if is_full {
            // What is in the smaller ones, if there is something, is not left in a small bucket for good.
            return match tiers.rows_up_to(largest - 1).next() {
                Some(_) => Plan::Restart,
                None => Plan::Close(largest),
            };
        }
        if tiers.rows_up_to(own).next().is_some() && tiers.count_up_to(own) + count <= TIERS[own] {
            return Plan::Grow(own);
        }
        match (own + 1..TIERS.len()).find(|&tier| tiers.count_up_to(tier) <= TIERS[tier]) {
            Some(tier) if tiers.rows_up_to(tier).next().is_some() => Plan::Join(tier),
            Some(_) => Plan::Beside,
            // As many as the largest tier holds, and no bucket in it.
            None => Plan::Grow(largest),
        }
    }

    /// The tier up to which buckets are joined.
    fn tier(self) -> usize {
        match self {
            Plan::Beside => 0,
            Plan::Grow(tier) | Plan::Join(tier) | Plan::Close(tier) => tier,
            Plan::Restart => TIERS.len() - 2,
        }
    }

    /// The buckets that are joined, from the newest to the oldest.
    fn joined(self, tiers: &Tiers) -> impl Iterator<Item = RowId> {
        let rows = (self != Plan::Beside).then(|| tiers.rows_up_to(self.tier()));
        rows.into_iter().flatten()
    }
}
