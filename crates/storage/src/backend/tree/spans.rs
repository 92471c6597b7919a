//! Ranges of keys in which everything is deleted.
//!
//! A queue deletes at one end what it took there. Until the next checkpoint every scan from that end has to pass
//! the deletions in the tables, each with the row that it hides in the tree. The first scan that has passed many
//! in a row leaves the range behind as a span; later ones go to its end at once.
//!
//! A span belongs to tables and says: as of batch `since`, nothing lives in this range, in these tables and in
//! what lies below them. A later batch that puts a row into the range cuts the span in two around it, before the
//! batch can be seen. A scan may read an older state than the tables hold when it leaves its span behind, so the
//! span is checked against the newest rows first, under the lock that a batch takes to cut spans.
//!
//! Invariant: a reader of batch `since` or a later one finds no row within a span.

use super::Tables;
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use crate::tree::TreeName;
use parking_lot::RwLock;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Deletions in a row that are worth a span.
pub(super) const DELETIONS_MIN: u64 = if cfg!(test) { 3 } else { 32 };

/// Spans of one space: each costs every batch a look.
const SPANS_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Spans {
    spaces: [SpaceSpans; Space::COUNT],
}

#[derive(Default)]
struct SpaceSpans {
    /// In key order, without overlaps.
    spans: RwLock<Vec<Span>>,
    /// How many there are, to be asked without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    lower: Edge,
    upper: Edge,
    since: u64,
}

/// One end of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) key: Bytes,
    /// Whether the key itself is in the span.
    pub(super) included: bool,
}

impl Span {
    fn contains(&self, key: &[u8]) -> bool {
        let above = match self.lower.included {
            true => *key >= self.lower.key[..],
            false => *key > self.lower.key[..],
        };
        let below = match self.upper.included {
            true => *key <= self.upper.key[..],
            false => *key < self.upper.key[..],
        };
        above && below
    }
}

/// Whether a span that ends so has nothing to do with one that begins so. Two that both leave out the key between
/// them stay two.
fn ends_before(upper: &Edge, lower: &Edge) -> bool {
    upper.key < lower.key || (upper.key == lower.key && !upper.included && !lower.included)
}

impl Spans {
    /// The far end of the span that `key` lies in, for a scan that stands there.
    pub(super) fn end_of(
        &self,
        space: Space,
        key: &[u8],
        sequence: u64,
        direction: Direction,
    ) -> Option<Edge> {
        let of_space = &self.spaces[space.at()];
        if of_space.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let spans = of_space.spans.read();
        let span = spans.iter().find(|span| span.contains(key) && span.since <= sequence)?;
        let far = match direction {
            Direction::Forward => &span.upper,
            Direction::Backward => &span.lower,
        };
        (far.key[..] != *key).then(|| far.clone())
    }

    /// Cuts spans around the rows that a batch puts. Called when they are in the tables and cannot be seen yet.
    pub(super) fn cut<'w>(&self, batch: impl Iterator<Item = &'w Write>) {
        if self.spaces.iter().all(|space| space.count.load(Ordering::Acquire) == 0) {
            return;
        }
        for write in batch.filter(|write| write.value.is_some()) {
            let of_space = &self.spaces[write.space.at()];
            if of_space.count.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut spans = of_space.spans.write();
            if let Some(at) = spans.iter().position(|span| span.contains(&write.key)) {
                let Span { lower, upper, since } = spans.remove(at);
                let edge = Edge { key: write.key.clone(), included: false };
                let left = Span { lower, upper: edge.clone(), since };
                let right = Span { lower: edge, upper, since };
                // One that holds nothing but its own edge is of no use.
                for part in [right, left] {
                    if part.lower.key < part.upper.key && spans.len() < SPANS_MAX {
                        spans.insert(at, part);
                    }
                }
            }
            of_space.count.store(spans.len(), Ordering::Release);
        }
    }

    /// Leaves a span behind: a reader of batch `since` found nothing but deletions from `first` to `last`.
    pub(super) fn add(&self, tables: &Tables, space: Space, first: &Bytes, last: &Bytes, since: u64) {
        let of_space = &self.spaces[space.at()];
        // A tree that is loaded later may lie between two others.
        if TreeName::of(space, first) != TreeName::of(space, last) {
            return;
        }
        let mut spans = of_space.spans.write();
        // What an older span vouches for need not be looked at again.
        let known = spans.iter().find(|span| span.contains(first)).map_or(first, |span| &span.upper.key);
        let newest = tables.space(space).newest(Bound::Included(known));
        let mut within = newest.take_while(|(key, _)| key[..] <= last[..]);
        if within.any(|(_, value)| value.is_some()) {
            return;
        }
        let edge = |key: &Bytes| Edge { key: key.clone(), included: true };
        let mut added = Span { lower: edge(first), upper: edge(last), since };
        spans.retain(|span| {
            let apart = ends_before(&span.upper, &added.lower) || ends_before(&added.upper, &span.lower);
            if !apart {
                added.since = added.since.max(span.since);
                if span.lower.key < added.lower.key {
                    added.lower = span.lower.clone();
                }
                if span.upper.key > added.upper.key {
                    added.upper = span.upper.clone();
                }
            }
            apart
        });
        if spans.len() == SPANS_MAX {
            spans.remove(0);
        }
        let at = spans.partition_point(|span| span.lower.key < added.lower.key);
        spans.insert(at, added);
        of_space.count.store(spans.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(key: u8, value: Option<u8>) -> Write {
        Write { space: Space::Index, key: bytes(key), value: value.map(|value| Bytes::from([value])) }
    }

    fn bytes(key: u8) -> Bytes {
        Bytes::from([0, 0, 0, 1, key])
    }

    /// The last byte of the far edge's key, less a half if the key is not in the span.
    fn end(spans: &Spans, key: u8, sequence: u64, direction: Direction) -> Option<f32> {
        let edge = spans.end_of(Space::Index, &bytes(key), sequence, direction)?;
        Some(f32::from(edge.key[4]) - if edge.included { 0.0 } else { 0.5 })
    }

    #[test]
    fn a_span_is_gone_through_at_once_by_readers_that_are_new_enough() {
        let tables = Tables::new(std::time::Instant::now());
        tables.insert((10..50).map(|key| write(key, None)).collect::<Vec<_>>().iter(), 5);
        tables.spans.add(&tables, Space::Index, &bytes(10), &bytes(49), 5);
        assert_eq!(end(&tables.spans, 10, 5, Direction::Forward), Some(49.0));
        assert_eq!(end(&tables.spans, 30, 9, Direction::Backward), Some(10.0));
        assert_eq!(end(&tables.spans, 30, 4, Direction::Forward), None, "an older state");
        assert_eq!(end(&tables.spans, 9, 5, Direction::Forward), None);
    }

    #[test]
    fn a_row_that_is_put_cuts_its_span() {
        let tables = Tables::new(std::time::Instant::now());
        tables.insert((10..50).map(|key| write(key, None)).collect::<Vec<_>>().iter(), 5);
        tables.spans.add(&tables, Space::Index, &bytes(10), &bytes(49), 5);
        tables.insert([write(30, Some(1))].iter(), 6);
        assert_eq!(end(&tables.spans, 10, 6, Direction::Forward), Some(29.5), "it ends before a row");
        assert_eq!(end(&tables.spans, 29, 6, Direction::Backward), Some(10.0));
        assert_eq!(end(&tables.spans, 30, 6, Direction::Forward), None);
        assert_eq!(end(&tables.spans, 31, 6, Direction::Forward), Some(49.0));
    }

    #[test]
    fn a_span_of_an_older_reader_is_checked_against_the_newest_rows() {
        let tables = Tables::new(std::time::Instant::now());
        tables.insert((10..50).map(|key| write(key, None)).collect::<Vec<_>>().iter(), 5);
        tables.insert([write(30, Some(1))].iter(), 6);
        tables.spans.add(&tables, Space::Index, &bytes(10), &bytes(49), 5);
        assert_eq!(end(&tables.spans, 10, 6, Direction::Forward), None);
    }

    #[test]
    fn spans_that_touch_become_one() {
        let tables = Tables::new(std::time::Instant::now());
        tables.insert((10..50).map(|key| write(key, None)).collect::<Vec<_>>().iter(), 5);
        tables.spans.add(&tables, Space::Index, &bytes(10), &bytes(20), 5);
        tables.spans.add(&tables, Space::Index, &bytes(20), &bytes(49), 7);
        assert_eq!(end(&tables.spans, 10, 7, Direction::Forward), Some(49.0));
        assert_eq!(end(&tables.spans, 10, 5, Direction::Forward), None);
    }
}
