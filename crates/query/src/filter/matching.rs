//! Evaluation of filters on raw bytes, without allocation.

use std::cmp::Ordering;

use kilim_bson::{Collator, Component, RawDocument, RawValue, canonical_type, compare_with};
use kilim_error::{Error, Result};

use super::normal::order;
use super::{Comparison, Filter, Predicate, number};
use crate::expression::{Bindings, Env, Expression};
use crate::interrupt;
use crate::path::{self, Found, Leaf};

/// What a filter is evaluated on.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Document(RawDocument<'a>),
    /// A lone value, which the first component of every path stands for.
    Element(RawValue<'a>),
}

/// What is learnt while a filter is evaluated, beside whether it matches.
#[derive(Default)]
struct Findings {
    /// The index in the array that the last predicate matched through.
    position: Option<usize>,
    /// The first expression that could not be evaluated. What was said after it counts for nothing.
    error: Option<Error>,
}

impl Findings {
    /// Evaluates something whose position is nobody's business.
    fn apart(&mut self, test: impl FnOnce(&mut Findings) -> bool) -> bool {
        let position = self.position;
        let matched = test(self);
        self.position = position;
        matched
    }

    fn or_error<T>(self, found: T) -> Result<T> {
        interrupt::settled()?;
        self.error.map_or(Ok(found), Err)
    }
}

impl Filter {
    pub fn matches(&self, document: RawDocument<'_>) -> Result<bool> {
        let mut findings = Findings::default();
        let matched = self.test(Subject::Document(document), &mut findings);
        findings.or_error(matched)
    }

    /// Whether a lone value matches, as if it were the only field of a document: the first component of
    /// every path stands for it, whatever its name. This is what array filters need, which hold no expression.
    pub fn matches_value(&self, value: RawValue<'_>) -> bool {
        self.test(Subject::Element(value), &mut Findings::default())
    }

    /// As [`Filter::matches`], for conditions on array elements, which hold no expression.
    pub(crate) fn matches_element(&self, element: RawDocument<'_>) -> bool {
        self.test(Subject::Document(element), &mut Findings::default())
    }

    /// Whether the document matches, and the array index that the positional `$` of an update then
    /// stands for: that of the last child in mongod's order that matched through an array.
    pub fn matches_with_position(&self, document: RawDocument<'_>) -> Result<Option<Option<usize>>> {
        let Filter::And(children) = self else {
            let mut findings = Findings::default();
            let matched = self.test(Subject::Document(document), &mut findings);
            let position = findings.position;
            return findings.or_error(matched.then_some(position));
        };
        let mut last: Option<(&Filter, usize)> = None;
        for child in children {
            let Some(position) = child.matches_with_position(document)? else { return Ok(None) };
            if let Some(position) = position
                && last.is_none_or(|(other, _)| order(other, child).is_le())
            {
                last = Some((child, position));
            }
        }
        Ok(Some(last.map(|(_, position)| position)))
    }

    /// The array index that the positional `$` of a projection stands for: that of the last child, as
    /// written, that matched through an array.
    pub(crate) fn written_position(&self, document: RawDocument<'_>) -> Result<Option<usize>> {
        let mut findings = Findings::default();
        self.test(Subject::Document(document), &mut findings);
        interrupt::settled()?;
        Ok(findings.position)
    }

    fn test(&self, subject: Subject<'_>, findings: &mut Findings) -> bool {
        match self {
            Filter::True => true,
            Filter::False => false,
            Filter::And(children) => {
                let matched = children.iter().all(|child| child.test(subject, findings));
                if !matched {
                    findings.position = None;
                }
                matched
            }
            // Which branch matched is nobody's business: mongod records no position in `$or`.
            Filter::Or(children) => {
                findings.apart(|findings| children.iter().any(|child| child.test(subject, findings)))
            }
            Filter::Nor(children) => {
                !findings.apart(|findings| children.iter().any(|child| child.test(subject, findings)))
            }
            Filter::Field { path, predicate } => predicate.test_path(subject, path.components(), findings),
            Filter::JsonSchema(schema) => match subject {
                Subject::Document(document) => schema.matches(document),
                // Nowhere does the language allow it.
                Subject::Element(_) => false,
            },
            Filter::Text(query) => match subject {
                Subject::Document(document) => query.matches(document).unwrap_or_else(|error| {
                    findings.error.get_or_insert(error);
                    false
                }),
                // Nowhere does the language allow it.
                Subject::Element(_) => false,
            },
            Filter::Expr(expression) => match subject {
                Subject::Document(document) => holds(expression, document, findings),
                // Nowhere does the language allow it.
                Subject::Element(_) => false,
            },
        }
    }
}

fn holds(expression: &Expression, document: RawDocument<'_>, findings: &mut Findings) -> bool {
    match expression.is_true(&Env::new(document, Bindings::none())) {
        Ok(truth) => truth,
        Err(error) => {
            findings.error.get_or_insert(error);
            false
        }
    }
}

impl Predicate {
    fn test_path(&self, subject: Subject<'_>, path: &[Component], findings: &mut Findings) -> bool {
        let leaf = match self {
            Predicate::Not(inner) => {
                return !findings.apart(|findings| inner.test_path(subject, path, findings));
            }
            Predicate::All(list) => return list.iter().all(|one| one.test_path(subject, path, findings)),
            Predicate::Expr(..) | Predicate::Near(_) => return true,
            Predicate::Size(_) | Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => Leaf::Whole,
            _ => Leaf::Elements,
        };
        let work = self.work();
        let mut visitor = |found: Found<'_>| {
            // What is said from here on counts for nothing: the visit ends.
            if !interrupt::goes_on(work) {
                return true;
            }
            let mut inner = None;
            let matched = self.test_one(found.value, &mut inner);
            if matched && let Some(index) = found.index.or(inner) {
                findings.position = Some(index);
            }
            matched
        };
        match subject {
            Subject::Document(document) => path::visit(document, path, leaf, &mut visitor),
            Subject::Element(value) => path::visit_value(value, &path[1..], leaf, &mut visitor),
        }
    }

    /// About how long one value takes, in passes of a simple loop.
    fn work(&self) -> usize {
        match self {
            Predicate::Regex(regex) if regex.backtracks() => 64,
            Predicate::Regex(_) => 4,
            // About as long as a polygon of some vertices takes.
            Predicate::Geo(_) => 32,
            _ => 1,
        }
    }

    /// One value, or none where the path ends in a missing field; arrays are not traversed here.
    fn test_one(&self, value: Option<RawValue<'_>>, position: &mut Option<usize>) -> bool {
        match self {
            Predicate::Compare(comparison, operand) => {
                comparison.test(operand.as_raw(), value, operand.collator())
            }
            Predicate::Expr(..) | Predicate::Near(_) => true,
            Predicate::In(list) => list.contains(value),
            Predicate::Exists => value.is_some(),
            Predicate::Not(inner) => !inner.test_one(value, &mut None),
            Predicate::All(list) => list.iter().all(|one| one.test_one(value, position)),
            Predicate::Regex(regex) => value.is_some_and(|value| regex.matches(value)),
            Predicate::Type(types) => value.is_some_and(|value| types.contains(value.element_type())),
            Predicate::Bits(bits) => value.is_some_and(|value| bits.matches(value)),
            Predicate::Geo(geo) => {
                geo.field_in_buckets().is_some() || value.is_some_and(|value| geo.matches(value))
            }
            Predicate::Mod { divisor, remainder } => {
                // The divisor is not zero; -1 would overflow on the smallest integer.
                value
                    .and_then(number::truncated_i64)
                    .is_some_and(|number| number.is_ok_and(|it| it.wrapping_rem(*divisor) == *remainder))
            }
            Predicate::Size(size) => match value {
                Some(RawValue::Array(array)) => array.len() as i64 == *size,
                _ => false,
            },
            Predicate::ElemMatchObject(filter) => {
                some_element(value, position, |element| match element {
                    RawValue::Document(document) => filter.matches_element(document),
                    // An array within the array counts as a document whose names are its indexes.
                    RawValue::Array(array) => filter.matches_element(array.as_document()),
                    _ => false,
                })
            }
            Predicate::ElemMatchValue(predicates) => some_element(value, position, |element| {
                predicates.iter().all(|one| one.test_one(Some(element), &mut None))
            }),
        }
    }
}

fn some_element<'a>(
    value: Option<RawValue<'a>>,
    position: &mut Option<usize>,
    test: impl Fn(RawValue<'a>) -> bool,
) -> bool {
    let Some(RawValue::Array(array)) = value else { return false };
    match array.iter().position(|element| !interrupt::goes_on(1) || test(element)) {
        Some(index) => {
            *position = Some(index);
            true
        }
        None => false,
    }
}

impl Comparison {
    /// Compares within one type bracket; the keys at the ends and null have rules of their own.
    pub(super) fn test(
        self,
        operand: RawValue<'_>,
        value: Option<RawValue<'_>>,
        collator: Option<&dyn Collator>,
    ) -> bool {
        let value = value.unwrap_or(RawValue::Undefined);
        let bracket = |value: RawValue<'_>| canonical_type(value.element_type());
        if bracket(value) != bracket(operand) {
            return match operand {
                RawValue::Null => matches!(value, RawValue::Undefined) && self.accepts(Ordering::Equal),
                RawValue::MaxKey => self.accepts(Ordering::Less),
                RawValue::MinKey => self.accepts(Ordering::Greater),
                _ => false,
            };
        }
        let nans = usize::from(number::is_nan(value)) + usize::from(number::is_nan(operand));
        if nans > 0 {
            return nans == 2 && self.accepts(Ordering::Equal);
        }
        self.accepts(compare_with(value, operand, collator))
    }

    fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Eq => ordering.is_eq(),
            Comparison::Lt => ordering.is_lt(),
            Comparison::Lte => ordering.is_le(),
            Comparison::Gt => ordering.is_gt(),
            Comparison::Gte => ordering.is_ge(),
        }
    }
}
