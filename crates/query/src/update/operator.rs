//! What an update operator is, and the table of all of them.

use std::fmt;
use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue};
use kilim_collation::Collation;
use kilim_error::Result;

use super::change::Change;
use super::{
    Context, add_to_set, bit, current_date, inc, max, min, mul, pop, pull, pull_all, push, rename, set,
    set_on_insert, unset,
};
use crate::text;

/// An operator with its argument, at one path: a function from a value to its change.
pub(super) trait Operator: fmt::Debug + Send + Sync {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>>;

    /// What to do where the path leads nowhere.
    fn missing<'a>(&'a self, site: &Site<'a, '_>) -> Result<Missing<'a>>;

    /// The value that a path gets by it, whatever was there.
    fn assigns(&self) -> Option<RawValue<'_>> {
        None
    }

    /// Whether all it does to an array is to remove elements, each for its own sake.
    fn removes_elements(&self) -> bool {
        false
    }

    /// Whether all it does to an array is to append elements.
    fn appends(&self) -> Option<Append> {
        None
    }
}

/// How elements are appended to an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Append {
    All,
    /// Only those that the array does not hold yet, compared by the simple collation.
    New,
}

/// An operator's wish for a path that is not there.
pub(super) enum Missing<'a> {
    /// Make it, with this value.
    Create(Change<'a>),
    /// Nothing to do, but the path must be one that could be made.
    Check,
    Ignore,
}

/// Where an operator is applied.
pub(super) struct Site<'a, 'w> {
    pub root: RawDocument<'a>,
    pub path: &'w [String],
    pub context: &'w Context,
}

impl Site<'_, '_> {
    pub fn path_text(&self) -> String {
        self.path.join(".")
    }

    /// The last step of the path.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// `_id: 1`, or `no id` while a document is being made.
    pub fn id_text(&self) -> String {
        self.root.get("_id").map_or_else(|| "no id".to_owned(), |id| text::element("_id", id))
    }
}

/// Takes the path and the argument, and how texts compare.
type Parse = fn(&str, RawValue<'_>, &Option<Collation>) -> Result<Arc<dyn Operator>>;

pub(super) struct OperatorKind {
    pub name: &'static str,
    pub parse: Parse,
    /// One line on what it does.
    pub help: &'static str,
}

macro_rules! operators {
    ($($name:literal $parse:path: $help:literal,)*) => {
        &[$(OperatorKind { name: $name, parse: $parse, help: $help }),*]
    };
}

#[rustfmt::skip]
pub(super) const OPERATORS: &[OperatorKind] = operators! {
    "$addToSet" add_to_set::parse: "appends values that the array does not hold yet",
    "$bit" bit::parse: "applies and, or, xor to an integer",
    "$currentDate" current_date::parse: "sets a date or timestamp to the present",
    "$inc" inc::parse: "adds a number",
    "$max" max::parse: "sets a value if it is greater",
    "$min" min::parse: "sets a value if it is less",
    "$mul" mul::parse: "multiplies by a number",
    "$pop" pop::parse: "removes the first or last element",
    "$pull" pull::parse: "removes the elements that match",
    "$pullAll" pull_all::parse: "removes the elements that equal one of a list",
    "$push" push::parse: "appends or inserts elements, then sorts and cuts",
    "$rename" rename::parse: "moves a field to another name",
    "$set" set::parse: "sets a value",
    "$setOnInsert" set_on_insert::parse: "sets a value if the document is being inserted",
    "$unset" unset::parse: "removes a field",
};

pub(super) fn find(name: &str) -> Option<&'static OperatorKind> {
    OPERATORS.iter().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::OPERATORS;

    #[test]
    fn every_operator_stands_once_in_the_table_with_its_help() {
        assert!(OPERATORS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(OPERATORS.iter().all(|kind| kind.name.starts_with('$') && !kind.help.is_empty()));
    }
}
