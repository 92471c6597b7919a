//! The normal form: the light rewriting that mongod gives every filter, and the order of its children.
//!
//! Meaning never changes. Lists are flattened and pruned, a list of one is its element, a `$in` of one is
//! an equality, equalities on one path within an `$or` are a `$in`. Children stay as written, since
//! positional projections depend on it; explain and positional updates see them sorted.

use std::cmp::Ordering;

use kilim_bson::{Path, Value};
use kilim_collation::Collation;

use super::{BitTestKind, Comparison, Filter, InList, Predicate, Regex};

impl Filter {
    pub(crate) fn simplified(self) -> Filter {
        match self {
            Filter::True | Filter::False | Filter::Expr(_) | Filter::JsonSchema(_) | Filter::Text(_) => self,
            Filter::And(children) => simplified_and(children),
            Filter::Or(children) => simplified_or(children),
            Filter::Nor(children) => simplified_nor(children),
            Filter::Field { path, predicate } => match predicate.simplified() {
                Predicate::Not(inner) => simplified_not(path, *inner),
                predicate => Filter::Field { path, predicate },
            },
        }
    }

    /// Puts children in the order in which mongod evaluates and prints them.
    pub fn sort(&mut self) {
        match self {
            Filter::True | Filter::False | Filter::Expr(_) | Filter::JsonSchema(_) | Filter::Text(_) => {}
            Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
                children.iter_mut().for_each(Filter::sort);
                children.sort_by(order);
            }
            Filter::Field { predicate, .. } => predicate.sort(),
        }
    }
}

/// `$not` with several operators is a `$nor` of all of them.
fn simplified_not(path: Path, inner: Predicate) -> Filter {
    match inner {
        // `$all: []`, and its negation.
        Predicate::All(list) if list.is_empty() => Filter::False,
        Predicate::Not(inner) if inner.is_empty_conjunction() => Filter::Nor(vec![Filter::False]),
        Predicate::All(list) => {
            let field = |predicate| Filter::Field { path: path.clone(), predicate };
            simplified_nor(vec![Filter::And(list.into_iter().map(field).collect())])
        }
        inner => Filter::Field { path, predicate: Predicate::Not(Box::new(inner)) },
    }
}

fn simplified_and(mut children: Vec<Filter>) -> Filter {
    // What most filters are: one field.
    if let [Filter::Field { .. }] = children[..] {
        return children.remove(0).simplified();
    }
    // Nested lists come last, as on mongod; positional projections can tell.
    let (mut flat, mut absorbed) = (Vec::with_capacity(children.len()), Vec::new());
    for child in children {
        match child.simplified() {
            Filter::True => {}
            Filter::False => return Filter::False,
            Filter::And(nested) => absorbed.extend(nested),
            other => flat.push(other),
        }
    }
    flat.extend(absorbed);
    expressions_last(&mut flat);
    match flat.len() {
        0 => Filter::True,
        1 => flat.remove(0),
        _ => Filter::And(flat),
    }
}

/// Expressions are dear and may fail, so they are asked where all else leaves it open, as on mongod.
fn expressions_last(children: &mut [Filter]) {
    children.sort_by_key(|child| matches!(child, Filter::Expr(_)));
}

fn simplified_or(children: Vec<Filter>) -> Filter {
    let (mut flat, mut absorbed) = (Vec::with_capacity(children.len()), Vec::new());
    for child in children {
        match child.simplified() {
            Filter::False => {}
            Filter::True => return Filter::True,
            Filter::Or(nested) => absorbed.extend(nested),
            other => flat.push(other),
        }
    }
    flat.extend(absorbed);
    let mut flat = equalities_to_in(flat);
    expressions_last(&mut flat);
    match flat.len() {
        0 => Filter::False,
        1 => flat.remove(0),
        _ => Filter::Or(flat),
    }
}

/// mongod does not look at constants among these children, and upserts can tell: a filter that folds away
/// gives the new document no fields.
fn simplified_nor(children: Vec<Filter>) -> Filter {
    let mut children: Vec<Filter> = children.into_iter().map(Filter::simplified).collect();
    expressions_last(&mut children);
    match <[Filter; 1]>::try_from(children) {
        Ok([Filter::Field { path, predicate }]) => {
            Filter::Field { path, predicate: Predicate::Not(Box::new(predicate)) }
        }
        Ok([other]) => Filter::Nor(vec![other]),
        Err(children) => Filter::Nor(children),
    }
}

/// `{$or: [{a: 1}, {a: /x/}]}` is `{a: {$in: [1, /x/]}}`, which one index scan can answer.
fn equalities_to_in(children: Vec<Filter>) -> Vec<Filter> {
    let mergeable = |filter: &Filter| match filter {
        // A regex that is a value would become one that searches.
        Filter::Field { predicate: Predicate::Compare(Comparison::Eq, value), .. }
            if matches!(**value, Value::Regex { .. }) =>
        {
            None
        }
        Filter::Field { path, predicate: Predicate::Compare(Comparison::Eq, _) | Predicate::Regex(_) } => {
            Some(path.clone())
        }
        _ => None,
    };
    let mut paths: Vec<Path> = children.iter().filter_map(mergeable).collect();
    paths.sort();
    let repeated: Vec<Path> =
        paths.chunk_by(|a, b| a == b).filter(|run| run.len() > 1).map(|run| run[0].clone()).collect();
    if repeated.is_empty() {
        return children;
    }
    let mut lists: Vec<(Vec<Value>, Vec<Regex>)> = vec![Default::default(); repeated.len()];
    // A filter has one collation, and those of its parts that hold texts know it.
    let mut collation: Option<Collation> = None;
    let mut kept = Vec::new();
    for child in children {
        let list = mergeable(&child).and_then(|path| repeated.binary_search(&path).ok());
        match (list, child) {
            (Some(at), Filter::Field { predicate: Predicate::Compare(_, value), .. }) => {
                if collation.is_none() {
                    collation.clone_from(value.collation());
                }
                lists[at].0.push(value.into_value());
            }
            (Some(at), Filter::Field { predicate: Predicate::Regex(regex), .. }) => lists[at].1.push(regex),
            (_, other) => kept.push(other),
        }
    }
    for (path, (values, regexes)) in repeated.into_iter().zip(lists) {
        let predicate = Predicate::In(InList::new(values, regexes, &collation));
        kept.push(Filter::Field { path, predicate });
    }
    kept
}

impl Predicate {
    pub(super) fn is_empty_conjunction(&self) -> bool {
        matches!(self, Predicate::All(list) if list.is_empty())
    }

    fn simplified(self) -> Predicate {
        match self {
            Predicate::In(list) if list.values().len() + list.regexes().len() == 1 => {
                let (mut values, mut regexes) = list.into_parts();
                match values.pop() {
                    Some(value) => Predicate::Compare(Comparison::Eq, value),
                    None => Predicate::Regex(regexes.remove(0)),
                }
            }
            Predicate::Not(inner) => Predicate::Not(Box::new(inner.simplified())),
            Predicate::All(list) => {
                let (mut flat, mut absorbed) = (Vec::with_capacity(list.len()), Vec::new());
                for one in list {
                    match one.simplified() {
                        Predicate::All(nested) => absorbed.extend(nested),
                        other => flat.push(other),
                    }
                }
                flat.extend(absorbed);
                Predicate::All(flat)
            }
            Predicate::ElemMatchValue(list) => {
                Predicate::ElemMatchValue(list.into_iter().map(Predicate::simplified).collect())
            }
            Predicate::ElemMatchObject(filter) => Predicate::ElemMatchObject(Box::new(filter.simplified())),
            other => other,
        }
    }

    fn sort(&mut self) {
        match self {
            Predicate::All(list) | Predicate::ElemMatchValue(list) => {
                list.iter_mut().for_each(Predicate::sort);
                list.sort_by(predicate_order);
            }
            Predicate::Not(inner) => inner.sort(),
            Predicate::ElemMatchObject(filter) => filter.sort(),
            _ => {}
        }
    }

    /// mongod sorts by the kind of the predicate first; these are its places.
    pub fn rank(&self) -> u8 {
        match self {
            Predicate::All(_) => AND,
            Predicate::ElemMatchObject(_) => 2,
            Predicate::ElemMatchValue(_) => 3,
            Predicate::Size(_) => 4,
            Predicate::Compare(Comparison::Eq, _) => 5,
            Predicate::Compare(Comparison::Lte, _) => 6,
            Predicate::Compare(Comparison::Lt, _) => 7,
            Predicate::Compare(Comparison::Gt, _) => 8,
            Predicate::Compare(Comparison::Gte, _) => 9,
            Predicate::Regex(_) => 10,
            Predicate::Mod { .. } => 11,
            Predicate::Exists => 12,
            Predicate::In(_) => 13,
            Predicate::Bits(bits) => match bits.kind() {
                BitTestKind::AllSet => 14,
                BitTestKind::AllClear => 15,
                BitTestKind::AnySet => 16,
                BitTestKind::AnyClear => 17,
            },
            Predicate::Not(_) => NOT,
            Predicate::Type(_) => 20,
            // MongoDB has them around what is always false, which no other conjunct survives.
            Predicate::Geo(_) => 21,
            Predicate::Near(_) => 22,
            Predicate::Expr(Comparison::Eq, _) => 24,
            Predicate::Expr(Comparison::Gt, _) => 25,
            Predicate::Expr(Comparison::Gte, _) => 26,
            Predicate::Expr(Comparison::Lt, _) => 27,
            Predicate::Expr(Comparison::Lte, _) => 28,
        }
    }
}

const AND: u8 = 0;
const OR: u8 = 1;
const NOT: u8 = 18;
const NOR: u8 = 19;
const ALWAYS_FALSE: u8 = 21;
const EXPR: u8 = 22;
const TEXT: u8 = 23;
const JSON_SCHEMA: u8 = 29;

/// A node as the order sees it: rank, path (negations have none), children.
pub(super) fn order(a: &Filter, b: &Filter) -> Ordering {
    rank(a).cmp(&rank(b)).then_with(|| match (negated(a), negated(b)) {
        (Some(a), Some(b)) => a.order(b),
        _ => list_order(children(a), children(b), order).then_with(|| match (a, b) {
            (Filter::Field { path: path_a, predicate: a }, Filter::Field { path: path_b, predicate: b }) => {
                path_a.as_str().cmp(path_b.as_str()).then_with(|| predicate_order(a, b))
            }
            _ => Ordering::Equal,
        }),
    })
}

fn rank(filter: &Filter) -> u8 {
    match filter {
        // What matches everything is a conjunction of nothing.
        Filter::And(_) | Filter::True => AND,
        Filter::Or(_) => OR,
        Filter::Nor(children) if children.len() == 1 => NOT,
        Filter::Nor(_) => NOR,
        Filter::Field { predicate, .. } => predicate.rank(),
        Filter::False => ALWAYS_FALSE,
        Filter::Expr(_) => EXPR,
        Filter::Text(_) => TEXT,
        Filter::JsonSchema(_) => JSON_SCHEMA,
    }
}

fn children(filter: &Filter) -> &[Filter] {
    match filter {
        Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => children,
        _ => &[],
    }
}

/// What a negation negates: a filter, or a predicate on a path.
enum Negated<'f> {
    Filter(&'f Filter),
    Field(&'f str, &'f Predicate),
}

fn negated(filter: &Filter) -> Option<Negated<'_>> {
    match filter {
        Filter::Nor(children) if children.len() == 1 => Some(Negated::Filter(&children[0])),
        Filter::Field { path, predicate: Predicate::Not(inner) } => {
            Some(Negated::Field(path.as_str(), inner))
        }
        _ => None,
    }
}

impl Negated<'_> {
    fn rank(&self) -> u8 {
        match self {
            Negated::Filter(filter) => rank(filter),
            Negated::Field(_, predicate) => predicate.rank(),
        }
    }

    fn order(self, other: Negated<'_>) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| match (self, other) {
            (Negated::Filter(a), Negated::Filter(b)) => order(a, b),
            (Negated::Field(path_a, a), Negated::Field(path_b, b)) => {
                path_a.cmp(path_b).then_with(|| predicate_order(a, b))
            }
            _ => Ordering::Equal,
        })
    }
}

fn predicate_order(a: &Predicate, b: &Predicate) -> Ordering {
    a.rank().cmp(&b.rank()).then_with(|| match (a, b) {
        (Predicate::Not(a), Predicate::Not(b)) => predicate_order(a, b),
        (Predicate::All(a), Predicate::All(b)) => list_order(a, b, predicate_order),
        (Predicate::ElemMatchValue(a), Predicate::ElemMatchValue(b)) => list_order(a, b, predicate_order),
        (Predicate::ElemMatchObject(a), Predicate::ElemMatchObject(b)) => order(a, b),
        _ => Ordering::Equal,
    })
}

/// Child by child; of two lists that begin alike, the shorter first.
fn list_order<T>(a: &[T], b: &[T], order: fn(&T, &T) -> Ordering) -> Ordering {
    let differing = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|ordering| ordering.is_ne());
    differing.unwrap_or_else(|| a.len().cmp(&b.len()))
}
