//! Validators: filters that documents of a collection must satisfy, and why one does not.
//!
//! Whether a document passes is decided by the filter, on raw bytes. Why it does not is found out afterwards, by
//! walking the validator as it was written ([`explain`]): what users are told is in their own words and order, which
//! a filter in its normal form no longer has.

mod clause;
mod considered;
mod explain;
mod operator;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::{Expression, Scope, Variables};
use crate::filter::{Filter, Predicate};

/// What time a validator sees.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub millis: i64,
    pub cluster_time: Timestamp,
}

impl Now {
    fn variables(self, collation: &Option<Collation>) -> Variables {
        Variables::at(self.millis, self.cluster_time).under(collation.clone())
    }
}

/// Why a document does not pass.
#[derive(Debug, Clone)]
pub struct Explanation {
    pub details: Document,
    /// Nothing is known, and the details say why.
    pub note: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub struct Validator {
    written: Document,
    filter: Filter,
    /// The collection's own.
    collation: Option<Collation>,
    /// It speaks of the time, so its filter holds for one moment only.
    depends_on_time: bool,
}

impl Validator {
    /// The validator of a collection whose texts compare like this.
    pub fn parse(written: RawDocument<'_>, collation: &Option<Collation>) -> Result<Validator> {
        let now = Now { millis: 0, cluster_time: Timestamp::from_bits(0) };
        let filter = parse(written, now, collation)?;
        check(&filter)?;
        let depends_on_time = mentions_time(RawValue::Document(written));
        Ok(Validator {
            written: written.to_document(),
            filter,
            collation: collation.clone(),
            depends_on_time,
        })
    }

    /// Whether a document passes. An expression that cannot be evaluated does not let it pass.
    pub fn passes(&self, document: RawDocument<'_>, now: impl FnOnce() -> Now) -> Result<bool> {
        let matched = match self.depends_on_time {
            false => self.filter.matches(document),
            true => parse(self.written.as_raw(), now(), &self.collation)?.matches(document),
        };
        match matched {
            Err(Error::User(_)) => Ok(false),
            decided => decided,
        }
    }

    /// Whether it names a field of the document itself otherwise than by `{field: {$size: n}}`, or may look at whole documents.
    pub fn mentions_beyond_size(&self, field: &str) -> bool {
        mentions_field(RawValue::Document(self.written.as_raw()), field)
    }

    /// The same validator for documents in which another field tells how long an array is.
    pub fn with_size_from(&self, array: &str, count: &str) -> Result<Validator> {
        Validator::parse(size_renamed(self.written.as_raw(), array, count).as_raw(), &self.collation)
    }

    /// Why a document does not pass: what `errInfo` holds beside its id.
    pub fn explain(&self, document: RawDocument<'_>, now: Now) -> Explanation {
        explain::explain(self.written.as_raw(), document, &now.variables(&self.collation))
    }

    pub fn mentions_encryption(&self) -> bool {
        mentions_encryption(&self.filter)
    }
}

/// Recursion is bounded by the depth of a document.
fn mentions_field(value: RawValue<'_>, field: &str) -> bool {
    let is_named = |name: &str| {
        let path = name.trim_start_matches("$$CURRENT.").trim_start_matches('$');
        path.split('.').next() == Some(field) || name.starts_with("$$ROOT") || name == "$$CURRENT"
    };
    match value {
        RawValue::Document(document) => document.iter().any(|(name, value)| match asked_size(value) {
            Some(_) if name == field => false,
            _ => is_named(name) || mentions_field(value, field),
        }),
        RawValue::Array(array) => array.iter().any(|value| mentions_field(value, field)),
        RawValue::String(text) => is_named(text),
        _ => false,
    }
}

/// The number in `{$size: n}`.
fn asked_size(value: RawValue<'_>) -> Option<RawValue<'_>> {
    let RawValue::Document(operators) = value else { return None };
    let mut operators = operators.iter();
    match (operators.next(), operators.next()) {
        (Some(("$size", size)), None) if size.is_number() => Some(size),
        _ => None,
    }
}

/// A condition on the size of an array as one on the field that has it.
///
/// Recursion is bounded by the depth of a document.
fn size_renamed(written: RawDocument<'_>, array: &str, count: &str) -> Document {
    let renamed = |value: RawValue<'_>| match value {
        RawValue::Document(document) => Value::Document(size_renamed(document, array, count)),
        RawValue::Array(list) => Value::Array(
            list.iter()
                .map(|value| match value {
                    RawValue::Document(document) => Value::Document(size_renamed(document, array, count)),
                    other => other.to_value(),
                })
                .collect(),
        ),
        other => other.to_value(),
    };
    let fields = written.iter().map(|(name, value)| match asked_size(value) {
        Some(size) if name == array => (count, size.to_value()),
        _ => (name, renamed(value)),
    });
    fields.collect()
}

/// Whether the variables for the time are named anywhere. Too often does no harm.
fn mentions_time(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(text) => text.starts_with("$$NOW") || text.starts_with("$$CLUSTER_TIME"),
        RawValue::Document(document) => document.iter().any(|(_, value)| mentions_time(value)),
        RawValue::Array(array) => array.iter().any(mentions_time),
        _ => false,
    }
}

fn parse(written: RawDocument<'_>, now: Now, collation: &Option<Collation>) -> Result<Filter> {
    Filter::parse_for_validator(written, &Scope::new(&now.variables(collation)))
}

/// Refuses what may say yes today and no tomorrow.
fn check(filter: &Filter) -> Result<()> {
    match filter {
        Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
            children.iter().try_for_each(check)
        }
        Filter::Expr(expression) => check_expression(expression),
        Filter::Field { predicate: Predicate::ElemMatchObject(filter), .. } => check(filter),
        _ => Ok(()),
    }
}

fn check_expression(expression: &Expression) -> Result<()> {
    if let Expression::Call(call) = expression
        && call.operator.name == "$rand"
    {
        return Err(Error::location(3_040_500, "$rand not allowed inside collection validators"));
    }
    expression.children().try_for_each(check_expression)
}

fn mentions_encryption(filter: &Filter) -> bool {
    match filter {
        Filter::JsonSchema(schema) => schema.mentions_encryption(),
        Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
            children.iter().any(mentions_encryption)
        }
        _ => false,
    }
}

/// What mongod says where encryption has no place.
pub fn no_encryption_here() -> Error {
    Error::user(
        ErrorCode::QueryFeatureNotAllowed,
        "Encryption-related validator keywords are not allowed in this context",
    )
}
