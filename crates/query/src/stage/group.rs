//! `$group`: one document for each different key, with what accumulators make of the documents that have it.
//!
//! The key is an expression. Written as a document of expressions it is computed field by field, without
//! making the document, and fields that are missing are left out of it; with one field only, what is missing
//! becomes null, as it does where the key is a single expression.

use std::sync::Arc;

use kilim_bson::{Collator, Document, RawDocument, RawValue, Value, Writer, encode_value_with};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Modified, Stage};
use crate::accumulator::{Accumulator, Kind};
use crate::expression::{Dependencies, Env, Expression, Place, Scope};

#[derive(Debug, Clone)]
pub struct Group {
    pub id: Expression,
    /// Names and accumulators of the other fields.
    pub fields: Vec<(Box<str>, Accumulator)>,
    /// Which texts are one key.
    pub collation: Option<Collation>,
}

/// Stands in a key for a field that is missing: no value's key begins with it.
pub(super) const MISSING: u8 = 0x01;

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(spec) = value else {
        return Err(Error::location(15947, "a group's fields must be specified in an object"));
    };
    let mut id = None;
    let mut fields = Vec::new();
    for (name, value) in spec {
        if name != "_id" {
            fields.push(parse_field(name, value, &fields, context.scope)?);
        } else if id.replace(parse_id(value, context.scope)?).is_some() {
            return Err(Error::location(15948, "a group's _id may only be specified once"));
        }
    }
    let id = id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
    out.push(Stage::Group(Arc::new(Group { id, fields, collation: context.scope.collation().clone() })));
    Ok(())
}

/// An output field, and what it takes.
pub(super) fn parse_field(
    name: &str,
    value: RawValue<'_>,
    known: &[(Box<str>, Accumulator)],
    scope: &Scope<'_>,
) -> Result<(Box<str>, Accumulator)> {
    let accumulator = Accumulator::parse(name, value, scope)?;
    if known.iter().any(|(known, _)| **known == *name) {
        return Err(Error::location(4822819, format!("duplicate field: {name}")));
    }
    Ok((name.into(), accumulator))
}

fn parse_id(value: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    if let RawValue::Document(document) = value
        && document.iter().next().is_some_and(|(name, _)| !name.starts_with('$'))
    {
        let includes = |value: RawValue<'_>| value.is_number() || matches!(value, RawValue::Bool(_));
        if document.iter().any(|(_, value)| includes(value)) {
            return Err(Error::location(17390, "$group does not support inclusion-style expressions"));
        }
    }
    Ok(match Expression::parse(value, scope)? {
        // Its fields are computed one by one: one that is missing is null.
        Expression::Object(fields) => Expression::Object(
            fields.into_iter().map(|(name, value)| (name, value.optimised_if_it_can_be())).collect(),
        ),
        id => id.optimised_if_it_can_be(),
    })
}

/// Fails where a part that is always evaluated the same way always fails.
pub(super) fn check_folded(id: &Expression, fields: &[(Box<str>, Accumulator)]) -> Result<()> {
    let accumulated = fields.iter().flat_map(|(_, accumulator)| accumulator.expressions());
    let mut all = std::iter::once(id).chain(accumulated);
    all.try_for_each(|expression| expression.clone().optimised().map(drop))
}

/// Whether one of the expressions of groups satisfies `test`.
pub(super) fn any_expression(
    id: &Expression,
    fields: &[(Box<str>, Accumulator)],
    test: fn(&Expression) -> bool,
) -> bool {
    let accumulated = fields.iter().flat_map(|(_, accumulator)| accumulator.expressions());
    std::iter::once(id).chain(accumulated).any(test)
}

impl Group {
    pub(super) fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
    }

    /// Writes the document's key: equal keys, one group.
    pub fn key_of(&self, env: &Env<'_>, key: &mut Vec<u8>) -> Result<()> {
        match self.id_fields() {
            Some(fields) => {
                for (_, expression) in fields {
                    match expression.evaluate(env)?.raw() {
                        Some(value) => encode_value_with(key, value, false, self.collator()),
                        None => key.push(MISSING),
                    }
                }
            }
            None => {
                let id = self.single_id().evaluate(env)?;
                encode_value_with(key, id.raw_or_null(), false, self.collator());
            }
        }
        Ok(())
    }

    /// Writes the group's `_id` as its first document gives it.
    pub fn append_id(&self, env: &Env<'_>, out: &mut Writer) -> Result<()> {
        match (&self.id, self.id_fields()) {
            (Expression::Object(fields), None) => {
                out.open_document("_id");
                for (name, expression) in fields {
                    out.append(name, expression.evaluate(env)?.raw_or_null());
                }
                out.close();
            }
            (id, _) => {
                if !id.append(env, Place::Field("_id"), out)? {
                    out.append("_id", RawValue::Null);
                }
            }
        }
        Ok(())
    }

    /// The key's fields where it is a document of several.
    pub(super) fn id_fields(&self) -> Option<&[(Box<str>, Expression)]> {
        match &self.id {
            Expression::Object(fields) if fields.len() != 1 => Some(fields),
            _ => None,
        }
    }

    /// The only expression of the key.
    pub(super) fn single_id(&self) -> &Expression {
        match &self.id {
            Expression::Object(fields) if fields.len() == 1 => &fields[0].1,
            id => id,
        }
    }

    /// What it gives for so many documents, if their number is all it needs: the key is a constant, and every
    /// field a sum of a whole constant.
    pub fn of_count(&self, count: u64) -> Option<Document> {
        let id = self.id.as_constant()?;
        let mut writer = Writer::new();
        writer.append("_id", id.as_raw());
        for (name, accumulator) in &self.fields {
            let each = accumulator.input.as_constant().filter(|_| accumulator.kind == Kind::Sum)?;
            let (each, narrow) = match each {
                Value::Int32(each) => (i64::from(*each), true),
                Value::Int64(each) => (*each, false),
                _ => return None,
            };
            let sum = i128::from(each) * i128::from(count);
            let sum = match (i32::try_from(sum), i64::try_from(sum)) {
                (Ok(sum), _) if narrow => RawValue::Int32(sum),
                (_, Ok(sum)) => RawValue::Int64(sum),
                _ => RawValue::Double(sum as f64),
            };
            writer.append(name, sum);
        }
        Some(writer.finish())
    }

    /// Whether it reads fields of its documents, and nothing else of them or about them.
    pub fn reads_fields_only(&self) -> bool {
        let mut needed = Dependencies::default();
        self.dependencies(&mut needed);
        let accumulators = self.fields.iter().map(|(_, accumulator)| accumulator);
        let mut expressions =
            accumulators.clone().flat_map(Accumulator::expressions).chain(std::iter::once(&self.id));
        !needed.whole_document
            && !accumulators.clone().any(Accumulator::is_sorted)
            && !expressions.any(Expression::asks_beside_document)
    }

    /// Whether [`Group::of_count`] has an answer.
    pub fn needs_only_count(&self) -> bool {
        self.of_count(1).is_some()
    }
}

/// Accumulators as explain shows them, by the names of their fields.
pub(super) fn show_fields(fields: &[(Box<str>, Accumulator)], out: &mut Document) {
    fields.iter().for_each(|(name, accumulator)| out.push(name, accumulator.to_value()));
}

impl Group {
    /// As explain shows it where the read gives one document of each group.
    pub fn to_distinct_document(&self) -> Document {
        let mut root = Document::new();
        root.push("_id", self.id.to_value());
        self.fields.iter().for_each(|(name, accumulator)| root.push(name, accumulator.input.to_value()));
        let root: Document = [("newRoot", Value::Document(root))].into_iter().collect();
        [("$groupByDistinctScan", Value::Document(root))].into_iter().collect()
    }
}

impl Behaviour for Group {
    fn to_document(&self) -> Document {
        let mut group = Document::new();
        group.push("_id", self.id.to_value());
        show_fields(&self.fields, &mut group);
        [("$group", Value::Document(group))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        self.id.dependencies(needed);
        self.fields.iter().for_each(|(_, accumulator)| accumulator.dependencies(needed));
        Beyond::Nothing
    }

    fn modified(&self) -> Modified {
        Modified::Unknown
    }
}

/// An id's document, for accumulators that count by it.
pub fn id_of(document: RawDocument<'_>) -> RawValue<'_> {
    document.get("_id").unwrap_or(RawValue::Null)
}
