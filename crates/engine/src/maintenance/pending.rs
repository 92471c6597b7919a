//! What an evaluation makes pending, and whether there is room for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::RawValue;
use kilim_error::{Error, Result};
use kilim_patterns::declaration::Mode;
use kilim_patterns::{Due, key_bytes};
use kilim_storage::Space;

use crate::ids::PatternId;
use crate::layout;
use crate::limits;
use crate::patterns::{Pattern, Pending, count_of};
use crate::unit::pending::newest;
use crate::unit::{Contended, Unit};

/// The records of what one evaluation makes pending, with the jobs that will write it. They are stored with its documents.
#[derive(Default)]
pub(crate) struct NewPending {
    records: BTreeMap<(PatternId, Vec<u8>), (Pending, u64)>,
}

impl NewPending {
    /// Stores the records, and notes them for the command's reply.
    pub fn write(&self, unit: &mut Unit<'_>) {
        for ((pattern, key), (pending, job)) in &self.records {
            let place = layout::pending_key(*pattern, key);
            unit.transaction().put(Space::Meta, place, pending.encode().into_bytes());
            unit.caused.add_pending(*job, pending.documents);
        }
    }

    /// Whether something becomes pending for this key.
    pub fn has(&self, pattern: PatternId, key: &[u8]) -> bool {
        self.records.contains_key(&(pattern, key.to_vec()))
    }

    /// How many sources of one pattern become pending.
    fn of(&self, pattern: PatternId) -> usize {
        self.records.keys().filter(|(own, _)| *own == pattern).count()
    }

    /// Makes what is due to a key pending. A record that is there already is replaced.
    pub fn add(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        key: RawValue<'_>,
        due: Due,
        documents: u64,
    ) -> Result<()> {
        let bytes = key_bytes(key);
        // The pattern is entered among those with something pending before the record can be committed, so that no reader
        // misses it. It is taken off only by a job that holds this key alone, that is, when no unit is between here and its
        // commit.
        unit.share_in_line(Space::Meta, &layout::pending_key(pattern.id, &[]))?;
        let job = unit.engine.note_pending(pattern);
        unit.hold_alone(Space::Meta, &layout::pending_key(pattern.id, &bytes))?;
        let known = newest(unit, pattern.id, &bytes)?;
        let now = unit.engine.environment().since_epoch();
        let pending = Pending {
            key: key.to_value(),
            // Larger than any version that a job has read.
            version: known.as_ref().map_or(0, |known| known.version + 1).max(now.as_micros() as i64),
            due,
            documents: documents.max(known.as_ref().map_or(0, |known| known.documents)),
            since: known.map_or(now.as_millis() as i64, |known| known.since),
        };
        self.records.insert((pattern.id, bytes), (pending, job));
        Ok(())
    }
}

/// Whether one more source of a pattern can be pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// Not now: the pattern's job makes room.
    Later,
    /// No job makes room, or the unit cannot wait for it. The targets are written with the change.
    Never,
}

/// Whether there is room for `more` pending sources beside `new_pending`, what the same change makes pending.
pub(crate) fn room(
    unit: &mut Unit<'_>,
    pattern: &Pattern,
    new_pending: &NewPending,
    more: usize,
) -> Result<Room> {
    if !unit.engine.pending.has(pattern.id) {
        return Ok(Room::Free);
    }
    let snapshot = unit.transaction().newest_snapshot();
    if count_of(&snapshot, pattern.id)? + new_pending.of(pattern.id) + more <= limits::PENDING_SOURCES_MAX {
        return Ok(Room::Free);
    }
    Ok(match is_worked_on(unit, pattern) {
        true => Room::Later,
        false => Room::Never,
    })
}

/// Whether a job writes what is pending while the unit waits for it.
pub(crate) fn is_worked_on(unit: &Unit<'_>, pattern: &Pattern) -> bool {
    !unit.is_transaction() && !unit.keeps_jobs_out() && unit.engine.pending.is_worked_on(pattern.id)
}

/// Ends the attempt. The next one begins when there is room for `more` pending sources.
pub(crate) fn wait_for_room(
    unit: &mut Unit<'_>,
    pattern: &Pattern,
    new_pending: &NewPending,
    more: usize,
) -> Error {
    unit.contended = Some(Contended::Room(pattern.id, new_pending.of(pattern.id) + more - 1));
    Error::Conflict("a pattern has as many sources pending as it may have")
}

/// Whether other patterns read what this pattern writes. Then nothing of it is ever pending, because what those patterns
/// compute would be missing too.
pub(crate) fn is_read_by_others(patterns: &[Arc<Pattern>], pattern: &Pattern) -> bool {
    reader_of(patterns, pattern).is_some()
}

/// Another pattern that reads what this one maintains.
pub(crate) fn reader_of<'p>(patterns: &'p [Arc<Pattern>], pattern: &Pattern) -> Option<&'p Arc<Pattern>> {
    let comes_and_goes = pattern.kind().comes_and_goes();
    patterns.iter().filter(|other| !is_same(other, pattern)).find(|other| {
        other.declaration.reads_from(&pattern.declaration).is_some()
            || comes_and_goes && other.source.as_ref() == Some(&pattern.target)
    })
}

pub(crate) fn is_same(one: &Pattern, other: &Pattern) -> bool {
    one.target == other.target && one.declaration.name == other.declaration.name
}

/// Whether all targets of a pattern are written by its job (`mode: "async"`).
pub(crate) fn is_async(pattern: &Pattern) -> bool {
    pattern.declaration.options.mode == Mode::Async
}
