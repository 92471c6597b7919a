//! How each field of a group is kept true: for `explain`.

use super::Rollup;
use super::state::{Kept, kept};

/// How an accumulator follows its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upkeep {
    /// Rows are added and taken out.
    Delta,
    /// A row that is better takes its place; when the best one goes, the next is found by the supporting index.
    Index,
    /// When a row goes or changes, the group is computed again from all of its rows.
    Recompute,
}

impl Upkeep {
    pub(super) fn name(self) -> &'static str {
        match self {
            Upkeep::Delta => "delta",
            Upkeep::Index => "index",
            Upkeep::Recompute => "recompute",
        }
    }
}

impl Rollup {
    /// The group's fields, and how each is kept.
    pub(super) fn upkeep(&self) -> impl Iterator<Item = (&str, Upkeep)> {
        self.group.fields.iter().zip(&self.walks).map(|((name, accumulator), walk)| {
            let upkeep = match (kept(accumulator), walk) {
                (Kept::ByDelta, _) => Upkeep::Delta,
                (Kept::ByReading, Some(_)) => Upkeep::Index,
                (Kept::ByReading, None) => Upkeep::Recompute,
            };
            (&**name, upkeep)
        })
    }
}
