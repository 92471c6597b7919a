//! Reading the journal back after the store was closed or cut off.
//!
//! First all slots are looked at and the segments from the start on are put in order; none may be missing
//! between them. Then their batches are read: a segment that has a successor must be whole up to where that
//! begins, because it was synced before. The last segment may end anywhere that nobody was promised to be on
//! disk: what any whole batch in it, also one behind the break, knew to be synced must be before the break.
//!
//! Damage is refused and never repaired, since only a person can decide to give up what is behind it.
//!
//! Invariant: nothing is written, and what is replayed is a gapless run of sequences from the start on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kilim_error::{Error, Result, StorageError};

use super::batch::Kind;
use super::blocks::Blocks;
use super::scan::{Behind, SegmentBytes};
use super::slot::{BLOCK, HeaderBlock, NO_SEGMENT, Slot, decode_header, io_error, slot_index, slot_name};
use super::{Cut, End, Journal, Phase, Recovered, Segment, Sizes, Start, State, StoreId};
use crate::disk::Disk;

/// What is told of each batch: its sequence, its commit time and its payload.
pub(super) type Replay<'a> = dyn FnMut(u64, u64, &[u8]) -> Result<()> + 'a;

/// All slots of the disk, by what lies in them.
#[derive(Default)]
struct Inventory {
    /// By number, those from the start on.
    segments: BTreeMap<u64, Segment>,
    /// By number, the slots of all segments, to find two of the same.
    numbers: BTreeMap<u64, u64>,
    spares: Vec<Slot>,
    unusable: Vec<u64>,
    taken: BTreeSet<u64>,
    damaged: Vec<String>,
}

/// How far the journal was read.
struct Progress {
    position: u64,
    sequence: u64,
    /// The highest position that a batch knew to be on disk.
    synced: u64,
    commit_time: Option<u64>,
    cut: Option<Cut>,
    closed: bool,
}

impl Journal {
    /// Reads the batches from `start` on and hands each to `replay`. Changes nothing on disk; to go on writing
    /// takes `resume`.
    pub(crate) fn recover(
        disk: Arc<dyn Disk>,
        store: StoreId,
        start: Start,
        replay: &mut Replay<'_>,
    ) -> Result<Recovered> {
        Journal::recover_sized(disk, store, start, replay, super::sizes())
    }

    pub(super) fn recover_sized(
        disk: Arc<dyn Disk>,
        store: StoreId,
        start: Start,
        replay: &mut Replay<'_>,
        sizes: Sizes,
    ) -> Result<Recovered> {
        let inventory = Inventory::take(&*disk, &store, &start)?;
        inventory.check_gapless(&*disk, &start)?;
        let progress = read_segments(&*disk, &inventory.segments, &start, replay)?;
        let state = State {
            phase: Phase::Recovered,
            segments: inventory.segments.into_values().collect(),
            spares: inventory.spares,
            taken: inventory.taken,
            unusable: inventory.unusable,
            end: match (&progress.cut, progress.closed) {
                (Some(_), _) => End::Cut,
                (None, true) => End::Closed,
                (None, false) => End::Clean,
            },
            position: progress.position,
            sequence: progress.sequence,
            commit_time: progress.commit_time.unwrap_or(0),
            buffer: Vec::new(),
            blocks: Blocks::default(),
        };
        Ok(Recovered {
            // What was read behind that need not be on disk; `resume` sees to it.
            journal: Journal::new(disk, store, sizes, progress.synced.min(progress.position), state),
            #[cfg(test)]
            next_sequence: progress.sequence,
            commit_time: progress.commit_time,
            replayed_bytes: progress.position - start.position,
            cut: progress.cut,
            #[cfg(test)]
            closed: progress.closed,
        })
    }
}

impl Inventory {
    /// Looks at the first block of every slot.
    fn take(disk: &dyn Disk, store: &StoreId, start: &Start) -> Result<Inventory> {
        let mut inventory = Inventory::default();
        let names = disk.list().map_err(|error| io_error(disk, "", "cannot be listed", &error))?;
        let mut indexes: Vec<u64> = names.iter().filter_map(|name| slot_index(name)).collect();
        // In order, so that the same directory always gives the same message.
        indexes.sort_unstable();
        for index in indexes {
            inventory.add(disk, store, start, index)?;
        }
        Ok(inventory)
    }

    fn add(&mut self, disk: &dyn Disk, store: &StoreId, start: &Start, index: u64) -> Result<()> {
        let name = slot_name(index);
        self.taken.insert(index);
        let failed = |error| io_error(disk, &name, "the header cannot be read", &error);
        let file = disk.open(&name).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        let mut block = vec![0; BLOCK.min(length) as usize];
        file.read_at(&mut block, 0).map_err(failed)?;
        let header = match decode_header(&block) {
            HeaderBlock::Whole(header) => header,
            HeaderBlock::Blank => {
                self.unusable.push(index);
                return Ok(());
            }
            HeaderBlock::Damaged => {
                tracing::warn!(file = name, "the header of a journal file is damaged");
                self.unusable.push(index);
                self.damaged.push(name);
                return Ok(());
            }
            HeaderBlock::Foreign(version) => {
                return Err(corrupt(disk, &name, &format!("the format's version {version} is not known")));
            }
        };
        if header.store != *store {
            return Err(corrupt(disk, &name, "the file belongs to another store"));
        }
        let slot = Slot { index, file, size: header.size };
        if header.segment != NO_SEGMENT
            && let Some(other) = self.numbers.insert(header.segment, index)
        {
            let what = format!("holds segment {}, which {name} holds too", header.segment);
            return Err(corrupt(disk, &slot_name(other), &what));
        }
        if header.segment >= start.segment && header.segment != NO_SEGMENT {
            self.segments.insert(header.segment, Segment::new(&header, slot));
        } else if length >= header.size {
            self.spares.push(slot);
        } else {
            self.unusable.push(index);
        }
        Ok(())
    }

    /// Refuses if a segment from the start to the last one is missing.
    fn check_gapless(&self, disk: &dyn Disk, start: &Start) -> Result<()> {
        for (expected, number) in (start.segment..).zip(self.segments.keys()) {
            if *number != expected {
                return Err(self.missing(disk, expected, &format!("although segment {number} is there")));
            }
        }
        match self.segments.get(&start.segment) {
            None => Err(self.missing(disk, start.segment, "which the store needs")),
            Some(first) if first.start() != *start => {
                let found = first.start();
                let what = format!(
                    "segment {} begins at position {} with batch {}; the store needs position {} with batch {}",
                    found.segment, found.position, found.sequence, start.position, start.sequence
                );
                Err(corrupt(disk, &first.slot.name(), &what))
            }
            Some(_) => Ok(()),
        }
    }

    fn missing(&self, disk: &dyn Disk, segment: u64, why: &str) -> Error {
        let damaged = match self.damaged.as_slice() {
            [] => String::new(),
            names => format!("; the header is damaged of {}", names.join(", ")),
        };
        let message = format!("{}: the journal's segment {segment} is missing, {why}{damaged}", disk.name());
        StorageError::Corrupt(message).into()
    }
}

fn corrupt(disk: &dyn Disk, name: &str, what: &str) -> Error {
    StorageError::Corrupt(format!("{}/{name}: {what}", disk.name())).into()
}

fn read_segments(
    disk: &dyn Disk,
    segments: &BTreeMap<u64, Segment>,
    start: &Start,
    replay: &mut Replay<'_>,
) -> Result<Progress> {
    let mut progress = Progress {
        position: start.position,
        sequence: start.sequence,
        synced: start.position,
        commit_time: None,
        cut: None,
        closed: false,
    };
    let mut buffer = Vec::new();
    for segment in segments.values() {
        if (segment.base, segment.sequence) != (progress.position, progress.sequence) {
            let what = format!(
                "segment {} begins at position {} with batch {}, and the one before ends at {} before batch {}",
                segment.number, segment.base, segment.sequence, progress.position, progress.sequence
            );
            return Err(corrupt(disk, &segment.slot.name(), &what));
        }
        let bytes = SegmentBytes::read(disk, segment, buffer)?;
        let next = segments.get(&(segment.number + 1));
        let limit = next.map_or(u64::MAX, |next| next.base);
        read_batches(&bytes, limit, &mut progress, replay)?;
        match next {
            // What stands at the limit does not matter: the record that names the next segment, or what was
            // there before that was written.
            Some(next) if progress.position == limit => {
                tracing::debug!(file = bytes.name, next = next.number, "a journal segment was replayed");
            }
            Some(next) => return Err(damaged(disk, &bytes, &progress, next.base)),
            None => check_end(disk, &bytes, &mut progress)?,
        }
        buffer = bytes.into_buffer();
    }
    Ok(progress)
}

/// Replays batches up to this position or to the first place where none stands that continues the chain.
fn read_batches(
    bytes: &SegmentBytes,
    limit: u64,
    progress: &mut Progress,
    replay: &mut Replay<'_>,
) -> Result<()> {
    while progress.position < limit {
        let Some(batch) = bytes.batch_at(progress.position) else { break };
        let continues = batch.header.kind == Kind::Data && batch.header.sequence == progress.sequence;
        if !continues || batch.end() > limit {
            break;
        }
        replay(batch.header.sequence, batch.header.commit_time, batch.payload)?;
        progress.synced = progress.synced.max(batch.header.synced);
        progress.position = batch.end();
        progress.sequence += 1;
        progress.commit_time = Some(batch.header.commit_time);
    }
    Ok(())
}

/// Decides whether the last segment may end where its batches do.
fn check_end(disk: &dyn Disk, bytes: &SegmentBytes, progress: &mut Progress) -> Result<()> {
    let position = progress.position;
    let record = bytes.batch_at(position).filter(|record| record.header.sequence == progress.sequence);
    match record.map(|record| (record.header.kind, record)) {
        Some((Kind::Continues, record)) => {
            let next = record.next_segment().unwrap_or(NO_SEGMENT);
            let what =
                format!("the journal goes on in segment {next} behind position {position}, which is missing");
            return Err(corrupt(disk, &bytes.name, &what));
        }
        Some((Kind::Closed, record)) => {
            let behind = bytes.behind(record.end());
            if behind.batches > 0 {
                let what = format!(
                    "the journal was closed at position {position}, yet {} batches stand behind",
                    behind.batches
                );
                return Err(corrupt(disk, &bytes.name, &what));
            }
            progress.closed = true;
            return Ok(());
        }
        _ => {}
    }
    let behind = bytes.behind(position);
    if position < behind.synced {
        return Err(damaged(disk, bytes, progress, behind.synced));
    }
    if behind.end > position {
        progress.cut = Some(Cut {
            file: bytes.name.clone(),
            position,
            bytes: behind.end - position,
            batches: behind.batches,
        });
    }
    Ok(())
}

/// The refusal of a break before a position up to which the journal was on disk.
fn damaged(disk: &dyn Disk, bytes: &SegmentBytes, progress: &Progress, synced: u64) -> Error {
    let position = progress.position;
    let Behind { batches, commit_times, .. } = bytes.behind(position);
    let times = match commit_times {
        None => String::new(),
        Some((first, last)) => format!(", with commit times from {first} to {last}"),
    };
    let what = format!(
        "batch {} at position {position} (offset {}) is damaged, although the journal was on disk up to position \
         {synced}: {} bytes would be lost, and {batches} whole records of this file behind it{times}",
        progress.sequence,
        bytes.offset(position),
        synced.saturating_sub(position),
    );
    corrupt(disk, &bytes.name, &what)
}
