//! Which blocks of a file are free.
//!
//! Free blocks are kept as runs in address order, in chunks of some hundred runs each, and of each chunk the
//! length of its longest run is known. The lowest run that fits is thus found exactly: the first chunk whose
//! longest run fits has it. That is a walk over a dense array with one number for hundreds of runs, then over
//! one chunk, which for hundreds of thousands of runs is faster than trees by address and by size would be.
//!
//! Invariant: runs are not empty, do not touch each other and end at or before the file's end; no chunk is
//! empty; `longest` is exact.

use kilim_error::{Result, StorageError};
use std::fmt;

/// Neighbouring blocks of 4 KiB in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) blocks: u32,
}

/// The free blocks of a file.
#[derive(Debug, Clone)]
pub(crate) struct FreeMap {
    /// The file's length in blocks.
    end: u64,
    free: u64,
    chunks: Vec<Vec<Run>>,
    /// For each chunk the length of its longest run.
    longest: Vec<u64>,
}

impl FreeMap {
    /// A file of `end` blocks of which none is free.
    pub(crate) fn new(end: u64) -> FreeMap {
        FreeMap { end, free: 0, chunks: Vec::new(), longest: Vec::new() }
    }

    /// The lowest free blocks that fit. If there are none the file grows, beginning with the free blocks at
    /// its end if there are any.
    pub(crate) fn allocate(&mut self, blocks: u32) -> Extent {
        let wanted = u64::from(blocks);
        if blocks == 0 {
            return Extent { first: 0, blocks };
        }
        let fitting = self.longest.iter().position(|longest| *longest >= wanted).and_then(|chunk| {
            let index = self.chunks[chunk].iter().position(|run| run.blocks >= wanted)?;
            Some(Place { chunk, index })
        });
        if let Some(place) = fitting {
            let run = *self.run(place);
            self.replace(place, Run { first: run.first + wanted, blocks: run.blocks - wanted });
            self.free -= wanted;
            return Extent { first: run.first, blocks };
        }
        self.shrink();
        let first = self.end;
        self.end += wanted;
        Extent { first, blocks }
    }

    /// Gives blocks back. Corrupt if some of them are free already or beyond the end.
    pub(crate) fn free(&mut self, extent: Extent) -> Result<()> {
        let freed = Run { first: extent.first, blocks: extent.blocks.into() };
        let Some(end) = freed.first.checked_add(freed.blocks).filter(|end| *end <= self.end) else {
            return corrupt(format!("{freed} are freed in a file of {} blocks", self.end));
        };
        if extent.blocks == 0 {
            return Ok(());
        }
        let (before, after) = self.around(freed.first);
        let overlapped = [before.filter(|it| self.run(*it).end() > freed.first), after]
            .into_iter()
            .flatten()
            .map(|place| *self.run(place))
            .find(|run| run.first < end);
        if let Some(run) = overlapped {
            return corrupt(format!("{freed} are freed while {run} are free already"));
        }
        self.free += freed.blocks;
        let before = before.filter(|it| self.run(*it).end() == freed.first);
        let after = after.filter(|it| self.run(*it).first == end);
        let first = before.map_or(freed.first, |before| self.run(before).first);
        let end = after.map_or(end, |after| self.run(after).end());
        let joined = Run { first, blocks: end - first };
        match (before, after) {
            (Some(before), after) => {
                self.replace(before, joined);
                // It comes later, so its place still holds: a run that grows moves no others.
                if let Some(after) = after {
                    self.remove(after);
                }
            }
            (None, Some(after)) => self.replace(after, joined),
            (None, None) => self.insert(joined),
        }
        Ok(())
    }

    /// Takes exactly these blocks, for tests that make maps of a certain form. Corrupt if they are not all free.
    #[cfg(test)]
    pub(crate) fn reserve(&mut self, extent: Extent) -> Result<()> {
        if extent.blocks == 0 {
            return Ok(());
        }
        let taken = Run { first: extent.first, blocks: extent.blocks.into() };
        let around = self.around(taken.first).0.and_then(|place| {
            let end = taken.first.checked_add(taken.blocks)?;
            (end <= self.run(place).end()).then_some(place)
        });
        let Some(place) = around else {
            return corrupt(format!("{taken} are in use twice, or beyond the end of {} blocks", self.end));
        };
        self.free -= taken.blocks;
        let run = *self.run(place);
        let left = Run { first: run.first, blocks: taken.first - run.first };
        let right = Run { first: taken.end(), blocks: run.end() - taken.end() };
        if left.blocks == 0 {
            self.replace(place, right);
        } else {
            self.replace(place, left);
            if right.blocks > 0 {
                self.insert(right);
            }
        }
        Ok(())
    }

    /// The file's length in blocks.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Cuts off free blocks at the end. Whether there were any.
    pub(crate) fn shrink(&mut self) -> bool {
        let Some(last) = self.chunks.last().and_then(|chunk| chunk.last()).copied() else { return false };
        if last.end() < self.end {
            return false;
        }
        let chunk = self.chunks.len() - 1;
        self.remove(Place { chunk, index: self.chunks[chunk].len() - 1 });
        self.end = last.first;
        self.free -= last.blocks;
        true
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free
    }

    /// First block and number of blocks of each free run, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.chunks.iter().flatten().map(|run| (run.first, run.blocks))
    }

    /// On disk: the end, the number of runs, then of each run the gap since the one before and its length,
    /// all as LEB128.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.end);
        put_varint(out, self.chunks.iter().map(|chunk| chunk.len() as u64).sum());
        let mut end = 0;
        for run in self.chunks.iter().flatten() {
            put_varint(out, run.first - end);
            put_varint(out, run.blocks);
            end = run.end();
        }
    }

    /// Reads what [`FreeMap::encode`] wrote and takes nothing else: each map has one form.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<FreeMap> {
        let end = take_varint(&mut bytes)?;
        if end > MAX_END {
            return corrupt(format!("a free map is of a file of {end} blocks"));
        }
        let mut map = FreeMap::new(end);
        let count = take_varint(&mut bytes)?;
        let mut last_end = 0u64;
        // The count may lie, so space is taken as runs are read, each of which has two bytes at least.
        for index in 0..count {
            let gap = take_varint(&mut bytes)?;
            let blocks = take_varint(&mut bytes)?;
            let first = last_end.checked_add(gap);
            let run_end = first.and_then(|first| first.checked_add(blocks)).filter(|it| *it <= end);
            let (Some(first), Some(run_end)) = (first, run_end) else {
                return corrupt(format!(
                    "a free map has {blocks} blocks, {gap} behind block {last_end}, in a file of {end}"
                ));
            };
            if blocks == 0 || (gap == 0 && index > 0) {
                return corrupt(format!("a free map has an empty or split run at block {first}"));
            }
            map.push(Run { first, blocks });
            map.free += blocks;
            last_end = run_end;
        }
        if !bytes.is_empty() {
            return corrupt(format!("a free map has {} bytes behind its end", bytes.len()));
        }
        Ok(map)
    }
}

/// A chunk that grows beyond is split in two.
const CHUNK: usize = 512;

/// A chunk that shrinks below is merged with a neighbour if both are small.
const SMALL_CHUNK: usize = CHUNK / 4;

/// The longest file whose length in bytes is a u64.
const MAX_END: u64 = u64::MAX / 4096;

/// Free blocks with none free on either side, thus of any length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u64,
    blocks: u64,
}

#[derive(Clone, Copy)]
struct Place {
    chunk: usize,
    index: usize,
}

impl Run {
    fn end(self) -> u64 {
        self.first + self.blocks
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In u128, since a corrupt run may go beyond all numbers.
        write!(f, "blocks {}..{}", self.first, u128::from(self.first) + u128::from(self.blocks))
    }
}

impl FreeMap {
    fn run(&self, place: Place) -> &Run {
        &self.chunks[place.chunk][place.index]
    }

    /// The last run that begins at or before `block` and the first that begins after it.
    fn around(&self, block: u64) -> (Option<Place>, Option<Place>) {
        let chunks = self.chunks.partition_point(|chunk| chunk[0].first <= block);
        let Some(chunk) = chunks.checked_sub(1) else {
            return (None, (!self.chunks.is_empty()).then_some(Place { chunk: 0, index: 0 }));
        };
        let index = self.chunks[chunk].partition_point(|run| run.first <= block);
        let after = if index < self.chunks[chunk].len() {
            Some(Place { chunk, index })
        } else {
            (chunks < self.chunks.len()).then_some(Place { chunk: chunks, index: 0 })
        };
        (Some(Place { chunk, index: index - 1 }), after)
    }

    /// Puts a run in the place of another whose room among the neighbours it keeps. An empty one leaves.
    fn replace(&mut self, place: Place, run: Run) {
        if run.blocks == 0 {
            return self.remove(place);
        }
        let old = std::mem::replace(&mut self.chunks[place.chunk][place.index], run);
        if run.blocks >= self.longest[place.chunk] {
            self.longest[place.chunk] = run.blocks;
        } else if old.blocks == self.longest[place.chunk] {
            self.measure(place.chunk);
        }
    }

    fn insert(&mut self, run: Run) {
        let Some(chunk) = self.chunks.partition_point(|chunk| chunk[0].first <= run.first).checked_sub(1)
        else {
            // It comes before all others.
            match self.chunks.first_mut() {
                Some(chunk) => {
                    chunk.insert(0, run);
                    self.longest[0] = self.longest[0].max(run.blocks);
                    self.split(0);
                }
                None => self.push(run),
            }
            return;
        };
        let index = self.chunks[chunk].partition_point(|it| it.first <= run.first);
        self.chunks[chunk].insert(index, run);
        self.longest[chunk] = self.longest[chunk].max(run.blocks);
        self.split(chunk);
    }

    fn remove(&mut self, place: Place) {
        let Place { chunk, index } = place;
        let old = self.chunks[chunk].remove(index);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
            self.longest.remove(chunk);
            return;
        }
        if old.blocks == self.longest[chunk] {
            self.measure(chunk);
        }
        if self.chunks[chunk].len() < SMALL_CHUNK {
            // With the following one, else with the one before, if the result is not soon to be split again.
            let left = if chunk + 1 < self.chunks.len() { Some(chunk) } else { chunk.checked_sub(1) };
            if let Some(left) = left
                && self.chunks[left].len() + self.chunks[left + 1].len() <= CHUNK / 2
            {
                let mut right = self.chunks.remove(left + 1);
                self.chunks[left].append(&mut right);
                let longest = self.longest.remove(left + 1);
                self.longest[left] = self.longest[left].max(longest);
            }
        }
    }

    /// Adds a run behind all others.
    fn push(&mut self, run: Run) {
        match (self.chunks.last_mut(), self.longest.last_mut()) {
            // Room is left for what will be freed in between.
            (Some(chunk), Some(longest)) if chunk.len() < CHUNK / 2 => {
                chunk.push(run);
                *longest = run.blocks.max(*longest);
            }
            _ => {
                self.chunks.push(vec![run]);
                self.longest.push(run.blocks);
            }
        }
    }

    fn split(&mut self, chunk: usize) {
        if self.chunks[chunk].len() > CHUNK {
            let right = self.chunks[chunk].split_off(CHUNK / 2);
            self.chunks.insert(chunk + 1, right);
            self.longest.insert(chunk + 1, 0);
            self.measure(chunk);
            self.measure(chunk + 1);
        }
    }

    fn measure(&mut self, chunk: usize) {
        self.longest[chunk] = self.chunks[chunk].iter().map(|run| run.blocks).max().unwrap_or(0);
    }
}

fn corrupt<T>(what: String) -> Result<T> {
    Err(StorageError::Corrupt(what).into())
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else {
            return corrupt("a free map ends within a number".into());
        };
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            // Zeros at the end would be a second form of the same number.
            if *byte == 0 && shift > 0 {
                break;
            }
            return Ok(number);
        }
    }
    corrupt("a free map has a number that is too long".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    /// A file as one bool per block: whether it is free.
    #[derive(Debug, Clone, Default)]
    struct Model(Vec<bool>);

    impl Model {
        fn allocate(&mut self, blocks: usize) -> u64 {
            let fit = self.0.windows(blocks).position(|window| window.iter().all(|free| *free));
            let first =
                fit.unwrap_or_else(|| self.0.iter().rposition(|free| !free).map_or(0, |last| last + 1));
            self.0.resize(self.0.len().max(first + blocks), true);
            self.0[first..first + blocks].fill(false);
            first as u64
        }

        /// Turns blocks over if all of them are within the file and the other way now.
        fn turn(&mut self, extent: Extent, to: bool) -> bool {
            let range = extent.first as usize..extent.first as usize + extent.blocks as usize;
            let Some(range) = self.0.get_mut(range) else { return false };
            let all = range.iter().all(|free| *free != to);
            if all {
                range.fill(to);
            }
            all
        }

        fn runs(&self) -> Vec<(u64, u64)> {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for (block, _) in self.0.iter().enumerate().filter(|(_, free)| **free) {
                match runs.last_mut() {
                    Some((first, blocks)) if *first + *blocks == block as u64 => *blocks += 1,
                    _ => runs.push((block as u64, 1)),
                }
            }
            runs
        }
    }

    fn check(map: &FreeMap) {
        assert_eq!(map.longest.len(), map.chunks.len());
        for (chunk, longest) in map.chunks.iter().zip(&map.longest) {
            assert_eq!(chunk.iter().map(|run| run.blocks).max(), Some(*longest));
            assert!(chunk.len() <= CHUNK);
        }
        assert_eq!(map.iter().map(|(_, blocks)| blocks).sum::<u64>(), map.free_blocks());
    }

    #[derive(Debug, Clone)]
    enum Op {
        Allocate(u32),
        Free(Extent),
        Reserve(Extent),
        Shrink,
    }

    fn op() -> impl Strategy<Value = Op> {
        let extent = || (0u64..400, 0u32..12).prop_map(|(first, blocks)| Extent { first, blocks });
        prop_oneof![
            3 => prop_oneof![1u32..6, 1u32..80].prop_map(Op::Allocate),
            4 => extent().prop_map(Op::Free),
            2 => extent().prop_map(Op::Reserve),
            1 => Just(Op::Shrink),
        ]
    }

    proptest! {
        #[test]
        fn a_map_does_what_a_bitmap_does(end in 0u64..300, ops in prop::collection::vec(op(), 0..200)) {
            let mut map = FreeMap::new(end);
            let mut model = Model(vec![false; end as usize]);
            for op in ops {
                match op {
                    Op::Allocate(blocks) => {
                        let first = model.allocate(blocks as usize);
                        prop_assert_eq!(map.allocate(blocks), Extent { first, blocks });
                    }
                    Op::Free(extent) => prop_assert_eq!(map.free(extent).is_ok(), model.turn(extent, true)),
                    Op::Reserve(extent) if extent.blocks == 0 => map.reserve(extent).unwrap(),
                    Op::Reserve(extent) => {
                        prop_assert_eq!(map.reserve(extent).is_ok(), model.turn(extent, false))
                    }
                    Op::Shrink => {
                        let end = model.0.iter().rposition(|free| !free).map_or(0, |last| last + 1);
                        prop_assert_eq!(map.shrink(), end < model.0.len());
                        model.0.truncate(end);
                    }
                }
                prop_assert_eq!(map.end(), model.0.len() as u64);
                prop_assert_eq!(map.iter().collect::<Vec<_>>(), model.runs());
                check(&map);
            }
            let mut encoded = Vec::new();
            map.encode(&mut encoded);
            let decoded = FreeMap::decode(&encoded).unwrap();
            check(&decoded);
            prop_assert_eq!(decoded.end(), map.end());
            prop_assert_eq!(decoded.free_blocks(), map.free_blocks());
            prop_assert!(decoded.iter().eq(map.iter()));
        }

        #[test]
        fn bytes_that_decode_are_the_encoding(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            // Small numbers, which more often make sense.
            prop::collection::vec(0u8..6, 1..12).prop_map(|mut tail| { tail.insert(0, 60); tail }),
        ]) {
            if let Ok(map) = FreeMap::decode(&bytes) {
                check(&map);
                let mut encoded = Vec::new();
                map.encode(&mut encoded);
                prop_assert_eq!(encoded, bytes);
            }
        }
    }

    #[test]
    fn many_chunks_split_and_merge_and_still_do_what_a_bitmap_does() {
        let mut random = SmallRng::seed_from_u64(7);
        let blocks = 12_000;
        let mut map = FreeMap::new(blocks);
        let mut model = Model(vec![false; blocks as usize]);
        for round in 0..6 {
            // Filling and emptying by turns.
            for step in 0..6_000 {
                let extent = Extent { first: random.random_range(0..blocks), blocks: 1 };
                if (round % 2 == 0) == random.random_ratio(9, 10) {
                    assert_eq!(map.free(extent).is_ok(), model.turn(extent, true));
                } else if step % 3 == 0 {
                    let wanted = random.random_range(1..4);
                    assert_eq!(map.allocate(wanted).first, model.allocate(wanted as usize));
                } else {
                    assert_eq!(map.reserve(extent).is_ok(), model.turn(extent, false));
                }
                if step % 500 == 0 {
                    check(&map);
                    assert_eq!(map.iter().collect::<Vec<_>>(), model.runs());
                }
            }
            assert!(round % 2 == 1 || map.chunks.len() > 3, "{} chunks", map.chunks.len());
        }
    }

    #[test]
    fn freeing_twice_names_the_blocks() {
        let mut map = FreeMap::new(20);
        map.free(Extent { first: 5, blocks: 4 }).unwrap();
        let error = map.free(Extent { first: 8, blocks: 2 }).unwrap_err().to_string();
        assert!(error.contains("blocks 8..10") && error.contains("blocks 5..9"), "{error}");
        let error = map.free(Extent { first: 19, blocks: 2 }).unwrap_err().to_string();
        assert!(error.contains("blocks 19..21"), "{error}");
        assert!(map.free(Extent { first: u64::MAX, blocks: 2 }).is_err());
        assert!(map.reserve(Extent { first: u64::MAX, blocks: 2 }).is_err());
        assert_eq!(map.free_blocks(), 4);
    }

    #[test]
    fn a_file_grows_from_the_free_blocks_at_its_end() {
        let mut map = FreeMap::new(10);
        map.free(Extent { first: 7, blocks: 3 }).unwrap();
        assert_eq!(map.allocate(5), Extent { first: 7, blocks: 5 });
        assert_eq!((map.end(), map.free_blocks()), (12, 0));
    }

    #[test]
    fn what_decoding_refuses() {
        let encode = |numbers: &[u64]| {
            let mut out = Vec::new();
            numbers.iter().for_each(|number| put_varint(&mut out, *number));
            out
        };
        assert!(FreeMap::decode(&encode(&[10, 2, 0, 3, 1, 6])).is_ok());
        for (why, numbers) in [
            ("a count that lies", &[10, u64::MAX, 0, 3][..]),
            ("runs that touch", &[10, 2, 0, 3, 0, 3]),
            ("an empty run", &[10, 1, 2, 0]),
            ("beyond the end", &[10, 1, 8, 3]),
            ("overflow of a length", &[10, 1, 8, u64::MAX]),
            ("overflow of a gap", &[10, 2, 1, 1, u64::MAX, 1]),
            ("bytes behind the end", &[10, 1, 8, 1, 0]),
            ("a file longer than files can be", &[u64::MAX, 0]),
        ] {
            assert!(FreeMap::decode(&encode(numbers)).is_err(), "{why}");
        }
        assert!(FreeMap::decode(&[0x8a, 0x00, 0]).is_err(), "a number with zeros at its end");
        assert!(FreeMap::decode(&[0xff; 11]).is_err(), "a number that does not fit");
    }
}
