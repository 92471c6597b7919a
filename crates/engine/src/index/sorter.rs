//! Sorts index entries that need not fit into memory.
//!
//! Entries gather in memory; a full load is sorted and written to a temporary file as a run; at the end
//! the runs and the last load are merged. Entries are `(key, value)` byte strings, sorted by key, then by value.
//!
//! A load is one piece of memory with the entries as runs have them, and a list of where each lies. The list is sorted by
//! eight bytes of the keys at a time, which lie in it: first all of it, then each group of keys that are equal so far by the
//! eight bytes that follow. So most keys are looked at once or twice, and a group's lie in the processor's cache by then.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};

use kilim_error::{Result, StorageError};
use kilim_query::interrupt;
use kilim_storage::Bytes;

/// Memory of one load; two builds at once stay well below a small machine's memory.
const LOAD_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Before each entry, in memory and in runs: the lengths of its key and its value.
const LENGTHS: usize = 8;

/// The bytes of the index's id, which all keys share.
const ID_BYTES: usize = 4;

/// Keys that are equal up to here are compared as a whole.
const WORDS_END: usize = ID_BYTES + 64;

/// Groups up to this size are compared key by key.
const SMALL_GROUP: usize = 8;

/// Places that are sorted between two questions whether to go on: a millisecond or two.
const PART: usize = 64 * 1024;

/// What is read of a run at a time; entries that are given share it.
const BLOCK_BYTES: usize = if cfg!(test) { 64 } else { 256 * 1024 };

pub type Entry = (Bytes, Bytes);

pub struct Sorter {
    load: Load,
    runs: Vec<File>,
}

#[derive(Default)]
struct Load {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The eight bytes of the key by which it is being sorted.
    word: u64,
    at: u32,
}

/// Eight bytes of a key, as a number that compares as they do. Behind the key's end are zeros.
pub(super) fn word_at(key: &[u8], from: usize) -> u64 {
    match key.get(from..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(word) => u64::from_be_bytes(*word),
        None => {
            let rest = key.get(from..).unwrap_or_default();
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(word)
        }
    }
}

/// The entry at the beginning of some bytes: with its lengths, its key, and its value; none if they end before it does.
fn entry_of(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (lengths, _) = bytes.split_first_chunk::<LENGTHS>()?;
    let [a, b, c, d, e, f, g, h] = *lengths;
    let value = LENGTHS + u32::from_le_bytes([a, b, c, d]) as usize;
    let end = value + u32::from_le_bytes([e, f, g, h]) as usize;
    Some((bytes.get(..end)?, &bytes[LENGTHS..value], &bytes[value..end]))
}

impl Load {
    fn entry(&self, slot: &Slot) -> (&[u8], &[u8], &[u8]) {
        entry_of(&self.bytes[slot.at as usize..]).unwrap_or_default()
    }

    fn held(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.slots.push(Slot { word: word_at(key, ID_BYTES), at: self.bytes.len() as u32 });
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn sort(&mut self) -> Result<()> {
        let mut slots = std::mem::take(&mut self.slots);
        let sorted = self.sort_from(&mut slots, ID_BYTES);
        self.slots = slots;
        sorted
    }

    /// Sorts places of keys that are equal before `from`, and that have their words from there.
    fn sort_from(&self, slots: &mut [Slot], from: usize) -> Result<()> {
        sort_words(slots)?;
        let behind = from + size_of::<u64>();
        for group in slots.chunk_by_mut(|one, other| one.word == other.word) {
            if group.len() == 1 {
                continue;
            }
            interrupt::spend(group.len())?;
            // Zeros at a key's end are not told from zeros behind it, so keys that end within the word are compared.
            let mut is_long = true;
            if group.len() > SMALL_GROUP && behind < WORDS_END {
                for slot in &mut *group {
                    let key = self.entry(slot).1;
                    is_long &= key.len() >= behind;
                    slot.word = word_at(key, behind);
                }
                if is_long {
                    self.sort_from(group, behind)?;
                    continue;
                }
            }
            interrupt::sort(group, |one, other| {
                let ((_, key, value), (_, other_key, other_value)) = (self.entry(one), self.entry(other));
                key.cmp(other_key).then_with(|| value.cmp(other_value))
            })?;
        }
        Ok(())
    }
}

/// Sorts by the words. A large part is halved first, so that the question whether to go on comes in between.
fn sort_words(slots: &mut [Slot]) -> Result<()> {
    let word = |slot: &Slot| slot.word;
    if slots.len() <= PART {
        slots.sort_unstable_by_key(word);
        return interrupt::spend(slots.len());
    }
    let middle = slots.len() / 2;
    slots.select_nth_unstable_by_key(middle, word);
    interrupt::spend(slots.len())?;
    let (low, high) = slots.split_at_mut(middle);
    sort_words(low)?;
    sort_words(high)
}

impl Sorter {
    pub fn new() -> Sorter {
        Sorter { load: Load::default(), runs: Vec::new() }
    }

    /// Takes an entry in. All keys begin with the id of the same index.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.load.push(key, value);
        if self.load.held() >= LOAD_BYTES_MAX {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.load.sort()?;
        let file = tempfile::tempfile().map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        for slot in &self.load.slots {
            interrupt::tick()?;
            out.write_all(self.load.entry(slot).0).map_err(failed)?;
        }
        self.load.slots.clear();
        self.load.bytes.clear();
        self.runs.push(out.into_inner().map_err(|error| failed(error.into_error()))?);
        Ok(())
    }

    /// All entries, by key.
    pub fn finish(mut self) -> Result<Merge> {
        self.load.sort()?;
        let mut sources = Vec::with_capacity(self.runs.len() + 1);
        for mut file in self.runs {
            file.rewind().map_err(failed)?;
            sources.push(Source::File(file));
        }
        sources.push(Source::Load(self.load, 0));
        Merge::new(sources.into_iter().map(Run::new).collect())
    }
}

enum Source {
    File(File),
    /// The load, and how many of its entries have come.
    Load(Load, usize),
}

impl Source {
    /// Appends what comes next, about a block of it; nothing at the end.
    fn read(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Source::File(file) => {
                file.take(BLOCK_BYTES as u64).read_to_end(out).map_err(failed)?;
            }
            Source::Load(load, given) => {
                let end = out.len() + BLOCK_BYTES;
                while let Some(slot) = load.slots.get(*given).filter(|_| out.len() < end) {
                    out.extend_from_slice(load.entry(slot).0);
                    *given += 1;
                }
                if *given == load.slots.len() {
                    *load = Load::default();
                    *given = 0;
                }
            }
        }
        Ok(())
    }
}

/// Entries in order.
struct Run {
    source: Source,
    block: Bytes,
    /// Where in the block the next entry lies.
    at: usize,
    buffer: Vec<u8>,
}

impl Run {
    fn new(source: Source) -> Run {
        Run { source, block: Bytes::default(), at: 0, buffer: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if let Some((entry, key, _)) = entry_of(&self.block[self.at..]) {
                let (start, end) = (self.at + LENGTHS, self.at + entry.len());
                self.at = end;
                let value = start + key.len();
                return Ok(Some((self.block.slice(start..value), self.block.slice(value..end))));
            }
            self.buffer.clear();
            self.buffer.extend_from_slice(&self.block[self.at..]);
            let begun = self.buffer.len();
            self.source.read(&mut self.buffer)?;
            if self.buffer.len() == begun {
                return match begun {
                    0 => Ok(None),
                    _ => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
                };
            }
            self.block = Bytes::from(&self.buffer[..]);
            self.at = 0;
        }
    }
}

/// Merges runs by a tree of their next entries: each place has the run that lost there, so that after an entry was given only
/// the way from its run to the top is played again.
pub struct Merge {
    runs: Vec<Run>,
    heads: Vec<Option<Head>>,
    /// The places of the tree, the top at 1; at 0 the run that won.
    losers: Vec<usize>,
}

/// The next entry of a run, with the beginning of its key.
struct Head {
    word: u64,
    entry: Entry,
}

impl Merge {
    fn new(mut runs: Vec<Run>) -> Result<Merge> {
        let heads = runs.iter_mut().map(Head::next_of).collect::<Result<Vec<_>>>()?;
        let count = heads.len();
        let mut merge = Merge { runs, heads, losers: vec![0; count] };
        // The winners of the places, from the runs themselves upwards.
        let mut winners: Vec<usize> = (0..2 * count).map(|place| place.saturating_sub(count)).collect();
        for place in (1..count).rev() {
            let (one, other) = (winners[2 * place], winners[2 * place + 1]);
            (winners[place], merge.losers[place]) =
                if merge.comes_first(one, other) { (one, other) } else { (other, one) };
        }
        merge.losers[0] = if count > 1 { winners[1] } else { 0 };
        Ok(merge)
    }

    fn comes_first(&self, one: usize, other: usize) -> bool {
        match (&self.heads[one], &self.heads[other]) {
            (Some(head), Some(other_head)) => head.compare(other_head).then(one.cmp(&other)).is_lt(),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => one < other,
        }
    }

    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let mut winner = self.losers[0];
        if self.heads[winner].is_none() {
            return Ok(None);
        }
        let following = Head::next_of(&mut self.runs[winner])?;
        let given = std::mem::replace(&mut self.heads[winner], following);
        let mut place = (winner + self.heads.len()) / 2;
        while place > 0 {
            if self.comes_first(self.losers[place], winner) {
                std::mem::swap(&mut self.losers[place], &mut winner);
            }
            place /= 2;
        }
        self.losers[0] = winner;
        Ok(given.map(|head| head.entry))
    }
}

impl Head {
    fn next_of(run: &mut Run) -> Result<Option<Head>> {
        Ok(run.next()?.map(|entry| Head { word: word_at(&entry.0, ID_BYTES), entry }))
    }

    fn compare(&self, other: &Head) -> Ordering {
        self.word.cmp(&other.word).then_with(|| self.entry.cmp(&other.entry))
    }
}

fn failed(error: std::io::Error) -> kilim_error::Error {
    StorageError::Io(format!("a temporary file of an index build: {error}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys that share beginnings of any length and end anywhere, with zeros too, some of them twice.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let tail = prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..12);
        let shared = prop_oneof![Just(0usize), Just(3), Just(8), Just(16), Just(17), Just(70), Just(90)];
        (shared, tail).prop_map(|(shared, tail)| {
            let mut key = b"same".to_vec();
            key.resize(ID_BYTES + shared, 7);
            key.extend_from_slice(&tail);
            key
        })
    }

    proptest! {
        #[test]
        fn runs_on_disk_and_the_last_load_merge_in_order(
            entries in prop::collection::vec((key(), prop::collection::vec(any::<u8>(), 0..3), 0..60), 0..400),
        ) {
            let mut sorter = Sorter::new();
            let mut expected = Vec::new();
            for (key, value, chance) in entries {
                sorter.push(&key, &value).unwrap();
                expected.push((key, value));
                if chance == 0 {
                    sorter.spill().unwrap();
                }
            }
            expected.sort();
            let mut merge = sorter.finish().unwrap();
            let merged: Vec<_> = std::iter::from_fn(|| merge.next_entry().unwrap()).collect();
            let merged: Vec<_> = merged.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(merged, expected);
        }
    }

    #[test]
    fn a_large_load_is_sorted() {
        let mut sorter = Sorter::new();
        let mut expected = Vec::new();
        for number in 0..3 * PART as u32 {
            let mut key = b"same".to_vec();
            key.extend_from_slice(&(number.wrapping_mul(0x9E37_79B9) >> 8).to_be_bytes());
            key.extend_from_slice(&[number as u8; 9][..number as usize % 10]);
            sorter.push(&key, &[]).unwrap();
            expected.push(key);
        }
        expected.sort();
        let mut merge = sorter.finish().unwrap();
        let merged: Vec<_> = std::iter::from_fn(|| merge.next_entry().unwrap()).collect();
        assert!(merged.iter().map(|(key, _)| &key[..]).eq(expected.iter().map(|key| &key[..])));
    }
}
