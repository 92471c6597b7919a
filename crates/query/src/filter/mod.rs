//! Filters: what `find`, `update` and `delete` select by.
//!
//! A filter is parsed once into a small tree and evaluated on raw bytes. The tree is public because
//! the planner derives index bounds from it.

use kilim_bson::{Path, Value};

/// A parsed filter.
#[derive(Debug, Clone)]
pub enum Filter {
    /// Matches everything: `{}`.
    True,
    /// Matches nothing: `{$alwaysFalse: 1}`, `$in: []`.
    False,
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Nor(Vec<Filter>),
    /// One predicate on one path, with implicit traversal of arrays.
    Field { path: Path, predicate: Predicate },
}

/// What a path's value must satisfy.
#[derive(Debug, Clone)]
pub enum Predicate {
    Compare(Comparison, Value),
    In(InList),
    Regex(Regex),
    /// `{$exists: true}`; the negative is `Not(Exists)`.
    Exists,
    Type(TypeSet),
    Mod { divisor: i64, remainder: i64 },
    Size(i64),
    /// `$elemMatch` with a query: some element is a document that matches.
    ElemMatchObject(Box<Filter>),
    /// `$elemMatch` with operators: some element satisfies all.
    ElemMatchValue(Vec<Predicate>),
    Bits(BitTest),
    /// `$not`, `$ne`, `$nin`: the path as a whole does not satisfy it.
    Not(Box<Predicate>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
}
