//! An index that is being built, as others see it: writers note what they touch, `currentOp` tells how far it
//! is, `dropIndexes` ends it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use kilim_bson::{Document, RawDocument};
use kilim_error::Result;
use kilim_patterns::Versions;
use parking_lot::Mutex;

use super::{Index, KeySet, Multikey, keys_of};
use crate::ids::RecordId;
use crate::layout;

/// An index under construction.
#[derive(Debug)]
pub struct BuildingIndex {
    pub index: Index,
    /// What it shares with the indexes that are built together with it.
    pub build: Arc<BuildProgress>,
    pub(crate) touched: Mutex<Touched>,
    /// The versions of documents of which it has the keys, where the collection gets them together with the index.
    pub(crate) versions: Option<Versions>,
}

/// How far a build is. Its indexes appear together, so it ends for all of them.
#[derive(Debug)]
pub struct BuildProgress {
    pub names: Vec<String>,
    pub started: Instant,
    phase: Mutex<Phase>,
    done: AtomicU64,
    total: AtomicU64,
    aborted: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Scanning,
    Loading,
    CatchingUp,
}

impl BuildProgress {
    pub(crate) fn new(names: Vec<String>, now: Instant) -> BuildProgress {
        BuildProgress {
            names,
            started: now,
            phase: Mutex::new(Phase::Scanning),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            aborted: AtomicBool::new(false),
        }
    }

    /// Ends the build at its next look around.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// What it does, how much of that is done, and of how much.
    pub fn now(&self) -> (Phase, u64, u64) {
        let phase = *self.phase.lock();
        (phase, self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn begin(&self, phase: Phase, total: u64) {
        let mut current = self.phase.lock();
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        *current = phase;
    }

    /// One more is done; how many are.
    pub(crate) fn step(&self) -> u64 {
        self.done.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub records: BTreeSet<RecordId>,
    pub multikey: Multikey,
    pub put_off: PutOff,
}

/// Keys of a unique index that several records hold for the moment: none of them is in the index. They are
/// looked at again in the next round.
#[derive(Debug, Default)]
pub(crate) struct PutOff {
    pub entries: BTreeSet<Vec<u8>>,
    pub records: BTreeSet<RecordId>,
}

impl PutOff {
    pub(crate) fn add(&mut self, entry: &[u8], record: RecordId) {
        if !self.entries.contains(entry) {
            self.entries.insert(entry.to_vec());
        }
        self.records.insert(record);
    }
}

impl BuildingIndex {
    /// A writer is about to change this record. Refuses a document that the index could not hold; what is
    /// replaced or removed is let go, whatever it is.
    pub(crate) fn touch(&self, record: RecordId, after: Option<RawDocument<'_>>) -> Result<()> {
        let multikey = match (after, &self.versions) {
            (Some(document), None) => keys_of(&self.index.spec, document, &mut KeySet::default())?,
            (Some(document), Some(versions)) => self.multikey_later(document, versions),
            (None, _) => Multikey::default(),
        };
        let mut touched = self.touched.lock();
        touched.records.insert(record);
        if !touched.multikey.covers(&multikey) {
            touched.multikey = touched.multikey.union(&multikey);
        }
        Ok(())
    }

    /// The arrays that a document will have in the versions to come. One that cannot be converted or indexed then is not
    /// refused now: the build finds it, and fails.
    fn multikey_later(&self, document: RawDocument<'_>, versions: &Versions) -> Multikey {
        let seen = versions.seen(document).ok().flatten();
        let document = seen.as_ref().map_or(document, Document::as_raw);
        keys_of(&self.index.spec, document, &mut KeySet::default()).unwrap_or_default()
    }

    pub(crate) fn put_off(&self, entry: &[u8], value: &[u8]) {
        self.touched.lock().put_off.add(entry, layout::record_id_of(&value[..8]));
    }

    /// The records to look at, and the arrays that they were seen with.
    pub(crate) fn take_touched(&self) -> (BTreeSet<RecordId>, Multikey) {
        let mut touched = self.touched.lock();
        (std::mem::take(&mut touched.records), touched.multikey.clone())
    }

    /// How many records writers have touched since the last round.
    pub(crate) fn touched_count(&self) -> usize {
        self.touched.lock().records.len()
    }
}
