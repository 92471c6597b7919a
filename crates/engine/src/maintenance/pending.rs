//! What a change leaves pending: one record for a source (or a group) whose many targets a job writes later.
//!
//! The record is part of the commit that changes the source, and holds what the targets must become: so whoever has
//! a snapshot has all that is needed to see the truth in it, and a job that is interrupted finds its work again. A
//! later change of the same source renews the record, whatever the number of its targets.
//!
//! Invariant: between the change of a source and the end of its fan-out there is a record, in every snapshot. What a
//! target becomes is read from it while it is held, so an older value never follows a newer one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result, StorageError};
use kilim_patterns::declaration::Mode;
use kilim_patterns::{Copied, Due, Place, key_bytes};
use kilim_storage::{Direction, Durability, Snapshot, Space};

use super::locks::Contended;
use super::look::find_by_unique;
use super::{Pattern, PatternId, Registry};
use crate::catalog::Collection;
use crate::engine::Engine;
use crate::layout;
use crate::limits;
use crate::namespace::Namespace;
use crate::unit::Unit;

/// What is pending for the documents with a key.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub key: Value,
    /// Another with each change.
    pub version: i64,
    pub due: Due,
    /// About how many documents there are to write.
    pub documents: u64,
    /// Since when, in milliseconds since 1970.
    pub since: i64,
}

impl Pending {
    fn encode(&self) -> Document {
        let mut document = doc! {
            "key": self.key.clone(),
            "version": self.version,
            "documents": self.documents as i64,
            "since": self.since,
        };
        match &self.due {
            Due::Copy(Copied::To(copy)) => document.push("copy", copy.clone()),
            Due::Copy(Copied::Null) => document.push("left", "null"),
            Due::Copy(Copied::Unset | Copied::Keep) => document.push("left", "unset"),
            Due::Remove => document.push("left", "remove"),
            Due::Group(_) => document.push("left", "group"),
        }
        document
    }

    fn decode(stored: &[u8]) -> Result<Pending> {
        let decoded = RawDocument::parse(stored).ok().and_then(|document| {
            let number = |name| match document.get(name) {
                Some(RawValue::Int64(number)) => Some(number),
                _ => None,
            };
            let due = match (document.get("copy"), document.get("left").and_then(RawValue::as_str)) {
                (Some(RawValue::Document(copy)), _) => Due::Copy(Copied::To(copy.to_document())),
                (_, Some("null")) => Due::Copy(Copied::Null),
                (_, Some("unset")) => Due::Copy(Copied::Unset),
                (_, Some("remove")) => Due::Remove,
                (_, Some("group")) => Due::Group(None),
                _ => return None,
            };
            Some(Pending {
                key: document.get("key")?.to_value(),
                version: number("version")?,
                due,
                documents: number("documents")?.max(0) as u64,
                since: number("since")?,
            })
        });
        decoded.ok_or_else(|| StorageError::Corrupt("a pending record is unreadable".to_owned()).into())
    }

    pub fn key_bytes(&self) -> Vec<u8> {
        key_bytes(self.key.as_raw())
    }
}

/// All that a pattern has pending in a snapshot.
pub(super) fn all_of(snapshot: &Snapshot, pattern: PatternId) -> Result<Vec<Pending>> {
    scan(snapshot, pattern).map(|stored| Pending::decode(&stored?)).collect()
}

fn scan(
    snapshot: &Snapshot,
    pattern: PatternId,
) -> impl Iterator<Item = Result<kilim_storage::Bytes>> + use<> {
    let (lower, upper) =
        (layout::pending_key(pattern, &[]), layout::pending_key(PatternId(pattern.0 + 1), &[]));
    let bounds = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
    snapshot
        .scan(Space::Meta, bounds.0, bounds.1, Direction::Forward)
        .map(|entry| entry.map(|(_, value)| value))
}

pub(super) fn count_of(snapshot: &Snapshot, pattern: PatternId) -> Result<usize> {
    scan(snapshot, pattern).try_fold(0, |count, stored| stored.map(|_| count + 1))
}

/// The record of a key as of the newest commit. The caller holds the key.
pub(super) fn newest(unit: &mut Unit<'_>, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = unit.transaction().latest(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}

/// The record of a key as a snapshot has it.
pub(super) fn in_snapshot(snapshot: &Snapshot, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = snapshot.get(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}

/// The record of a key as a transaction sees it.
pub(super) fn in_transaction(unit: &mut Unit<'_>, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = unit.transaction().get(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}

/// What a change on its way leaves, written with everything else.
#[derive(Default)]
pub(super) struct Leaving {
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
        let job = unit.engine.lag.note(unit.engine, pattern);
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
pub(super) enum Room {
    Free,
    /// Not before others are through.
    Later,
    /// Nobody will make room, or there can be no waiting for it: the targets are written with the change.
    Never,
}

/// `leaving` is what the same change leaves already.
pub(super) fn room(unit: &mut Unit<'_>, pattern: &Pattern, leaving: &Leaving) -> Result<Room> {
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
pub(super) fn wait_for_room(unit: &mut Unit<'_>, pattern: &Pattern, leaving: &Leaving) -> Error {
    unit.contended = Some(Contended::Room(pattern.id, leaving.of(pattern.id)));
    Error::Conflict("a pattern has as many sources pending as it may have")
}

/// Ends the attempt; the next begins once a key is pending no more.
pub(super) fn wait_for_key(unit: &mut Unit<'_>, pattern: &Pattern, key: Vec<u8>) -> Error {
    unit.contended = Some(Contended::Pending(pattern.id, key));
    Error::Conflict("a pattern has not come to the end of a deletion")
}

/// What is waited for.
#[derive(Clone, Copy)]
pub(super) enum Until<'k> {
    /// Nothing is pending for a key.
    Done(&'k [u8]),
    /// One more can be pending beside those that the change leaves.
    Room(usize),
}

impl Unit<'_> {
    /// Waits with empty hands until a pattern's job has got on.
    pub(super) fn await_pending(&mut self, pattern: PatternId, until: Until<'_>) -> Result<()> {
        const TURN: Duration = Duration::from_millis(2);
        loop {
            self.operation.check()?;
            self.engine.store.check_healthy()?;
            let snapshot = self.engine.store.snapshot();
            let done = match until {
                Until::Done(key) => snapshot.get(Space::Meta, &layout::pending_key(pattern, key))?.is_none(),
                Until::Room(beside) => count_of(&snapshot, pattern)? + beside < limits::PENDING_SOURCES_MAX,
            };
            if done {
                return Ok(());
            }
            // Paused, modified or dropped meanwhile: the next attempt goes by what is in force now.
            if self.engine.patterns().by_id(pattern).is_none_or(|pattern| !pattern.is_maintained()) {
                return Ok(());
            }
            // A job cannot enter a collection that is held whole.
            if self.has_lent() || !self.engine.lag.is_worked_on(pattern) {
                return match until {
                    Until::Done(_) => Err(not_worked_on(self.engine, pattern)),
                    // For want of room it does the work itself.
                    Until::Room(_) => Ok(()),
                };
            }
            std::thread::sleep(TURN);
        }
    }
}

fn not_worked_on(engine: &Engine, id: PatternId) -> Error {
    let registry = engine.patterns();
    let name = registry.iter().find(|pattern| pattern.id == id).map_or("", |one| &*one.declaration.name);
    Error::user(
        ErrorCode::PatternNotReady,
        format!(
            "a source that was deleted is referred to, and pattern '{name}' has not carried that deletion through: \
             waitPattern; if its job was killed, repairPattern takes it up again"
        ),
    )
}

/// Whether what others read depends on what this pattern does to its documents: then it is never behind, for they
/// would be too.
pub(super) fn is_read_by_others(patterns: &[Arc<Pattern>], pattern: &Pattern) -> bool {
    reader_of(patterns, pattern).is_some()
}

/// Another pattern that reads what this one maintains.
pub(super) fn reader_of<'p>(patterns: &'p [Arc<Pattern>], pattern: &Pattern) -> Option<&'p Arc<Pattern>> {
    let comes_and_goes = pattern.kind().comes_and_goes();
    patterns.iter().filter(|other| !is_same(other, pattern)).find(|other| {
        other.declaration.reads_from(&pattern.declaration).is_some()
            || comes_and_goes && other.source.as_ref() == Some(&pattern.target)
    })
}

fn is_same(one: &Pattern, other: &Pattern) -> bool {
    one.target == other.target && one.declaration.name == other.declaration.name
}

/// Whether a pattern leaves everything to its job.
pub(super) fn is_async(pattern: &Pattern) -> bool {
    pattern.declaration.options.mode == Mode::Async
}

impl Engine {
    /// Refuses a pattern that would be behind what others read, or would read what is behind.
    pub(super) fn check_chain(&self, pattern: &Pattern) -> Result<()> {
        let registry = self.patterns();
        let others = registry.of(&pattern.target.database);
        let named = |other: &Pattern| format!("'{}' of {}", other.declaration.name, other.target);
        if is_async(pattern)
            && let Some(reader) = reader_of(others, pattern)
        {
            return Err(pattern.refusal(
                ErrorCode::PatternFieldConflict,
                None,
                format!(
                    "mode: \"async\" would leave {} '{}' behind, and {} reads what it maintains: declare it with mode: \
                     \"sync\"",
                    pattern.declaration.kind_name,
                    pattern.declaration.name,
                    named(reader)
                ),
            ));
        }
        let own = [Arc::new(pattern.clone())];
        for other in others.iter().filter(|other| !is_same(other, pattern) && is_read_by_others(&own, other))
        {
            if is_async(other) {
                return Err(pattern.refusal(
                    ErrorCode::PatternFieldConflict,
                    None,
                    format!(
                        "it would read what {} maintains, which may be behind (mode: \"async\"): declare that one with \
                         mode: \"sync\"",
                        named(other)
                    ),
                ));
            }
            if self.behind_of(other)?.pending_sources > 0 {
                return Err(pattern.refusal(
                    ErrorCode::PatternNotReady,
                    None,
                    format!(
                        "it would read what {} maintains, which is behind now: waitPattern until it is not",
                        named(other)
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// What patterns that are about to give way to others of their name have pending, written for those: with what their
/// sources are now. The collections are held; `collection` tells what a name means by then.
pub(super) fn hand_over(
    unit: &mut Unit<'_>,
    before: &Registry,
    after: &Registry,
    collection: &dyn Fn(&Namespace) -> Option<Arc<Collection>>,
) -> Result<()> {
    let engine = unit.engine;
    let gives_way = |old: &&Arc<Pattern>| after.by_id(old.id).is_none() && engine.lag.is_open(old.id);
    for old in before.iter().filter(gives_way) {
        engine.store.settle(Durability::Relaxed)?;
        let snapshot = engine.store.snapshot();
        let new = after.find(&old.target, &old.declaration.name);
        let source = new.and_then(|new| collection(new.source.as_ref()?));
        for pending in all_of(&snapshot, old.id)? {
            unit.transaction().delete(Space::Meta, &layout::pending_key(old.id, &pending.key_bytes()));
            let Some(new) = new else { continue };
            let found = match (&source, new.kind().found_by()) {
                (Some(source), Some((Place::Source, field))) => {
                    find_by_unique(&snapshot, source, field, pending.key.as_raw())?
                }
                _ => None,
            };
            // Groups are shown as the new one is filled.
            let Some(due) = new.kind().renewed(&pending.due, found.as_ref().map(Document::as_raw)) else {
                continue;
            };
            engine.lag.enter(new.id);
            let pending = Pending { due, version: pending.version + 1, ..pending };
            let place = layout::pending_key(new.id, &pending.key_bytes());
            unit.transaction().put(Space::Meta, place, pending.encode().into_bytes());
        }
    }
    Ok(())
}
