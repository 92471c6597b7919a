//! Intervals over BSON values, and lists of them: the algebra behind index bounds.
//!
//! An interval is the values between two cuts. A cut lies just before or just after a value, so
//! inclusive and exclusive ends need no cases of their own: `[5, 9)` runs from before 5 to before 9.
//! Values compare by their encoded key, which is the order the index has.
//!
//! Invariant: the intervals of a list are not empty, ascend, and neither overlap nor touch.

use std::cmp::Ordering;

use kilim_bson::{KeyDecoder, Value, encode_value, encode_value_with};
use kilim_collation::Collation;

use super::texts::is_collatable;

/// A value with the key it has in an ascending index.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub value: Value,
    key: Box<[u8]>,
    /// The key's texts are the keys of a collation.
    collated: bool,
}

impl Endpoint {
    pub fn new(value: Value) -> Endpoint {
        let mut key = Vec::with_capacity(16);
        encode_value(&mut key, value.as_raw(), false);
        Endpoint { value, key: key.into(), collated: false }
    }

    /// With the key that it has in an index of this collation.
    fn collated(value: Value, collation: &Collation) -> Endpoint {
        let mut key = Vec::with_capacity(16);
        encode_value_with(&mut key, value.as_raw(), false, Some(collation));
        Endpoint { collated: is_collatable(&value), value, key: key.into() }
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn is_collated(&self) -> bool {
        self.collated
    }

    /// The value as the index has it: with the collation's keys for texts, see [`KeyDecoder::next_of`].
    pub fn stored(&self) -> Value {
        if !self.collated {
            return self.value.clone();
        }
        // Types need not come back as they were: this is for people to look at.
        let stored = KeyDecoder::new(&self.key, &[]).and_then(|mut decoder| decoder.next_of(false, true));
        stored.unwrap_or_else(|_| self.value.clone())
    }
}

/// A place between values: just before `endpoint`, or just after it.
#[derive(Debug, Clone)]
pub struct Cut {
    pub endpoint: Endpoint,
    pub after: bool,
}

impl Cut {
    /// In an index of this collation.
    pub fn new(value: Value, after: bool, collation: Option<&Collation>) -> Cut {
        let endpoint = match collation {
            Some(collation) => Endpoint::collated(value, collation),
            None => Endpoint::new(value),
        };
        Cut { endpoint, after }
    }

    pub fn before(value: Value) -> Cut {
        Cut { endpoint: Endpoint::new(value), after: false }
    }

    pub fn after(value: Value) -> Cut {
        Cut { endpoint: Endpoint::new(value), after: true }
    }
}

impl PartialEq for Cut {
    fn eq(&self, other: &Cut) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Cut {}

impl PartialOrd for Cut {
    fn partial_cmp(&self, other: &Cut) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cut {
    fn cmp(&self, other: &Cut) -> Ordering {
        self.endpoint.key.cmp(&other.endpoint.key).then(self.after.cmp(&other.after))
    }
}

/// The values between two cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub low: Cut,
    pub high: Cut,
}

impl Interval {
    pub fn new(low: Cut, high: Cut) -> Interval {
        Interval { low, high }
    }

    /// `[value, value]`
    pub fn point(value: Value) -> Interval {
        let endpoint = Endpoint::new(value);
        Interval {
            low: Cut { endpoint: endpoint.clone(), after: false },
            high: Cut { endpoint, after: true },
        }
    }

    /// `[MinKey, MaxKey]`
    pub fn full() -> Interval {
        Interval { low: Cut::before(Value::MinKey), high: Cut::after(Value::MaxKey) }
    }

    pub fn is_point(&self) -> bool {
        !self.low.after && self.high.after && self.low.endpoint.key == self.high.endpoint.key
    }

    pub fn is_full(&self) -> bool {
        !self.low.after
            && self.high.after
            && matches!(self.low.endpoint.value, Value::MinKey)
            && matches!(self.high.endpoint.value, Value::MaxKey)
    }

    fn is_empty(&self) -> bool {
        self.low >= self.high
    }
}

/// The values that a key part may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntervalList {
    intervals: Vec<Interval>,
}

impl IntervalList {
    pub fn full() -> IntervalList {
        IntervalList { intervals: vec![Interval::full()] }
    }

    pub fn empty() -> IntervalList {
        IntervalList::default()
    }

    pub fn point(value: Value) -> IntervalList {
        IntervalList { intervals: vec![Interval::point(value)] }
    }

    pub fn one(interval: Interval) -> IntervalList {
        IntervalList::union_of(vec![interval])
    }

    /// The union of intervals given in any order.
    pub fn union_of(mut intervals: Vec<Interval>) -> IntervalList {
        intervals.retain(|interval| !interval.is_empty());
        intervals.sort_by(|a, b| a.low.cmp(&b.low));
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            match merged.last_mut() {
                Some(last) if interval.low <= last.high => {
                    if last.high < interval.high {
                        last.high = interval.high;
                    }
                }
                _ => merged.push(interval),
            }
        }
        IntervalList { intervals: merged }
    }

    pub fn union(self, other: IntervalList) -> IntervalList {
        let mut intervals = self.intervals;
        intervals.extend(other.intervals);
        IntervalList::union_of(intervals)
    }

    pub fn intersection(&self, other: &IntervalList) -> IntervalList {
        let (mut ours, mut theirs) = (self.intervals.iter().peekable(), other.intervals.iter().peekable());
        let mut intervals = Vec::new();
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            // Of equal cuts the first list's is kept, so that explain prints the value as it was given.
            let low = if b.low > a.low { &b.low } else { &a.low };
            let high = if b.high < a.high { &b.high } else { &a.high };
            if low < high {
                intervals.push(Interval::new(low.clone(), high.clone()));
            }
            if a.high <= b.high {
                ours.next();
            } else {
                theirs.next();
            }
        }
        IntervalList { intervals }
    }

    /// All other values.
    pub fn complement(&self) -> IntervalList {
        let mut intervals = Vec::with_capacity(self.intervals.len() + 1);
        let mut low = Cut::before(Value::MinKey);
        for interval in &self.intervals {
            intervals.push(Interval::new(low, interval.low.clone()));
            low = interval.high.clone();
        }
        intervals.push(Interval::new(low, Cut::after(Value::MaxKey)));
        intervals.retain(|interval| !interval.is_empty());
        IntervalList { intervals }
    }

    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    pub fn is_full(&self) -> bool {
        matches!(&self.intervals[..], [interval] if interval.is_full())
    }

    pub fn is_point(&self) -> bool {
        matches!(&self.intervals[..], [interval] if interval.is_point())
    }

    /// Whether every value of this list is in the other.
    pub fn is_within(&self, other: &IntervalList) -> bool {
        self.intersection(other) == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::explain::print_intervals;

    /// `"[1, 5) (7, 9]"` as a list.
    fn list(text: &str) -> IntervalList {
        let mut intervals = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let end = rest.find([')', ']']).expect("an interval ends in a bracket");
            let (low, high) = rest[1..end].split_once(", ").expect("an interval has two ends");
            let value = |text: &str| match text {
                "MinKey" => Value::MinKey,
                "MaxKey" => Value::MaxKey,
                number => Value::Int32(number.parse().expect("a number")),
            };
            intervals.push(Interval::new(
                Cut { endpoint: Endpoint::new(value(low)), after: rest.starts_with('(') },
                Cut { endpoint: Endpoint::new(value(high)), after: rest[end..].starts_with(']') },
            ));
            rest = rest[end + 1..].trim_start();
        }
        IntervalList::union_of(intervals)
    }

    fn print(list: &IntervalList) -> String {
        print_intervals(list, false, false).join(" ")
    }

    #[test]
    fn a_union_merges_what_overlaps_or_touches() {
        for (given, expected) in [
            ("[1, 5] [3, 9]", "[1, 9]"),
            ("[1, 5) [5, 9]", "[1, 9]"),
            ("[1, 5) (5, 9]", "[1, 5) (5, 9]"),
            ("[7, 9] [1, 2]", "[1, 2] [7, 9]"),
            ("[1, 9] [3, 4]", "[1, 9]"),
            ("(5, 5] [9, 1]", ""),
            ("[5, 5] (5, 6]", "[5, 6]"),
        ] {
            assert_eq!(print(&list(given)), expected, "{given}");
        }
    }

    #[test]
    fn an_intersection_keeps_what_both_have() {
        for (a, b, expected) in [
            ("[1, 5]", "[3, 9]", "[3, 5]"),
            ("[1, 5)", "[5, 9]", ""),
            ("[1, 5]", "[5, 9]", "[5, 5]"),
            ("[1, 3] [5, 7] [9, 11]", "[2, 10]", "[2, 3] [5, 7] [9, 10]"),
            ("[MinKey, MaxKey]", "(3, 4)", "(3, 4)"),
            ("(1, 5]", "[1, 5)", "(1, 5)"),
        ] {
            assert_eq!(print(&list(a).intersection(&list(b))), expected, "{a} and {b}");
            assert_eq!(print(&list(b).intersection(&list(a))), expected, "{b} and {a}");
        }
    }

    #[test]
    fn a_complement_is_all_the_rest() {
        for (given, expected) in [
            ("[5, 5]", "[MinKey, 5) (5, MaxKey]"),
            ("[MinKey, MaxKey]", ""),
            ("[MinKey, 5]", "(5, MaxKey]"),
            ("(1, 3) [7, 8]", "[MinKey, 1] [3, 7) (8, MaxKey]"),
            ("", "[MinKey, MaxKey]"),
        ] {
            assert_eq!(print(&list(given).complement()), expected, "{given}");
            assert_eq!(list(given).complement().complement(), list(given));
        }
    }

    #[test]
    fn a_list_is_within_another_that_has_all_its_values() {
        assert!(list("[1, 2] [5, 6)").is_within(&list("[0, 3] [5, 6]")));
        assert!(!list("[1, 2] [5, 6]").is_within(&list("[0, 3] [5, 6)")));
        assert!(list("").is_within(&list("")));
    }
}
