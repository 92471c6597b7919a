//! Filters taken apart: what can be asked before a stage, and in whose names.

use kilim_bson::{Path, RawValue};

use crate::expression::{Base, Dependencies, Expression, FieldPath};
use crate::filter::{Filter, Predicate};
use crate::stage::{Modified, Paths};

/// A filter in two parts, of which both must hold.
pub(super) struct Split {
    /// In the names of the stage's input.
    pub passing: Option<Filter>,
    pub rest: Option<Filter>,
}

/// What a stage lets by of a filter whose paths it leaves as they are.
pub(super) struct Passage {
    pub predicate: fn(&Predicate) -> bool,
    pub expression: fn(&Expression) -> bool,
}

/// Whether an expression may give something else at each evaluation.
fn is_random(expression: &Expression) -> bool {
    let own = matches!(expression, Expression::Call(call) if call.operator.name == "$rand");
    own || expression.children().any(is_random)
}

/// Whether a filter asks for the whole of what is at a path.
pub(super) fn asks(filter: &Filter, path: &str) -> bool {
    let mut needed = Dependencies::default();
    filter.dependencies(&mut needed);
    needed.whole_document || needed.fields.contains(path)
}

/// Divides a filter behind a stage that does this to paths.
pub(super) fn split(filter: &Filter, modified: &Modified, passage: &Passage) -> Split {
    let (mut passing, mut rest) = (Vec::new(), Vec::new());
    let mover = Mover { modified, passage };
    let conjuncts = match filter {
        Filter::And(children) => children.as_slice(),
        one => std::slice::from_ref(one),
    };
    for conjunct in conjuncts {
        // None of several is each of them not.
        let parts: Vec<Filter> = match conjunct {
            Filter::Nor(children) => children.iter().map(|child| Filter::Nor(vec![child.clone()])).collect(),
            other => vec![other.clone()],
        };
        let (mut together, mut apart) = (Vec::new(), Vec::new());
        for part in parts {
            match mover.moved(&part) {
                Some(moved) => together.push(moved),
                None => apart.push(part),
            }
        }
        // A `$nor` that goes as a whole stays one.
        passing.extend(rejoined(conjunct, together));
        rest.extend(rejoined(conjunct, apart));
    }
    let all = |filters: Vec<Filter>| (!filters.is_empty()).then(|| Filter::all_of(filters));
    Split { passing: all(passing), rest: all(rest) }
}

/// The parts of a `$nor` in one again.
fn rejoined(conjunct: &Filter, parts: Vec<Filter>) -> Vec<Filter> {
    match conjunct {
        Filter::Nor(_) if parts.len() > 1 => {
            let children = parts.into_iter().flat_map(|part| match part {
                Filter::Nor(children) => children,
                other => vec![other],
            });
            vec![Filter::Nor(children.collect())]
        }
        _ => parts,
    }
}

struct Mover<'a> {
    modified: &'a Modified,
    passage: &'a Passage,
}

impl Mover<'_> {
    /// The filter in the names of before; none if it cannot be asked there.
    fn moved(&self, filter: &Filter) -> Option<Filter> {
        let all = |children: &[Filter]| -> Option<Vec<Filter>> {
            children.iter().map(|child| self.moved(child)).collect()
        };
        Some(match filter {
            Filter::True => Filter::True,
            Filter::False => return None,
            Filter::And(children) => Filter::And(all(children)?),
            Filter::Or(children) => Filter::Or(all(children)?),
            Filter::Nor(children) => Filter::Nor(all(children)?),
            Filter::Field { path, predicate } => {
                if !(self.passage.predicate)(predicate) || looks_at_arrays(predicate) {
                    return None;
                }
                match self.name_before(path.as_str())? {
                    Name::Same => filter.clone(),
                    Name::Other(name) => {
                        Filter::Field { path: Path::parse(&name), predicate: predicate.clone() }
                    }
                }
            }
            // It may speak of any field.
            Filter::JsonSchema(_) | Filter::Text(_) => return None,
            Filter::Expr(expression) => {
                let mut needed = Dependencies::default();
                expression.dependencies(&mut needed);
                if needed.whole_document {
                    return None;
                }
                // What it gives is another thing at each evaluation, so it is asked where it stands.
                if is_random(expression) {
                    return None;
                }
                // It has the same value everywhere.
                if needed.fields.is_empty() {
                    return Some(filter.clone());
                }
                if !(self.passage.expression)(expression) {
                    return None;
                }
                let mut moved = (**expression).clone();
                self.rename(&mut moved)?;
                Filter::Expr(std::sync::Arc::new(moved))
            }
        })
    }

    /// Puts the names of before into an expression.
    fn rename(&self, expression: &mut Expression) -> Option<()> {
        match expression {
            Expression::Field(path) => {
                if let Name::Other(name) = self.name_before(path.as_str())? {
                    *path = FieldPath::parse(&name).ok()?;
                }
            }
            Expression::Variable(variable) if variable.base == Base::Root => {
                if let Name::Other(_) = self.name_before(variable.path.as_ref()?.as_str())? {
                    return None;
                }
            }
            other => {
                for child in other.children_mut() {
                    self.rename(child)?;
                }
            }
        }
        Some(())
    }

    /// What a path was called before the stage; none if it was not there, or not the same.
    fn name_before(&self, path: &str) -> Option<Name> {
        let renamed = |paths: &Paths| {
            paths.renamed.iter().find_map(|(new, old)| {
                let rest = path.strip_prefix(&**new)?;
                (rest.is_empty() || rest.starts_with('.')).then(|| Name::Other(format!("{old}{rest}")))
            })
        };
        match self.modified {
            Modified::Unknown => None,
            Modified::Paths(paths) => renamed(paths).or_else(|| {
                let renamed = paths.renamed.iter().map(|(new, _)| new);
                let mut changed = paths.paths.iter().chain(renamed);
                (!changed.any(|changed| overlap(changed, path))).then_some(Name::Same)
            }),
            Modified::AllBut(paths) => renamed(paths)
                .or_else(|| paths.paths.iter().any(|kept| is_below(path, kept)).then_some(Name::Same)),
        }
    }
}

enum Name {
    Same,
    Other(String),
}

/// Whether a path is `above`, or lies below it.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether one path lies within the other.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    is_below(one, other) || is_below(other, one)
}

/// What mongod leaves where it is: predicates on an array as a whole.
fn looks_at_arrays(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) | Predicate::Size(_) => true,
        Predicate::Not(inner) => looks_at_arrays(inner),
        Predicate::All(list) => list.iter().any(looks_at_arrays),
        _ => false,
    }
}

/// What a document must satisfy if any part of it is to satisfy the filter: a `$redact` takes fields and
/// elements away, so what asks for something to be there can be asked before.
pub(super) fn safe_before_redact(filter: &Filter) -> Option<Filter> {
    match filter {
        Filter::And(children) => {
            let safe: Vec<Filter> = children.iter().filter_map(safe_before_redact).collect();
            (!safe.is_empty()).then(|| Filter::all_of(safe))
        }
        Filter::Or(children) => {
            let safe: Option<Vec<Filter>> = children.iter().map(safe_before_redact).collect();
            safe.map(Filter::Or)
        }
        Filter::Field { path, predicate } => {
            // An index counts elements that are there now, and some may be gone by then.
            let counted = path.components().iter().any(|component| component.index.is_some());
            (!counted && is_safe(predicate)).then(|| filter.clone())
        }
        _ => None,
    }
}

fn is_safe(predicate: &Predicate) -> bool {
    let whole = |value: RawValue<'_>| {
        !matches!(value, RawValue::Null | RawValue::Undefined | RawValue::Document(_) | RawValue::Array(_))
    };
    match predicate {
        Predicate::Compare(_, value) => whole(value.as_raw()),
        Predicate::In(list) => list.values().iter().all(|value| whole(value.as_raw())),
        Predicate::Regex(_) | Predicate::Mod { .. } | Predicate::Type(_) | Predicate::Bits(_) => true,
        Predicate::ElemMatchObject(inner) => safe_before_redact(inner).is_some() && is_all_safe(inner),
        Predicate::ElemMatchValue(list) => list.iter().all(is_safe),
        _ => false,
    }
}

/// Whether nothing of a filter is lost by [`safe_before_redact`].
fn is_all_safe(filter: &Filter) -> bool {
    match filter {
        Filter::And(children) | Filter::Or(children) => children.iter().all(is_all_safe),
        other => safe_before_redact(other).is_some(),
    }
}
