//! Damage to any byte: what is recovered is what the rules say, by a model that knows what was written.

use super::*;
use crate::disk::memory::Dice;
use crate::journal::batch;

/// A batch as it was written.
struct Written {
    segment: usize,
    position: u64,
    end: u64,
    synced: u64,
}

struct Model {
    disk: MemoryDisk,
    start: Start,
    batches: Vec<Written>,
    /// The base of each segment; the slot with the same index holds it.
    bases: Vec<u64>,
    closed: bool,
}

/// Writes a journal by dice, without recycling, so that segment `n + 1` lies in `journal.n`.
fn model(dice: &mut Dice) -> Model {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    let mut batches = Vec::new();
    let mut bases = vec![0];
    let count = 5 + dice.roll(40);
    for sequence in 1..=count {
        // Not known before the append, which syncs if it begins a segment.
        let known = journal.synced();
        let end = append(&journal, sequence, dice.roll(3) == 0);
        let position = end - batch::size(payload(sequence).len());
        let base = journal.state.lock().active().base;
        if base != *bases.last().unwrap() {
            bases.push(base);
        }
        let synced = if base == position { position } else { known };
        batches.push(Written { segment: bases.len() - 1, position, end, synced });
        if dice.roll(20) == 0 {
            bases.push(journal.roll().unwrap().position);
        }
    }
    let closed = dice.roll(3) == 0;
    if closed {
        journal.close().unwrap();
    }
    Model { disk, start, batches, bases, closed }
}

impl Model {
    /// How many batches are recovered when these, which are in order, are damaged; none if that is refused.
    fn expected(&self, damaged: &[usize]) -> Option<u64> {
        let Some(&first) = damaged.first() else { return Some(self.batches.len() as u64) };
        let last_segment = self.bases.len() - 1;
        if self.batches[first].segment < last_segment || self.closed {
            return None;
        }
        let known = self.batches.iter().enumerate().filter(|(at, _)| !damaged.contains(at));
        let known = known.map(|(_, batch)| batch.synced).max().unwrap_or(0);
        (self.batches[first].position >= known).then_some(first as u64)
    }

    fn check(&self, disk: &MemoryDisk, damaged: &[usize], what: &str) {
        match (recovered(disk, self.start), self.expected(damaged)) {
            (Ok((found, batches)), Some(expected)) => {
                assert_eq!(batches, expected, "{what}");
                let end = expected.checked_sub(1).map_or(0, |last| self.batches[last as usize].end);
                assert_eq!(found.replayed_bytes, end, "{what}");
            }
            (Err(Error::Storage(StorageError::Corrupt(_))), None) => {}
            (Ok((_, batches)), None) => panic!("{what}: {batches} batches instead of a refusal"),
            (Err(error), _) => panic!("{what}: {error}"),
        }
    }

    /// The batch whose header or payload has this byte of a slot.
    fn batch_with(&self, segment: usize, offset: u64) -> Option<usize> {
        let position = self.bases[segment] + offset.checked_sub(4096)?;
        self.batches.iter().enumerate().position(|(at, batch)| {
            let end = batch.position + (batch::HEADER_SIZE + payload(at as u64 + 1).len()) as u64;
            batch.segment == segment && (batch.position..end).contains(&position)
        })
    }
}

#[test]
fn a_flip_of_any_byte_is_refused_or_cut_as_the_rules_say() {
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let model = model(&mut dice);
        for segment in 0..model.bases.len() {
            let name = format!("journal.{segment}");
            for offset in 0..model.disk.bytes(&name).len() {
                let damaged: Vec<usize> = model.batch_with(segment, offset as u64).into_iter().collect();
                // All of what matters, and a sample of the zeros.
                if damaged.is_empty() && !offset.is_multiple_of(61) {
                    continue;
                }
                let bit = 1 << dice.roll(8);
                let what = format!("seed {seed}, {name} at {offset}");
                model.disk.damage(&name, |bytes| bytes[offset] ^= bit);
                if offset < 4096 {
                    let is_needed = segment > 0 || model.bases.len() > 1 || !model.batches.is_empty();
                    // The header of a last segment that holds nothing may be lost only if nothing names it.
                    assert!(is_needed && recovered(&model.disk, model.start).is_err(), "{what}");
                } else {
                    model.check(&model.disk, &damaged, &what);
                }
                model.disk.damage(&name, |bytes| bytes[offset] ^= bit);
            }
        }
    }
}

#[test]
fn several_damaged_batches_are_refused_or_cut_as_the_rules_say() {
    for seed in 100..400 {
        let mut dice = Dice(seed);
        let model = model(&mut dice);
        for _ in 0..10 {
            let disk = model.disk.copy();
            let mut damaged: Vec<usize> =
                (0..=dice.roll(4)).map(|_| dice.roll(model.batches.len() as u64) as usize).collect();
            damaged.sort_unstable();
            damaged.dedup();
            for &at in &damaged {
                let batch = &model.batches[at];
                let length = batch::HEADER_SIZE + payload(at as u64 + 1).len();
                let place = 4096 + batch.position - model.bases[batch.segment];
                let at = place + dice.roll(length as u64);
                disk.damage(&format!("journal.{}", batch.segment), |bytes| bytes[at as usize] ^= 0x10);
            }
            model.check(&disk, &damaged, &format!("seed {seed}, batches {damaged:?}"));
        }
    }
}

#[test]
fn any_garbage_is_refused_or_leaves_a_run_of_batches() {
    for seed in 1000..1200 {
        let mut dice = Dice(seed);
        let model = model(&mut dice);
        for _ in 0..10 {
            let disk = model.disk.copy();
            let name = format!("journal.{}", dice.roll(model.bases.len() as u64));
            disk.damage(&name, |bytes| {
                let from = dice.roll(bytes.len() as u64) as usize;
                let to = (from + dice.roll(5000) as usize).min(bytes.len());
                match dice.roll(4) {
                    0 => bytes[from..to].fill(0),
                    1 => bytes[from..to].iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
                    // Bytes of elsewhere in the same file.
                    2 => {
                        let room = bytes.len() - (to - from) + 1;
                        bytes.copy_within(from..to, dice.roll(room as u64) as usize);
                    }
                    _ => bytes.truncate(from),
                }
            });
            // The helper finds out whether each batch is the one that was written.
            if let Ok((found, _)) = recovered(&disk, model.start) {
                found.journal.resume().unwrap();
                append(&found.journal, found.next_sequence, true);
                assert_eq!(recovered(&disk, model.start).unwrap().0.next_sequence, found.next_sequence + 1);
            }
        }
    }
}
