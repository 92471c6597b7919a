//! Which measurements of a collection are open, and so wait to be sealed.
//!
//! What is known here is a hint, noted by writers before their commit: whoever seals measurements looks at each of them
//! under its intent. After a start nothing is known, and a pass over the collection finds what is open.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use kilim_patterns::{Bucketing, Place};
use parking_lot::Mutex;

use crate::ids::RecordId;
use crate::limits::OPEN_ROWS_MAX;

/// Open measurements, by the place where they belong.
#[derive(Debug, Default)]
pub(crate) struct OpenRows(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    places: HashMap<Place, Waiting, RandomState>,
    rows: usize,
    /// All open measurements are known, but for those of writers that have noted none yet.
    is_whole: bool,
    /// Buckets with holes.
    worn: BTreeSet<u64>,
    /// Passes that were due.
    pass: u64,
    /// From this pass on somebody is to look for what is open, if not all of it is known.
    look_from: u64,
}

/// Open measurements of one place.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Each with how often it was looked for and not found.
    pub rows: Vec<(RecordId, u8)>,
    pub bytes: usize,
    /// The pass in which the last one came.
    touched: u64,
    /// Those that do not fill a bucket are to be packed too, if they are at least so many.
    pub rest: Option<usize>,
}

/// A measurement that is not found may be one of a transaction that has yet to commit. It is looked for in this many passes:
/// a transaction lives for a minute, and a pass is made each second.
const TRIES: u8 = 120;

/// Passes after which no more measurements are expected in a span that is over.
const IDLE_PASSES: u64 = 10;

/// Passes after which open measurements are looked for again, where there are more than can be known: as many as an hour has.
const LOOK_PASSES: u64 = 3600;

/// The same after a failure, of a full disk for instance: a minute.
const RETRY_PASSES: u64 = 60;

/// Fewer are not worth a bucket while they can be left open.
const FEW: usize = 8;

/// A bucket with fewer rows is not made, whatever is asked for: slips would cost more than it saves.
pub(crate) const LEAST: usize = 2;

/// Which places are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that fill a bucket, and those in which no more measurements are expected at this time.
    Due(i64),
    All,
}

impl OpenRows {
    /// Notes an open measurement.
    pub fn note(&self, place: &Place, record: RecordId, bytes: usize) {
        self.note_again(place, record, bytes, 0);
    }

    /// Notes a measurement that was not found so many times.
    pub fn note_again(&self, place: &Place, record: RecordId, bytes: usize, tries: u8) {
        if !place.is_packed() || tries >= TRIES {
            return;
        }
        let mut known = self.0.lock();
        if known.rows >= OPEN_ROWS_MAX {
            known.forget(LOOK_PASSES);
            return;
        }
        known.rows += 1;
        let touched = known.pass;
        let waiting = match known.places.get_mut(place) {
            Some(waiting) => waiting,
            None => known.places.entry(place.clone()).or_default(),
        };
        waiting.rows.push((record, tries));
        waiting.bytes += bytes;
        waiting.touched = touched;
    }

    /// Notes that a bucket has a hole.
    pub fn note_worn(&self, bucket: u64) {
        let mut known = self.0.lock();
        if known.worn.len() < OPEN_ROWS_MAX {
            known.worn.insert(bucket);
        }
    }

    /// Takes the places that are due. Whoever takes them notes what stays open again.
    pub fn take(&self, bucketing: &Bucketing, which: Which) -> Vec<(Place, Waiting)> {
        let mut known = self.0.lock();
        let pass = known.pass;
        let is_due = |place: &Place, waiting: &mut Waiting| waiting.is_due(bucketing, place, which, pass);
        let mut taken: Vec<(Place, Waiting)> = known.places.extract_if(is_due).collect();
        for (place, waiting) in &mut taken {
            waiting.rest = match which {
                Which::All => Some(LEAST),
                Which::Due(now) => waiting.is_complete(bucketing, place, now, pass).then_some(FEW),
            };
        }
        known.rows -= taken.iter().map(|(_, waiting)| waiting.rows.len()).sum::<usize>();
        taken
    }

    /// Takes the buckets with holes.
    pub fn take_worn(&self) -> BTreeSet<u64> {
        std::mem::take(&mut self.0.lock().worn)
    }

    /// Counts a pass. Says whether it has something to do.
    pub fn begin_pass(&self, bucketing: &Bucketing, now: i64) -> bool {
        let mut known = self.0.lock();
        known.pass += 1;
        let pass = known.pass;
        let is_due =
            |(place, waiting): (&Place, &Waiting)| waiting.is_due(bucketing, place, Which::Due(now), pass);
        known.is_to_look() || !known.worn.is_empty() || known.places.iter().any(is_due)
    }

    /// Whether a pass over the collection is needed to know what is open. Says so once.
    pub fn begin_looking(&self) -> bool {
        let mut known = self.0.lock();
        let is_to_look = known.is_to_look();
        known.is_whole |= is_to_look;
        is_to_look
    }

    /// What was taken could not be sealed. It is looked for again after a while.
    pub fn note_failure(&self) {
        self.0.lock().forget(RETRY_PASSES);
    }

    /// Nothing is known any more.
    pub fn forget(&self) {
        self.0.lock().forget(0);
    }
}

impl Known {
    fn is_to_look(&self) -> bool {
        !self.is_whole && self.look_from <= self.pass
    }

    /// Forgets all, to be looked for after so many passes.
    fn forget(&mut self, passes: u64) {
        *self = Known { pass: self.pass, look_from: self.pass + passes, ..Known::default() };
    }
}

impl Waiting {
    fn is_due(&self, bucketing: &Bucketing, place: &Place, which: Which, pass: u64) -> bool {
        let Which::Due(now) = which else { return true };
        let is_full = self.rows.len() >= bucketing.max_count || self.bytes >= bucketing.max_bytes;
        is_full || (self.rows.len() >= FEW && self.is_complete(bucketing, place, now, pass))
    }

    /// Whether no more measurements are expected.
    fn is_complete(&self, bucketing: &Bucketing, place: &Place, now: i64, pass: u64) -> bool {
        let is_over = bucketing.end_of(place).is_some_and(|end| end <= now);
        is_over && self.touched + IDLE_PASSES <= pass
    }
}
