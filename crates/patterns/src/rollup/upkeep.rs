//! How each field of a group is kept true: for `explain`.

use kilim_query::accumulator::{Accumulator, Kind};

use super::Rollup;
use super::state::{Kept, kept};

/// How an accumulator follows its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upkeep {
    /// Rows are added and taken out.
    Delta,
    /// A row that is better takes its place; when the best one goes, the next is found by the supporting index.
    Index,
    /// When a row goes or changes, the group is computed again from all of its rows.
    Recompute,
}

impl Upkeep {
    pub fn name(self) -> &'static str {
        match self {
            Upkeep::Delta => "delta",
            Upkeep::Index => "index",
            Upkeep::Recompute => "recompute",
        }
    }
}

impl Rollup {
    /// The group's fields, and how each is kept.
    pub fn upkeep(&self) -> impl Iterator<Item = (&str, Upkeep)> {
        self.group.fields.iter().map(|(name, accumulator)| {
            let upkeep = match kept(accumulator) {
                Kept::ByDelta => Upkeep::Delta,
                Kept::ByReading if picks(accumulator) && self.key_field.is_some() => Upkeep::Index,
                Kept::ByReading => Upkeep::Recompute,
            };
            (&**name, upkeep)
        })
    }
}

/// Whether it keeps a few of its rows, by an order.
fn picks(accumulator: &Accumulator) -> bool {
    use Kind::{Bottom, BottomN, First, FirstN, Last, LastN, Max, MaxN, Min, MinN, Top, TopN};
    matches!(
        accumulator.kind,
        Min | Max | First | Last | Top | TopN | Bottom | BottomN | FirstN | LastN | MinN | MaxN
    )
}
