//! Every whole batch of a journal, also those behind damage: for a salvage, which takes what there is.
//!
//! A start refuses a journal with a hole in it. Here a hole is passed over, and the batches behind it are told in the
//! order of their sequences, with a note of what is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_error::Result;

use super::batch::{ALIGNMENT, Kind};
use super::recovery::Replay;
use super::scan::SegmentBytes;
use super::slot::{BLOCK, HeaderBlock, NO_SEGMENT, Slot, decode_header, slot_index};
use super::{Journal, Segment, Start, StoreId};
use crate::disk::Disk;

impl Journal {
    /// Hands every whole batch from `start` on to `replay`; says what is missing, a sentence each.
    pub(crate) fn salvage(
        disk: &Arc<dyn Disk>,
        store: &StoreId,
        start: &Start,
        replay: &mut Replay<'_>,
    ) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let mut sequence = start.sequence;
        let segments = segments(&**disk, store, start, &mut notes);
        if !segments.contains_key(&start.segment) {
            notes.push(format!("the journal's segment {} is missing", start.segment));
        }
        for segment in segments.values() {
            let bytes = match SegmentBytes::read(&**disk, segment, Vec::new()) {
                Ok(bytes) => bytes,
                Err(error) => {
                    notes.push(error.to_string());
                    continue;
                }
            };
            let end = segment.base.saturating_add(segment.slot.size.saturating_sub(BLOCK));
            let mut position = segment.base;
            while position < end {
                let Some(batch) = bytes.batch_at(position) else {
                    position += ALIGNMENT as u64;
                    continue;
                };
                position = batch.end().max(position + ALIGNMENT as u64);
                if batch.header.kind != Kind::Data || batch.header.sequence < sequence {
                    continue;
                }
                if batch.header.sequence > sequence {
                    notes.push(format!(
                        "the journal's batches {sequence} to {} cannot be read; those behind them were taken",
                        batch.header.sequence - 1
                    ));
                }
                replay(batch.header.sequence, batch.header.commit_time, batch.payload)?;
                sequence = batch.header.sequence + 1;
            }
        }
        Ok(notes)
    }
}

/// The segments from the start on whose headers are whole, by number.
fn segments(
    disk: &dyn Disk,
    store: &StoreId,
    start: &Start,
    notes: &mut Vec<String>,
) -> BTreeMap<u64, Segment> {
    let mut segments = BTreeMap::new();
    for name in disk.list().unwrap_or_default() {
        let Some(index) = slot_index(&name) else { continue };
        let read = disk.open(&name).and_then(|file| {
            let length = file.len()?;
            let mut block = vec![0; BLOCK.min(length) as usize];
            file.read_at(&mut block, 0)?;
            Ok((file, block))
        });
        let (file, block) = match read {
            Ok(read) => read,
            Err(error) => {
                notes.push(format!("{name} cannot be read: {error}"));
                continue;
            }
        };
        match decode_header(&block) {
            HeaderBlock::Whole(header) if header.store != *store => {
                notes.push(format!("{name} belongs to another store"));
            }
            HeaderBlock::Whole(header) if header.segment >= start.segment && header.segment != NO_SEGMENT => {
                let slot = Slot { index, file, size: header.size };
                segments.insert(header.segment, Segment::new(&header, slot));
            }
            HeaderBlock::Whole(_) | HeaderBlock::Blank => {}
            HeaderBlock::Damaged | HeaderBlock::Foreign(_) => {
                notes.push(format!("the header of {name} is damaged, and what it holds is left out"));
            }
        }
    }
    segments
}
