//! Bounds as bytes: where in the store an index scan begins, goes on and ends.
//!
//! Bounds that are one range of keys need no further look at the keys. All others are checked key by
//! key, part by part: a key outside of them says where the next possible one is, and the scan seeks there
//! instead of walking.
//!
//! Invariant: no key within the bounds is outside of what is visited; keys that were shortened are always
//! visited where their visible parts allow it.

use kilim_bson::component_length;

use crate::index::Index;
use crate::layout::{KEY_BYTES_MAX, index_prefix};
use crate::plan::{Cut, Interval, IntervalList, KeyRange, range_key};

/// Behind every key that begins with what stands before it.
pub(super) const BEHIND: u8 = 0xFF;

/// A half-open range of stored keys, with the index's prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    pub lower: Vec<u8>,
    pub upper: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum KeyRanges {
    Empty,
    One(Range),
    Checked(Checker),
}

/// A cut in the order of the stored bytes of one key part.
#[derive(Debug)]
struct KeyCut {
    bytes: Vec<u8>,
    after: bool,
}

impl KeyCut {
    fn new(cut: &Cut, descending: bool) -> KeyCut {
        let mut bytes = cut.endpoint.key().to_vec();
        if descending {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        // Inverted bytes turn the order around, and with it what lies before and after.
        KeyCut { bytes, after: cut.after != descending }
    }

    /// Whether a component lies before the cut.
    fn is_behind(&self, component: &[u8]) -> bool {
        match component.cmp(&self.bytes) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.after,
            std::cmp::Ordering::Greater => false,
        }
    }
}

#[derive(Debug)]
struct KeyInterval {
    low: KeyCut,
    high: KeyCut,
}

impl KeyInterval {
    fn list(list: &IntervalList, descending: bool) -> Vec<KeyInterval> {
        let interval = |interval: &Interval| {
            let (low, high) =
                if descending { (&interval.high, &interval.low) } else { (&interval.low, &interval.high) };
            KeyInterval { low: KeyCut::new(low, descending), high: KeyCut::new(high, descending) }
        };
        let mut intervals: Vec<KeyInterval> = list.intervals().iter().map(interval).collect();
        if descending {
            intervals.reverse();
        }
        intervals
    }
}

impl KeyRanges {
    /// From one key to just before another.
    pub(super) fn given(index: &Index, range: &KeyRange) -> KeyRanges {
        let prefix = index_prefix(index.id);
        let mut ends = Range { lower: prefix.to_vec(), upper: prefix.to_vec() };
        if let Some(min) = &range.min {
            ends.lower.extend_from_slice(&range_key(index, min));
        }
        match &range.max {
            Some(max) => ends.upper.extend_from_slice(&range_key(index, max)),
            None => ends.upper.push(BEHIND),
        }
        shorten(&mut ends.lower, false);
        shorten(&mut ends.upper, true);
        KeyRanges::One(ends)
    }

    pub(super) fn new(index: &Index, bounds: &[IntervalList], single: bool) -> KeyRanges {
        if bounds.iter().any(IntervalList::is_empty) {
            return KeyRanges::Empty;
        }
        let prefix = index_prefix(index.id);
        let bounded = bounds.iter().rposition(|list| !list.is_full()).map_or(0, |last| last + 1);
        if !single {
            let parts = bounds[..bounded].iter().zip(&index.spec.key);
            return KeyRanges::Checked(Checker {
                prefix,
                parts: parts
                    .map(|(list, part)| Part {
                        descending: part.descending,
                        intervals: KeyInterval::list(list, part.descending),
                    })
                    .collect(),
            });
        }
        let mut range = Range { lower: prefix.to_vec(), upper: prefix.to_vec() };
        let mut open = true;
        for (list, part) in bounds[..bounded].iter().zip(&index.spec.key) {
            let intervals = KeyInterval::list(list, part.descending);
            let Some(KeyInterval { low, high }) = intervals.first() else { return KeyRanges::Empty };
            range.lower.extend_from_slice(&low.bytes);
            range.upper.extend_from_slice(&high.bytes);
            if low.after {
                range.lower.push(BEHIND);
            }
            open = high.after;
        }
        if open {
            range.upper.push(BEHIND);
        }
        shorten(&mut range.lower, false);
        shorten(&mut range.upper, true);
        KeyRanges::One(range)
    }
}

/// Cuts a bound off where stored keys are cut off, on the side that keeps them in.
fn shorten(bound: &mut Vec<u8>, upper: bool) {
    if bound.len() > 4 + KEY_BYTES_MAX {
        bound.truncate(4 + KEY_BYTES_MAX);
        if upper {
            bound.push(BEHIND);
        }
    }
}

#[derive(Debug)]
struct Part {
    descending: bool,
    intervals: Vec<KeyInterval>,
}

impl Part {
    /// Whether no value further on in the scan is within the bounds.
    fn ends_at(&self, component: &[u8], backward: bool) -> bool {
        let end = if backward {
            self.intervals.first().map(|interval| &interval.low)
        } else {
            self.intervals.last().map(|interval| &interval.high)
        };
        end.is_some_and(|end| end.bytes == component)
    }
}

/// Checks keys against bounds that are more than one range.
#[derive(Debug)]
pub(super) struct Checker {
    prefix: [u8; 4],
    /// Up to the last part that is bounded.
    parts: Vec<Part>,
}

/// What a key is to the bounds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Within,
    /// Go on from here: the new lower end (forward) or upper end (backward) of what is left.
    Seek(Vec<u8>),
    /// Nothing is left.
    Done,
}

impl Checker {
    /// All of the index's keys.
    pub(super) fn whole(&self) -> Range {
        let mut upper = self.prefix.to_vec();
        upper.push(BEHIND);
        // A descending part may begin with bytes up to 0xFE only, so this is behind every key.
        Range { lower: self.prefix.to_vec(), upper }
    }

    /// Where the scan begins.
    pub(super) fn start(&self, backward: bool) -> Vec<u8> {
        let mut target = self.prefix.to_vec();
        self.push_ends(&mut target, 0, backward);
        target
    }

    /// Where the interval ends that a key is within, if all keys up to there are: one part is bounded. Of a scan forward.
    pub(super) fn end_of(&self, key: &[u8]) -> Option<Vec<u8>> {
        let [part] = self.parts.as_slice() else { return None };
        let component = &key[..component_length(key, part.descending).ok()?];
        let next = part.intervals.partition_point(|interval| !interval.high.is_behind(component));
        let high = &part.intervals.get(next)?.high;
        let mut end = self.target(&high.bytes);
        if high.after {
            end.push(BEHIND);
        }
        Some(end)
    }

    /// `key` is the stored key without prefix and record id; of a shortened one, the part that is whole.
    pub(super) fn check(&self, key: &[u8], backward: bool) -> Verdict {
        let mut at = 0;
        // The parts before leave no room: nothing follows once this part is through.
        let mut exhausted = true;
        for (position, part) in self.parts.iter().enumerate() {
            let Ok(length) = component_length(&key[at..], part.descending) else {
                // The rest of a shortened key is not visible: the record decides.
                return Verdict::Within;
            };
            let component = &key[at..at + length];
            let verdict = if backward {
                self.check_backward(&key[..at], position, component, exhausted)
            } else {
                self.check_forward(&key[..at], position, component, exhausted)
            };
            if let Some(verdict) = verdict {
                return verdict;
            }
            at += length;
            exhausted &= part.ends_at(component, backward);
        }
        Verdict::Within
    }

    fn check_forward(
        &self,
        before: &[u8],
        position: usize,
        component: &[u8],
        exhausted: bool,
    ) -> Option<Verdict> {
        let intervals = &self.parts[position].intervals;
        let next = intervals.partition_point(|interval| !interval.high.is_behind(component));
        let Some(interval) = intervals.get(next) else {
            if exhausted {
                return Some(Verdict::Done);
            }
            let mut target = self.target(before);
            target.push(BEHIND);
            return Some(Verdict::Seek(target));
        };
        if !interval.low.is_behind(component) {
            return None;
        }
        let mut target = self.target(before);
        target.extend_from_slice(&interval.low.bytes);
        if interval.low.after {
            target.push(BEHIND);
        } else {
            self.push_ends(&mut target, position + 1, false);
        }
        Some(Verdict::Seek(target))
    }

    fn check_backward(
        &self,
        before: &[u8],
        position: usize,
        component: &[u8],
        exhausted: bool,
    ) -> Option<Verdict> {
        let intervals = &self.parts[position].intervals;
        let count = intervals.partition_point(|interval| !interval.low.is_behind(component));
        let Some(interval) = count.checked_sub(1).map(|last| &intervals[last]) else {
            if exhausted {
                return Some(Verdict::Done);
            }
            return Some(Verdict::Seek(self.target(before)));
        };
        if interval.high.is_behind(component) {
            return None;
        }
        let mut target = self.target(before);
        target.extend_from_slice(&interval.high.bytes);
        if interval.high.after {
            self.push_ends(&mut target, position + 1, true);
        }
        Some(Verdict::Seek(target))
    }

    fn target(&self, before: &[u8]) -> Vec<u8> {
        let mut target = Vec::with_capacity(4 + before.len() + 16);
        target.extend_from_slice(&self.prefix);
        target.extend_from_slice(before);
        target
    }

    /// The outermost ends of the parts from `position` on, in the direction of the scan.
    fn push_ends(&self, target: &mut Vec<u8>, position: usize, backward: bool) {
        for part in &self.parts[position..] {
            let end = if backward { part.intervals.last() } else { part.intervals.first() };
            let Some(end) = end else { return };
            let cut = if backward { &end.high } else { &end.low };
            target.extend_from_slice(&cut.bytes);
            match (backward, cut.after) {
                (false, true) => {
                    target.push(BEHIND);
                    return;
                }
                (true, false) => return,
                _ => {}
            }
        }
        if backward {
            target.push(BEHIND);
        }
    }
}

/// As [`Checker`] gives seek targets in full, they too are cut off where stored keys are.
pub(super) fn shorten_target(target: &mut Vec<u8>, backward: bool) {
    shorten(target, backward);
}
