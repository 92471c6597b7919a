//! What a change on its way leaves for a job, and whether there is room for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// What a change on its way leaves, written with everything else.
#[derive(Default)]
pub(crate) struct Leaving {
    records: BTreeMap<(PatternId, Vec<u8>), (Pending, u64)>,
}

impl Leaving {
    /// Writes the records; the unit's reply tells of them.
    pub fn write(&self, unit: &mut Unit<'_>) {
        for ((pattern, key), (pending, job)) in &self.records {
            let place = layout::pending_key(*pattern, key);
            unit.transaction().put(Space::Meta, place, pending.encode().into_bytes());
            unit.caused.leave(*job, pending.documents);
        }
    }

    /// Whether it leaves something for this key.
    pub fn has(&self, pattern: PatternId, key: &[u8]) -> bool {
        self.records.contains_key(&(pattern, key.to_vec()))
    }

    /// How much it leaves of one pattern.
    fn of(&self, pattern: PatternId) -> usize {
        self.records.keys().filter(|(own, _)| *own == pattern).count()
    }

    /// Leaves something pending. The record that was there is renewed.
    pub fn leave(
        &mut self,
        unit: &mut Unit<'_>,
        pattern: &Arc<Pattern>,
        key: RawValue<'_>,
        due: Due,
        documents: u64,
    ) -> Result<()> {
        let bytes = key_bytes(key);
        // Readers are warned first, and stay warned until nobody is between here and his commit.
        unit.share_in_line(Space::Meta, &layout::pending_key(pattern.id, &[]))?;
        let job = unit.engine.note_pending(pattern);
        unit.hold_alone(Space::Meta, &layout::pending_key(pattern.id, &bytes))?;
        let known = newest(unit, pattern.id, &bytes)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let pending = Pending {
            key: key.to_value(),
            // Never one that a job knows from before.
            version: known.as_ref().map_or(0, |known| known.version + 1).max(now.as_micros() as i64),
            due,
            documents: documents.max(known.as_ref().map_or(0, |known| known.documents)),
            since: known.map_or(now.as_millis() as i64, |known| known.since),
        };
        self.records.insert((pattern.id, bytes), (pending, job));
        Ok(())
    }
}

/// Whether a pattern can have one more source pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// Not before others are through.
    Later,
    /// Nobody will make room, or there can be no waiting for it: the targets are written with the change.
    Never,
}

/// `leaving` is what the same change leaves already.
pub(crate) fn room(unit: &mut Unit<'_>, pattern: &Pattern, leaving: &Leaving) -> Result<Room> {
    if !unit.engine.lag.is_open(pattern.id) {
        return Ok(Room::Free);
    }
    let snapshot = unit.transaction().newest_snapshot();
    if count_of(&snapshot, pattern.id)? + leaving.of(pattern.id) < limits::PENDING_SOURCES_MAX {
        return Ok(Room::Free);
    }
    let nobody = unit.has_lent() || !unit.engine.lag.is_worked_on(pattern.id);
    Ok(match unit.is_transaction() || nobody {
        true => Room::Never,
        false => Room::Later,
    })
}

/// Ends the attempt; the next begins once there is room for another source.
pub(crate) fn wait_for_room(unit: &mut Unit<'_>, pattern: &Pattern, leaving: &Leaving) -> Error {
    unit.contended = Some(Contended::Room(pattern.id, leaving.of(pattern.id)));
    Error::Conflict("a pattern has as many sources pending as it may have")
}

/// Whether what others read depends on what this pattern does to its documents: then it is never behind, for they
/// would be too.
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

/// Whether a pattern leaves everything to its job.
pub(crate) fn is_async(pattern: &Pattern) -> bool {
    pattern.declaration.options.mode == Mode::Async
}
