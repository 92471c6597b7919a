//! How a query's collation stands to an index's.
//!
//! Where the two agree, bounds over texts are bounds over the collation's keys, and the index has the order that a
//! sort asks for. Where they do not, the index says nothing of texts, nor of documents and arrays, which may hold
//! some: only what concerns other values can be read off it.
//!
//! Invariant: no bound that depends on how texts compare is ever laid over an index that compares them otherwise.

use kilim_bson::Value;
use kilim_collation::Collation;
use kilim_query::filter::{Operand, Predicate, holds_text};

use super::interval::{Cut, Interval, IntervalList};

/// What is known of texts where bounds are made.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    /// The index's.
    pub collation: Option<&'a Collation>,
    /// The query's is the same.
    pub agree: bool,
}

impl<'a> Texts<'a> {
    /// Of the collation of an index and that of a query.
    pub fn new(collation: Option<&'a Collation>, query: Option<&Collation>) -> Texts<'a> {
        Texts { collation, agree: collation == query }
    }

    /// Whether bounds for the predicate can be laid over the index at all.
    pub fn allow(self, predicate: &Predicate) -> bool {
        // What a predicate knows of itself decides, whatever the request says of it.
        let operand = |operand: &Operand| {
            let (own, value) = (operand.collation().as_ref(), &**operand);
            (self.agree || !is_collatable(value)) && (own == self.collation || !holds_text(value.as_raw()))
        };
        match predicate {
            Predicate::Compare(_, value) | Predicate::Expr(_, value) => operand(value),
            Predicate::In(list) => {
                let (own, values) = (list.collation().as_ref(), list.values());
                (self.agree || !values.iter().any(is_collatable))
                    && (own == self.collation || !values.iter().any(|value| holds_text(value.as_raw())))
            }
            Predicate::Not(negated) => self.allow(negated),
            Predicate::ElemMatchValue(predicates) => predicates.iter().all(|one| self.allow(one)),
            // What these are made of is asked about where its bounds are.
            Predicate::ElemMatchObject(_) | Predicate::All(_) => true,
            // Regular expressions see texts as they are.
            Predicate::Regex(_)
            | Predicate::Exists
            | Predicate::Type(_)
            | Predicate::Mod { .. }
            | Predicate::Size(_)
            | Predicate::Bits(_)
            | Predicate::Geo(_)
            | Predicate::Near(_) => true,
        }
    }

    /// Whether the index has the query's order among values that may be these.
    pub fn order(self, list: &IntervalList) -> bool {
        self.agree || !may_hold_texts(list)
    }

    pub fn before(self, value: &Value) -> Cut {
        Cut::new(value.clone(), false, self.collation)
    }

    pub fn after(self, value: &Value) -> Cut {
        Cut::new(value.clone(), true, self.collation)
    }

    pub fn point(self, value: &Value) -> Interval {
        Interval::new(self.before(value), self.after(value))
    }
}

/// Whether a value is a text or may hold some.
pub fn is_collatable(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Symbol(_) | Value::Document(_) | Value::Array(_))
}

/// Whether texts, or values that may hold some, are within.
pub fn may_hold_texts(list: &IntervalList) -> bool {
    // Documents and arrays follow texts in the order of types.
    let binary = Value::Binary { subtype: 0, bytes: Vec::new() };
    let collatable = Interval::new(Cut::before(Value::String(String::new())), Cut::before(binary));
    !list.intersection(&IntervalList::one(collatable)).is_empty()
}
