//! Filters: what `find`, `update` and `delete` select by.
//!
//! A filter is parsed once into a small tree and evaluated on raw bytes. The tree is public because
//! the planner derives index bounds from it.
//!
//! Invariant: in a tree that [`Filter::parse`] returns there is no `And` directly within an `And`, no
//! `Or` within an `Or`, and no list of one, but for a `Nor` of what has no path.

mod bits;
mod dependencies;
mod element;
mod explain;
mod expr;
pub(crate) mod geo;
mod in_list;
mod json_schema;
mod matching;
pub(crate) mod near;
mod normal;
pub(crate) mod number;
mod operand;
pub(crate) mod parse;
mod regex;
mod regex_syntax;
#[cfg(test)]
mod tests;
mod text;
mod type_set;

use std::sync::Arc;

use kilim_bson::Path;
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::Expression;

pub use bits::{BitTest, BitTestKind};
pub use element::ElementFilter;
pub use geo::{GeoPredicate, GeoRelation, complaint as geo_complaint};
pub use in_list::InList;
pub use json_schema::JsonSchema;
pub use near::{DistanceUnit, Near};
pub use operand::{Operand, holds_text};
pub use parse::{FIELD_OPERATORS, TOP_LEVEL_OPERATORS};
pub use regex::Regex;
pub(crate) use regex::{GaveUp, Groups, invalid_flag};
pub(crate) use text::names_text;
pub use text::{TextMatcher, TextQuery};
pub use type_set::TypeSet;

/// A parsed filter.
#[derive(Debug, Clone)]
pub enum Filter {
    /// Matches everything: `{}`.
    True,
    /// Matches nothing: `{$alwaysFalse: 1}`, `$all: []`.
    False,
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Nor(Vec<Filter>),
    /// One predicate on one path, with implicit traversal of arrays.
    Field {
        path: Path,
        predicate: Predicate,
    },
    /// `$expr`: an expression that counts as true.
    Expr(Arc<Expression>),
    /// `$jsonSchema`: the document as a whole looks as a schema says.
    JsonSchema(Arc<JsonSchema>),
    /// `$text`: words in the texts of the collection's text index.
    Text(Arc<TextQuery>),
}

/// What a path's value must satisfy.
#[derive(Debug, Clone)]
pub enum Predicate {
    Compare(Comparison, Operand),
    /// What a comparison of `$expr` demands of a path, for the planner's eyes: the `$expr` it was taken from
    /// stands beside it and decides, so by itself it is true of everything.
    Expr(Comparison, Operand),
    In(InList),
    Regex(Regex),
    /// `{$exists: true}`; the negative is `Not(Exists)`.
    Exists,
    Type(TypeSet),
    Mod {
        divisor: i64,
        remainder: i64,
    },
    Size(i64),
    /// `$elemMatch` with a query: some element is a document that matches.
    ElemMatchObject(Box<Filter>),
    /// `$elemMatch` with operators: some element satisfies all.
    ElemMatchValue(Vec<Predicate>),
    Bits(BitTest),
    /// `$geoWithin`, `$geoIntersects`.
    Geo(GeoPredicate),
    /// `$near`: see [`Near`]. Of a document it is true.
    Near(Box<Near>),
    /// `$not`, `$ne`, `$nin`: the path as a whole does not satisfy it.
    Not(Box<Predicate>),
    /// Several at once. Occurs within `ElemMatchValue` only; elsewhere it is a [`Filter::And`].
    All(Vec<Predicate>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
}

impl Filter {
    /// What satisfies all of them.
    pub fn all_of(filters: Vec<Filter>) -> Filter {
        Filter::And(filters).simplified()
    }

    /// Refuses `$expr`, which tells no position in an array, beside a positional projection.
    pub fn check_for_position(&self) -> Result<()> {
        match self {
            Filter::And(filters) | Filter::Or(filters) | Filter::Nor(filters) => {
                filters.iter().try_for_each(Filter::check_for_position)
            }
            Filter::Expr(_) | Filter::Field { predicate: Predicate::Expr(..), .. } => {
                Err(Error::user(ErrorCode::QueryFeatureNotAllowed, "$expr is not allowed in this context"))
            }
            _ => Ok(()),
        }
    }

    /// Whether every document matches.
    pub fn is_trivial(&self) -> bool {
        matches!(self, Filter::True)
    }
}
