//! Which buckets take further measurements. Known to the process alone: after a start, measurements go into new buckets.
//!
//! A measurement that comes alone is written with the whole bucket that it goes into. So the open measurements of a meta lie
//! in a few buckets of different sizes ([`Tiers`]): the next one goes into the smallest, and a bucket that is full goes into
//! the next larger one. Each measurement is written a few times more, not once with each that follows.
//!
//! An entry is a hint. A writer takes the buckets' records for itself and looks whether they are still there, and whether the
//! measurement fits.

use std::collections::HashMap;

use kilim_bson::Value;
use kilim_query::time_series::MEASUREMENTS_MAX;
use parking_lot::Mutex;

use crate::limits;
use crate::records::RowId;

/// How many measurements the bucket of a tier holds. A measurement that comes alone is written with 10 others on average,
/// then with 50 for every 20, and with 500 for every 100: as often as if it were written 18 times. When a tier and the one
/// below are full, they are a tenth of the largest, so that single measurements fill this completely.
pub(crate) const TIERS: [usize; 3] = [20, 80, MEASUREMENTS_MAX];

/// The open buckets of one meta.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tiers {
    /// When the oldest of them begins. All their measurements fit into one bucket that begins then.
    pub begin: i64,
    /// The largest has the oldest measurements.
    pub buckets: [Option<Open>; TIERS.len()],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    pub row: RowId,
    pub count: usize,
}

impl Tiers {
    /// The smallest tier that holds so many.
    pub fn for_count(count: usize) -> usize {
        TIERS.iter().position(|&most| count <= most).unwrap_or(TIERS.len() - 1)
    }

    /// The bucket with the newest measurements.
    pub fn newest(&self) -> Option<RowId> {
        self.rows_up_to(TIERS.len() - 1).next()
    }

    /// The buckets of a tier and of the smaller ones, from the newest to the oldest.
    pub fn rows_up_to(&self, tier: usize) -> impl Iterator<Item = RowId> + use<> {
        let buckets = self.buckets;
        buckets.into_iter().take(tier + 1).flatten().map(|open| open.row)
    }

    /// How many measurements are in a tier and the smaller ones.
    pub fn count_up_to(&self, tier: usize) -> usize {
        self.buckets[..=tier].iter().flatten().map(|open| open.count).sum()
    }

    /// Adds a bucket to the tier of its size.
    pub fn open(&mut self, bucket: Open) {
        self.open_in(Tiers::for_count(bucket.count), bucket);
    }

    pub fn open_in(&mut self, tier: usize, bucket: Open) {
        self.buckets[tier] = Some(bucket);
    }

    /// Takes these buckets out.
    pub fn close(&mut self, rows: Vec<RowId>) {
        for bucket in &mut self.buckets {
            bucket.take_if(|open| rows.contains(&open.row));
        }
    }

    /// Notes how many measurements a bucket has now.
    pub fn resize(&mut self, row: RowId, count: usize) {
        let found = self.buckets.iter_mut().flatten().find(|open| open.row == row);
        found.into_iter().for_each(|open| open.count = count);
    }
}

/// The buckets that each meta's measurements go into.
#[derive(Debug, Default)]
pub(crate) struct OpenBuckets(Mutex<HashMap<Option<Box<[u8]>>, Tiers>>);

impl OpenBuckets {
    pub fn get(&self, meta: &Option<Value>) -> Option<Tiers> {
        self.0.lock().get(&key(meta)).copied()
    }

    pub fn set(&self, meta: &Option<Value>, tiers: Tiers) {
        let mut open = self.0.lock();
        if open.len() >= limits::OPEN_BUCKETS_MAX {
            open.clear();
        }
        open.insert(key(meta), tiers);
    }

    pub fn forget(&self, meta: &Option<Value>) {
        self.0.lock().remove(&key(meta));
    }
}

fn key(meta: &Option<Value>) -> Option<Box<[u8]>> {
    let meta = [("", meta.clone()?)];
    Some(meta.into_iter().collect::<kilim_bson::Document>().into_bytes().into())
}
