//! The window functions there are.

use kilim_error::Result;

use super::{
    Asked, Parsed, accumulated, covariance, derivative, edge, exp_moving_avg, fill, integral, rank, shift,
};

/// One line of the table.
pub struct Definition {
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    pub(super) parse: fn(&Asked<'_, '_>) -> Result<Parsed>,
}

const fn row(
    name: &'static str,
    parse: fn(&Asked<'_, '_>) -> Result<Parsed>,
    help: &'static str,
) -> Definition {
    Definition { name, help, parse }
}

/// A function that is an accumulator over its window.
const fn folds(name: &'static str, help: &'static str) -> Definition {
    row(name, accumulated::parse, help)
}

/// A function of a document's place in its partition.
const fn ranks(name: &'static str, help: &'static str) -> Definition {
    row(name, rank::parse, help)
}

/// In alphabetical order.
pub const DEFINITIONS: &[Definition] = &[
    folds("$addToSet", "the different values of the window"),
    folds("$avg", "the mean of the window's numbers"),
    folds("$bottom", "the output of the window's document that sorts last"),
    folds("$bottomN", "the outputs of the window's documents that sort last"),
    folds("$count", "the number of documents in the window"),
    row("$covariancePop", covariance::parse, "how two numbers vary together, of all there is"),
    row("$covarianceSamp", covariance::parse, "how two numbers vary together, of what this is a sample of"),
    ranks("$denseRank", "the place among the different sort values"),
    row("$derivative", derivative::parse, "the mean rate of change over the window"),
    ranks("$documentNumber", "the place in the partition"),
    row("$expMovingAvg", exp_moving_avg::parse, "a mean in which earlier documents count less and less"),
    row("$first", edge::parse, "the value of the window's first document"),
    folds("$firstN", "the values of the window's first documents"),
    row("$integral", integral::parse, "the area under the curve over the window"),
    row("$last", edge::parse, "the value of the window's last document"),
    folds("$lastN", "the values of the window's last documents"),
    row("$linearFill", fill::parse, "missing numbers, on the line between those around"),
    row("$locf", fill::parse, "missing values, as the last one before"),
    folds("$max", "the greatest value of the window"),
    folds("$maxN", "the greatest values of the window"),
    folds("$median", "the number in the middle of the window"),
    folds("$min", "the least value of the window"),
    folds("$minN", "the least values of the window"),
    folds("$percentile", "the window's numbers at given shares"),
    folds("$push", "all values of the window in a list"),
    ranks("$rank", "the place among the sort values, with gaps behind equals"),
    row("$shift", shift::parse, "the value some documents before or behind"),
    folds("$stdDevPop", "the window's standard deviation, of all there is"),
    folds("$stdDevSamp", "the window's standard deviation, of what this is a sample of"),
    folds("$sum", "the sum of the window's numbers"),
    folds("$top", "the output of the window's document that sorts first"),
    folds("$topN", "the outputs of the window's documents that sort first"),
];

pub(super) fn find(name: &str) -> Option<&'static Definition> {
    let at = DEFINITIONS.binary_search_by(|definition| definition.name.cmp(name)).ok()?;
    DEFINITIONS.get(at)
}
