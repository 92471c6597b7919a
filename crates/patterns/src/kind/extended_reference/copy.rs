//! Which fields of a source are copied, and as what.

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Dependencies, Env, Expression, Scope, Variables};

use crate::expression::bad_expression;
use crate::path::{Names, names, overlap, put};

#[derive(Debug, Clone)]
pub struct CopyFields {
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
struct Field {
    /// In the copy; dotted names make documents.
    name: Box<str>,
    names: Names,
    value: Expression,
}

impl CopyFields {
    /// `{name: 1, city: "$address.city"}`.
    pub(crate) fn parse(fields: RawDocument<'_>) -> Result<CopyFields> {
        let variables = Variables::default();
        let scope = Scope::new(&variables);
        let mut copied: Vec<Field> = Vec::new();
        for (name, value) in fields {
            let place = format!("extendedReference.fields.{name}");
            let included = matches!(value, RawValue::Bool(true))
                || (value.is_number() && !matches!(value, RawValue::Int32(0) | RawValue::Int64(0)));
            let value = match included {
                true => {
                    let path = format!("${name}");
                    Expression::parse(RawValue::String(&path), &scope)
                }
                false if value.is_number() || matches!(value, RawValue::Bool(_)) => {
                    return Err(Error::user(
                        ErrorCode::BadValue,
                        format!("{place} is neither 1 nor an expression: leave out what is not to be copied"),
                    ));
                }
                false => Expression::parse(value, &scope),
            };
            let value =
                value.and_then(Expression::optimised).map_err(|error| bad_expression(&place, error))?;
            if let Some(other) = copied.iter().find(|other| overlap(&other.name, name)) {
                return Err(Error::user(
                    ErrorCode::PatternFieldConflict,
                    format!("{place} and 'fields.{}' lie in each other: leave one of them out", other.name),
                ));
            }
            copied.push(Field { name: name.into(), names: names(name), value });
        }
        if copied.is_empty() {
            return Err(Error::user(
                ErrorCode::BadValue,
                "'extendedReference.fields' copies nothing: name a field, as in {name: 1}",
            ));
        }
        Ok(CopyFields { fields: copied })
    }

    /// Their names in the copy.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| &*field.name)
    }

    /// The source's path that a field of the copy is, where it is one.
    pub fn path_in_source(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| *field.name == *name)?;
        field.value.as_field().map(|field| field.as_str())
    }

    /// What they are made of.
    pub fn dependencies(&self, needed: &mut Dependencies) {
        self.fields.iter().for_each(|field| field.value.dependencies(needed));
    }

    /// The copy of a source. A field that the source lacks is missing, one that cannot be computed is null.
    pub fn copy_of(&self, source: RawDocument<'_>) -> Document {
        let env = Env::new(source, Bindings::none());
        if self.fields.iter().all(|field| field.names.len() == 1) {
            let mut out = Writer::new();
            for field in &self.fields {
                match field.value.evaluate(&env) {
                    Ok(value) => drop(value.raw().map(|value| out.append(&field.name, value))),
                    Err(_) => out.append(&field.name, RawValue::Null),
                }
            }
            return out.finish();
        }
        let mut copy = Document::new();
        for field in &self.fields {
            let value = field.value.evaluate(&env);
            let value = match &value {
                Ok(value) => value.raw(),
                Err(_) => Some(RawValue::Null),
            };
            if value.is_some() {
                copy = put(copy.as_raw(), &field.names, value);
            }
        }
        copy
    }
}
