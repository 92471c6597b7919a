//! Labels below a node that moved, while a job has yet to write them.
//!
//! The node goes to a gap that is as wide as the range of its labels, so all labels below it move by one distance. That
//! distance is a [`Shift`], a part of what is due below the node. Whoever reads a label that is stored within the shift's range
//! adds the distance to it. What is written meanwhile is stored as it is seen.
//!
//! Invariant: a label within the range of a shift belongs to a node that has yet to be written. So no new label is given out
//! there as long as the shift is due ([`Forest::reserved`](super::Forest::reserved)).

use kilim_bson::{Document, RawDocument, RawValue, Value, compare, doc};

use super::Tree;
use super::node::with_values;
use crate::effect::{Copied, Due};

/// The distance by which stored labels of a scope have moved.
#[derive(Debug, Clone)]
pub struct Shift {
    pub scope: Value,
    /// The first and the last label that are stored.
    pub from: i64,
    pub to: i64,
    pub by: i64,
}

/// A range of stored labels, whose ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRange {
    pub from: i64,
    pub to: i64,
}

const FIELD: &str = "shift";

impl Shift {
    /// The shift that is part of what is due below a node.
    pub fn of(due: &Due) -> Option<Shift> {
        let Due::Copy(Copied::To(due)) = due else { return None };
        let shift = due.get(FIELD)?.as_document()?;
        let number = |name| match shift.get(name) {
            Some(RawValue::Int64(number)) => Some(number),
            _ => None,
        };
        Some(Shift {
            scope: shift.get("scope")?.to_value(),
            from: number("from")?,
            to: number("to")?,
            by: number("by")?,
        })
    }

    pub(super) fn add_to(&self, due: &mut Document) {
        let Shift { scope, from, to, by } = self;
        due.push(FIELD, doc! {"scope": scope.clone(), "from": *from, "to": *to, "by": *by});
    }

    /// What is due below a node, without what is due to labels.
    pub fn taken_off(due: &Due) -> Due {
        match due {
            Due::Copy(Copied::To(due)) => {
                let others = due.iter().filter(|(name, _)| *name != FIELD);
                let mut kept = Document::new();
                others.for_each(|(name, value)| kept.push(name, value));
                Due::Copy(Copied::To(kept))
            }
            other => other.clone(),
        }
    }

    pub fn is_in(&self, scope: RawValue<'_>) -> bool {
        compare(self.scope.as_raw(), scope).is_eq()
    }
}

/// The ranges where labels are stored that are seen in a range.
pub fn stored_ranges(shifts: &[Shift], scope: RawValue<'_>, from: i64, to: i64) -> Vec<StoredRange> {
    let Some(shift) = shifts.iter().find(|shift| shift.is_in(scope)) else {
        return vec![StoredRange { from, to }];
    };
    let ranges = [
        StoredRange { from, to: to.min(shift.from - 1) },
        StoredRange { from: from.max(shift.to + 1), to },
        StoredRange {
            from: from.saturating_sub(shift.by).max(shift.from),
            to: to.saturating_sub(shift.by).min(shift.to),
        },
    ];
    ranges.into_iter().filter(|range| range.from <= range.to).collect()
}

impl Tree {
    /// A node with the labels that are seen; none where they are those that it has stored.
    pub fn shifted(&self, document: RawDocument<'_>, shifts: &[Shift]) -> Option<Document> {
        if shifts.is_empty() {
            return None;
        }
        let labels = self.labels(document)?;
        let is_concerned = |shift: &&Shift| {
            (shift.from..=shift.to).contains(&labels[0]) && shift.is_in(self.scope_of(document).as_raw())
        };
        let shift = shifts.iter().find(is_concerned)?;
        let mut fields = Vec::new();
        self.fields_of_labels(labels.map(|label| label + shift.by), &mut fields);
        with_values(document, fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_is_seen_is_stored_in_up_to_three() {
        let shift = |by| [Shift { scope: Value::Null, from: 10, to: 20, by }];
        let ranges = |shifts: &[Shift], from, to| -> Vec<[i64; 2]> {
            let found = stored_ranges(shifts, RawValue::Null, from, to).into_iter();
            found.map(|range| [range.from, range.to]).collect()
        };
        assert_eq!(ranges(&[], 5, 35), [[5, 35]]);
        assert_eq!(ranges(&shift(100), 5, 35), [[5, 9], [21, 35]]);
        assert_eq!(ranges(&shift(100), 112, 130), [[112, 130], [12, 20]]);
        assert_eq!(ranges(&shift(100), i64::MIN, i64::MAX), [[i64::MIN, 9], [21, i64::MAX], [10, 20]]);
        assert_eq!(ranges(&shift(-9), 1, 11), [[1, 9], [10, 20]]);
        assert_eq!(stored_ranges(&shift(100), RawValue::Int32(1), 5, 35).len(), 1);
    }
}
