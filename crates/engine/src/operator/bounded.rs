//! Rows that come nearly in order, given back in order.
//!
//! It holds what may still be preceded by a row that is yet to come. The caller says up to which key there is none
//! ([`Bounded::next_before`]). Where that is more than a sort may hold, the rest is for a [`SortBuffer`]: it sorts behind
//! everything that was given.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kilim_error::Result;

use super::spill::SortEntry;
use super::{Row, SortBuffer};
use crate::limits::SORT_BYTES_MAX;

#[derive(Default)]
pub(crate) struct Bounded {
    held: BinaryHeap<Reverse<SortEntry>>,
    bytes: usize,
    sequence: u64,
    /// No more rows than these are wanted.
    left: Option<u64>,
    /// Bytes that came by.
    pub(crate) sorted_bytes: u64,
}

impl Bounded {
    pub(crate) fn new(limit: Option<u64>) -> Bounded {
        Bounded { left: limit, ..Bounded::default() }
    }

    /// Takes a row and the key whose bytes order it.
    pub(crate) fn push(&mut self, key: &[u8], row: Row) {
        let entry = SortEntry { key: key.into(), sequence: self.sequence, row };
        self.sequence += 1;
        self.bytes += entry.bytes();
        self.sorted_bytes += entry.bytes() as u64;
        self.held.push(Reverse(entry));
        self.leave_out_unwanted();
    }

    /// Lets go of rows behind all that are wanted, once these are most of what is held.
    fn leave_out_unwanted(&mut self) {
        const SPARE: usize = 1000;
        let Some(left) = self.left.and_then(|left| usize::try_from(left).ok()) else { return };
        if self.held.len() <= left.saturating_mul(2).saturating_add(SPARE) {
            return;
        }
        // The first of a reversed order is the last of the other.
        let mut entries = std::mem::take(&mut self.held).into_sorted_vec();
        entries.drain(..entries.len() - left);
        self.bytes = entries.iter().map(|Reverse(entry)| entry.bytes()).sum();
        self.held = entries.into();
    }

    /// The first row, if it sorts before this key.
    pub(crate) fn next_before(&mut self, horizon: &[u8]) -> Option<Row> {
        let is_before = self.held.peek().is_some_and(|Reverse(first)| *first.key < *horizon);
        if is_before { self.next() } else { None }
    }

    /// The first row.
    pub(crate) fn next(&mut self) -> Option<Row> {
        if self.is_done() {
            return None;
        }
        let Reverse(entry) = self.held.pop()?;
        self.bytes -= entry.bytes();
        self.left = self.left.map(|left| left - 1);
        Some(entry.row)
    }

    /// Whether as many rows were given as are wanted.
    pub(crate) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Whether it holds more than a sort may.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > SORT_BYTES_MAX
    }

    /// A sort of what is held and of what is yet to come.
    pub(crate) fn into_sort(self, allow_disk_use: bool) -> Result<SortBuffer> {
        let mut buffer = SortBuffer::new(self.left, allow_disk_use);
        // The last of a reversed order comes first, and keeps its place among equals.
        for Reverse(entry) in self.held.into_sorted_vec().into_iter().rev() {
            buffer.push(&entry.key, entry.row)?;
        }
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{RawValue, doc};

    use super::*;

    fn row(number: i32) -> Row {
        Row::of(doc! {"n": number})
    }

    fn number(row: Row) -> i32 {
        match row.document().get("n") {
            Some(RawValue::Int32(number)) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_lies_before_the_horizon_is_given_in_order() {
        let mut bounded = Bounded::new(None);
        for (key, value) in [(b"c", 3), (b"a", 1), (b"b", 2), (b"b", 20)] {
            bounded.push(key, row(value));
        }
        let mut before = Vec::new();
        while let Some(row) = bounded.next_before(b"c") {
            before.push(number(row));
        }
        assert_eq!(before, [1, 2, 20]);
        assert_eq!(bounded.next().map(number), Some(3));
        assert!(bounded.next().is_none());
    }

    #[test]
    fn no_more_than_is_wanted_is_held_or_given() {
        let mut bounded = Bounded::new(Some(3));
        for value in (0..5000).rev() {
            bounded.push(&i32::to_be_bytes(value), row(value));
        }
        assert!(bounded.held.len() < 1100);
        let given: Vec<i32> = std::iter::from_fn(|| bounded.next()).map(number).collect();
        assert_eq!(given, [0, 1, 2]);
    }

    #[test]
    fn the_rest_of_a_large_one_is_sorted_behind_what_was_given() {
        let mut bounded = Bounded::new(Some(4));
        for value in [5, 1, 4, 2, 3] {
            bounded.push(&i32::to_be_bytes(value), row(value));
        }
        assert_eq!(bounded.next_before(&i32::to_be_bytes(2)).map(number), Some(1));
        let mut sort = bounded.into_sort(true).unwrap();
        sort.push(&i32::to_be_bytes(2), row(22)).unwrap();
        sort.finish().unwrap();
        let rest: Vec<i32> = std::iter::from_fn(|| sort.next().unwrap()).map(number).collect();
        assert_eq!(rest, [2, 22, 3]);
    }
}
