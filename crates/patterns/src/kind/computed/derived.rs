//! `computed` with `set`: fields computed from others of the same document.
//!
//! A field may use fields that the same declaration computes; they are computed in an order in which each
//! finds what it uses. An expression that fails gives null: a write that was possible before stays
//! possible.

use kilim_bson::{Document, RawDocument, RawValue, compare, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Dependencies, Env, Expression, Scope, Variables};
use kilim_query::projection::Projection;

use crate::declaration::Options;
use crate::effect::{Cause, Change, Effect, Reader, Role};
use crate::expression::bad_expression;
use crate::kind::{Kind, Readings};
use crate::path::{Names, get, names, overlap, put};

#[derive(Debug, Clone)]
pub(super) struct Derived {
    /// In the order in which they are computed.
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
struct Field {
    path: Box<str>,
    names: Names,
    /// Adds this field alone.
    projection: Projection,
    needed: Dependencies,
    /// What its expression reads of the field itself, or of what lies around it or within.
    reads_itself: Option<Box<str>>,
}

impl Derived {
    /// `set`: paths and expressions.
    pub(super) fn parse(set: RawDocument<'_>) -> Result<Derived> {
        let variables = Variables::default();
        let scope = Scope::new(&variables);
        let mut fields = Vec::new();
        for (path, expression) in set {
            fields.push(Field::parse(path, expression, &scope)?);
        }
        if fields.is_empty() {
            return Err(Error::user(ErrorCode::BadValue, "'computed.set' computes nothing"));
        }
        Ok(Derived { fields: ordered(fields)? })
    }

    /// Refuses what would be another value each time it is computed, and fields of which one is part of another.
    fn check_settles(&self) -> Result<()> {
        for (at, field) in self.fields.iter().enumerate() {
            let path = &field.path;
            if let Some(read) = &field.reads_itself {
                let message = format!(
                    "computed.set.{path} is computed from '{read}', which it would change itself: choose another field for it"
                );
                return Err(Error::user(ErrorCode::PatternCycle, message));
            }
            if let Some(other) = self.fields[..at].iter().find(|other| overlap(&other.path, path)) {
                let message = format!(
                    "computed.set: '{}' and '{path}' lie within each other: leave one of them out",
                    other.path
                );
                return Err(Error::user(ErrorCode::PatternFieldConflict, message));
            }
        }
        Ok(())
    }

    /// What it reads; nothing of it is maintained by the pattern itself.
    fn needed_paths(&self) -> Vec<Box<str>> {
        let own = |path: &str| self.fields.iter().any(|field| overlap(&field.path, path));
        let needed = self.fields.iter().flat_map(|field| field.needed.fields.iter());
        needed.filter(|path| !own(path)).cloned().collect()
    }

    /// Whether a document brings a value of its own: neither what was there before nor what is `made`.
    fn is_contradicted(
        &self,
        before: Option<RawDocument<'_>>,
        after: RawDocument<'_>,
        made: RawDocument<'_>,
    ) -> bool {
        self.fields.iter().any(|Field { names, .. }| {
            let Some(value) = get(after, names) else { return false };
            let is = |other: Option<RawValue<'_>>| other.is_some_and(|other| compare(value, other).is_eq());
            !is(before.and_then(|before| get(before, names))) && !is(get(made, names))
        })
    }

    /// The document with its fields computed; none if they are right already.
    fn apply(&self, document: RawDocument<'_>) -> Option<Document> {
        let mut current: Option<Document> = None;
        for field in &self.fields {
            let now = current.as_ref().map_or(document, Document::as_raw);
            let made = field.projection.made_of(&Env::new(now, Bindings::none()));
            current = Some(made.unwrap_or_else(|_| put(now, &field.names, Some(RawValue::Null))));
        }
        current.filter(|made| made.as_bytes() != document.as_bytes())
    }
}

impl Kind for Derived {
    fn maintained_paths(&self) -> Vec<Box<str>> {
        self.fields.iter().map(|field| field.path.clone()).collect()
    }

    fn evaluate(
        &self,
        change: &Change<'_>,
        _reader: &mut dyn Reader,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        let (Role::Target, Some(after)) = (change.role, change.after) else { return Ok(()) };
        if let Some(document) = self.apply(after) {
            let replaced =
                change.cause == Cause::User && self.is_contradicted(change.before, after, document.as_raw());
            effects.push(Effect::Becomes { document, replaced });
        }
        Ok(())
    }

    fn readings(&self) -> Readings {
        Readings { target: self.needed_paths(), ..Readings::default() }
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        self.check_settles()?;
        options.check_never_behind("fields of the same document, which cost no further write")
    }

    fn corrected(&self, target: RawDocument<'_>, _reader: &mut dyn Reader) -> Result<Option<Document>> {
        Ok(self.apply(target))
    }
}

impl Field {
    fn parse(path: &str, expression: RawValue<'_>, scope: &Scope<'_>) -> Result<Field> {
        if path == "_id" || path.starts_with("_id.") {
            return Err(Error::user(
                ErrorCode::PatternFieldConflict,
                "'computed.set' cannot compute '_id': choose another field",
            ));
        }
        let set = doc! {path: expression};
        let refused = |error: Error| bad_expression(&format!("computed.set.{path}"), error);
        let mut projection = Projection::parse_addition(set.as_raw(), scope).map_err(refused)?;
        projection.optimise().map_err(refused)?;
        let mut needed = Dependencies::default();
        projection.dependencies(&mut needed);
        if needed.whole_document {
            return Err(Error::user(
                ErrorCode::PatternBadExpression,
                format!(
                    "computed.set.{path} uses the document as a whole, of which it would be part: name the fields"
                ),
            ));
        }
        // Adding to a path reads what is there, which is the field itself.
        needed.fields.remove(path);
        let mut read = Dependencies::default();
        Expression::parse(expression, scope).map_err(refused)?.dependencies(&mut read);
        let reads_itself = read.fields.iter().find(|read| overlap(read, path)).cloned();
        Ok(Field { path: path.into(), names: names(path), projection, needed, reads_itself })
    }
}

/// Each behind those that it uses.
fn ordered(mut fields: Vec<Field>) -> Result<Vec<Field>> {
    let mut done: Vec<Field> = Vec::with_capacity(fields.len());
    while !fields.is_empty() {
        let uses = |field: &Field, other: &Field| {
            field.path != other.path && field.needed.fields.iter().any(|path| overlap(path, &other.path))
        };
        let ready = fields.iter().position(|field| !fields.iter().any(|other| uses(field, other)));
        let Some(ready) = ready else {
            let circle: Vec<&str> = fields.iter().map(|field| &*field.path).collect();
            return Err(Error::user(
                ErrorCode::PatternCycle,
                format!(
                    "computed.set: {} are computed from each other: leave one of them out",
                    circle.join(", ")
                ),
            ));
        };
        done.push(fields.remove(ready));
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use kilim_bson::array;

    use super::*;

    fn derived(set: Document) -> Derived {
        Derived::parse(set.as_raw()).unwrap()
    }

    #[test]
    fn fields_see_each_other_whatever_the_order() {
        let total = derived(doc! {
            "total": {"$add": ["$subtotal", "$tax"]},
            "tax": {"$multiply": ["$subtotal", 0.5]},
            "subtotal": {"$sum": {"$map": {
                "input": "$items",
                "in": {"$multiply": ["$$this.qty", "$$this.price"]},
            }}},
        });
        let order = doc! {"items": array![doc! {"qty": 2, "price": 3}, doc! {"qty": 1, "price": 4}]};
        let made = total.apply(order.as_raw()).unwrap();
        assert_eq!(made.get("total").map(|value| format!("{value:?}")), Some("Double(15.0)".to_owned()));
        assert!(total.apply(made.as_raw()).is_none(), "what is right stays as it is");
        assert_eq!(total.needed_paths().iter().map(|path| &**path).collect::<Vec<_>>(), ["items"]);
    }

    #[test]
    fn an_expression_that_fails_gives_null() {
        let ratio = derived(doc! {"ratio": {"$divide": ["$a", "$b"]}});
        let made = ratio.apply(doc! {"a": 1, "b": 0}.as_raw()).unwrap();
        assert_eq!(made, doc! {"a": 1, "b": 0, "ratio": null});
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let code = |set: Document| Derived::parse(set.as_raw()).unwrap_err().code();
        assert_eq!(code(doc! {"a": "$b", "b": "$a"}), ErrorCode::PatternCycle);
        assert_eq!(code(doc! {"a": "$$NOW"}), ErrorCode::PatternNotDeterministic);
        assert_eq!(code(doc! {"a": {"$nothing": 1}}), ErrorCode::PatternBadExpression);
        assert_eq!(code(doc! {"a": "$$ROOT"}), ErrorCode::PatternBadExpression);
        assert_eq!(code(doc! {}), ErrorCode::BadValue);
        assert_eq!(code(doc! {"_id": 1}), ErrorCode::PatternFieldConflict);
    }

    #[test]
    fn a_field_that_never_settles_is_refused() {
        let settles = |set: Document| derived(set).check_settles().map_err(|error| error.code());
        assert_eq!(settles(doc! {"a": {"$add": ["$a", 1]}}), Err(ErrorCode::PatternCycle));
        assert_eq!(settles(doc! {"o.p": {"$add": ["$o.p", 1]}}), Err(ErrorCode::PatternCycle));
        assert_eq!(settles(doc! {"o.n": {"$size": {"$objectToArray": "$o"}}}), Err(ErrorCode::PatternCycle));
        assert_eq!(settles(doc! {"o": {"$add": ["$o.p", 1]}}), Err(ErrorCode::PatternCycle));
        assert_eq!(settles(doc! {"x": 1, "x.y": 2}), Err(ErrorCode::PatternFieldConflict));
        assert_eq!(settles(doc! {"o.n": {"$add": ["$o.p", 1]}, "n": "$o.n"}), Ok(()));
    }
}
