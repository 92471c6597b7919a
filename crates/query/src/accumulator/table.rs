//! The accumulators there are.

use super::Kind;

/// One line of the table.
#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    pub(super) form: Form,
}

/// How the operand is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// An expression.
    Value(Kind),
    /// `{}`.
    Count,
    /// `{input, n}`.
    Counted(Kind),
    /// `{output, sortBy}`, with `n` where several are kept.
    Sorted(Kind),
    /// `{input, method}`, with `p` for percentiles.
    Ranked(Kind),
    /// Needs JavaScript.
    JavaScript,
}

const fn row(name: &'static str, form: Form, help: &'static str) -> Definition {
    Definition { name, help, form }
}

/// In alphabetical order.
pub const DEFINITIONS: &[Definition] = &[
    row("$accumulator", Form::JavaScript, "a fold in JavaScript"),
    row("$addToSet", Form::Value(Kind::AddToSet), "the different values"),
    row("$avg", Form::Value(Kind::Avg), "the mean of the numbers"),
    row("$bottom", Form::Sorted(Kind::Bottom), "the output of the document that sorts last"),
    row("$bottomN", Form::Sorted(Kind::BottomN), "the outputs of the documents that sort last"),
    row("$count", Form::Count, "the number of documents"),
    row("$first", Form::Value(Kind::First), "the first document's value"),
    row("$firstN", Form::Counted(Kind::FirstN), "the values of the first documents"),
    row("$last", Form::Value(Kind::Last), "the last document's value"),
    row("$lastN", Form::Counted(Kind::LastN), "the values of the last documents"),
    row("$max", Form::Value(Kind::Max), "the greatest value"),
    row("$maxN", Form::Counted(Kind::MaxN), "the greatest values"),
    row("$median", Form::Ranked(Kind::Median), "the number in the middle"),
    row("$mergeObjects", Form::Value(Kind::MergeObjects), "documents laid over each other"),
    row("$min", Form::Value(Kind::Min), "the least value"),
    row("$minN", Form::Counted(Kind::MinN), "the least values"),
    row("$percentile", Form::Ranked(Kind::Percentile), "the numbers at given shares"),
    row("$push", Form::Value(Kind::Push), "all values in a list"),
    row("$stdDevPop", Form::Value(Kind::StdDevPop), "the standard deviation of all there is"),
    row("$stdDevSamp", Form::Value(Kind::StdDevSamp), "the standard deviation of what this is a sample of"),
    row("$sum", Form::Value(Kind::Sum), "the sum of the numbers"),
    row("$top", Form::Sorted(Kind::Top), "the output of the document that sorts first"),
    row("$topN", Form::Sorted(Kind::TopN), "the outputs of the documents that sort first"),
];

pub(super) fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}
