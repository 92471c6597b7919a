//! Accumulators: how `$group`, `$bucket` and `$bucketAuto` fold the documents of a group, and the operators of
//! the same names that fold an array.
//!
//! An [`Accumulator`] is what was asked, a [`State`] is one group's share of it. States are plain values in an
//! enum: a table of groups keeps them side by side in one vector, and adding a number to a sum allocates
//! nothing. A state can be [stored](State::into_value) as BSON and [restored](Accumulator::restore), and two
//! states of one group can be [merged](Accumulator::merge), which is what spilling to disk needs.
//!
//! Invariant: states of consecutive parts of the input, merged in that order, give what one state of the
//! whole input gives (sums of doubles up to the last bit of their second double).

mod best;
mod deviation;
mod held;
mod list;
mod mean;
mod merged;
mod parse;
mod percentile;
mod removal;
mod state;
mod stored;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kilim_bson::{Collator, Document, Value};
use kilim_collation::{Collation, collator};

pub use crate::expression::{DoubleDouble, Number, Summation};
pub use best::Best;
pub(crate) use best::{Order, extremes};
pub use deviation::Deviation;
pub(crate) use held::payload;
pub use list::{List, Set};
pub use mean::Mean;
pub use merged::Merged;
pub(crate) use parse::{check_n, parse_percentile, refuse_n_operand};
pub use percentile::Digest;
pub(crate) use percentile::rank as percentile_rank;
pub use state::State;
pub use table::{DEFINITIONS, Definition};

use crate::expression::{Dependencies, Expression};

/// What is done with the values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    StdDevPop,
    StdDevSamp,
    MergeObjects,
    FirstN,
    LastN,
    MinN,
    MaxN,
    Top,
    TopN,
    Bottom,
    BottomN,
    Median,
    Percentile,
}

/// An accumulator as it was asked for.
#[derive(Debug, Clone)]
pub struct Accumulator {
    pub kind: Kind,
    /// What each document contributes; the `output` of `$top` and its kin.
    pub input: Expression,
    /// How many values are kept. It sees the group's id and no document.
    n: Option<Expression>,
    /// By what `$top` and its kin sort.
    order: Option<Arc<Order>>,
    /// Which percentiles are wanted.
    percentiles: Arc<[f64]>,
    /// How texts compare.
    collation: Option<Collation>,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sum => "$sum",
            Kind::Avg => "$avg",
            Kind::Min => "$min",
            Kind::Max => "$max",
            Kind::First => "$first",
            Kind::Last => "$last",
            Kind::Push => "$push",
            Kind::AddToSet => "$addToSet",
            Kind::StdDevPop => "$stdDevPop",
            Kind::StdDevSamp => "$stdDevSamp",
            Kind::MergeObjects => "$mergeObjects",
            Kind::FirstN => "$firstN",
            Kind::LastN => "$lastN",
            Kind::MinN => "$minN",
            Kind::MaxN => "$maxN",
            Kind::Top => "$top",
            Kind::TopN => "$topN",
            Kind::Bottom => "$bottom",
            Kind::BottomN => "$bottomN",
            Kind::Median => "$median",
            Kind::Percentile => "$percentile",
        }
    }
}

impl Accumulator {
    /// By what `$top` and its kin sort.
    pub(crate) fn sort(&self) -> Option<&crate::sort::Sort> {
        self.order.as_ref().map(|order| order.sort())
    }

    /// One that needs nothing but its input.
    pub fn new(kind: Kind, input: Expression) -> Accumulator {
        Accumulator { kind, input, n: None, order: None, percentiles: Arc::new([]), collation: None }
    }

    pub(crate) fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
    }

    /// What counts: `{$sum: 1}`.
    pub fn count() -> Accumulator {
        Accumulator::new(Kind::Sum, Expression::Constant(Value::Int32(1)))
    }

    /// As explain prints it: `{$sum: "$a"}`.
    pub fn to_value(&self) -> Value {
        let mut operand = Document::new();
        if let Some(n) = &self.n {
            operand.push("n", n.to_value());
        }
        let operand = match self.kind {
            Kind::FirstN | Kind::LastN | Kind::MinN | Kind::MaxN => {
                operand.push("input", self.input.to_value());
                Value::Document(operand)
            }
            Kind::Top | Kind::TopN | Kind::Bottom | Kind::BottomN => {
                operand.push("output", self.input.to_value());
                operand.push("sortBy", self.order.as_ref().map(|order| order.to_document()));
                Value::Document(operand)
            }
            Kind::Median | Kind::Percentile => {
                operand.push("input", self.input.to_value());
                if self.kind == Kind::Percentile {
                    let percentiles = self.percentiles.iter().copied().map(Value::Double).collect::<Vec<_>>();
                    operand.push("p", percentiles);
                }
                operand.push("method", "approximate");
                Value::Document(operand)
            }
            _ => self.input.to_value(),
        };
        Value::Document([(self.kind.name(), operand)].into_iter().collect())
    }

    pub fn dependencies(&self, needed: &mut Dependencies) {
        self.input.dependencies(needed);
        if let Some(order) = &self.order {
            order.dependencies(needed);
        }
    }

    /// Which percentiles are wanted; none of a median.
    pub(crate) fn percentiles(&self) -> Option<&[f64]> {
        (self.kind == Kind::Percentile).then_some(&*self.percentiles)
    }

    /// Whether it sorts documents, so that its input alone does not do.
    pub fn is_sorted(&self) -> bool {
        self.order.is_some()
    }

    /// Every expression that belongs to it.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        std::iter::once(&self.input).chain(&self.n)
    }
}
