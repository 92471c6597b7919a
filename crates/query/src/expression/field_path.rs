//! `a.b.c` as aggregation walks it: through documents, and into every document of an array on the way. A number is
//! a field's name here, never an index.

use kilim_bson::{ArrayBuilder, RawArray, RawDocument, RawValue, Value};
use kilim_error::Result;

use super::{Evaluated, Fields};
use crate::path::check_field_path;

/// A checked path of at least one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    text: Box<str>,
    names: Box<[Box<str>]>,
}

impl FieldPath {
    pub fn parse(text: &str) -> Result<FieldPath> {
        check_field_path(text)?;
        Ok(FieldPath { text: text.into(), names: text.split('.').map(Into::into).collect() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    pub fn evaluate<'a>(&self, document: RawDocument<'a>) -> Evaluated<'a> {
        walk(document, &self.names)
    }

    /// From a row that is no document.
    pub(super) fn evaluate_fields<'a>(&self, fields: &Fields<'a>) -> Evaluated<'a> {
        let Some((first, rest)) = self.names.split_first() else { return Evaluated::Missing };
        match fields.get(first) {
            Some(value) if rest.is_empty() => Evaluated::Raw(value),
            Some(RawValue::Document(nested)) => walk(nested, rest),
            Some(RawValue::Array(array)) => Evaluated::from(walk_array(array, rest)),
            _ => Evaluated::Missing,
        }
    }

    /// From a variable's value, which need not be a document.
    pub fn evaluate_in<'a>(&self, value: Evaluated<'a>) -> Evaluated<'a> {
        match value {
            Evaluated::Raw(RawValue::Document(document)) => walk(document, &self.names),
            Evaluated::Raw(RawValue::Array(array)) => Evaluated::from(walk_array(array, &self.names)),
            Evaluated::Owned(Value::Document(document)) => walk(document.as_raw(), &self.names).into_owned(),
            Evaluated::Owned(Value::Array(array)) => Evaluated::from(walk_array(array.as_raw(), &self.names)),
            _ => Evaluated::Missing,
        }
    }
}

fn walk<'a>(mut document: RawDocument<'a>, mut names: &[Box<str>]) -> Evaluated<'a> {
    while let Some((name, rest)) = names.split_first() {
        match document.get(name) {
            Some(value) if rest.is_empty() => return Evaluated::Raw(value),
            Some(RawValue::Document(nested)) => document = nested,
            Some(RawValue::Array(array)) => return Evaluated::from(walk_array(array, rest)),
            _ => return Evaluated::Missing,
        }
        names = rest;
    }
    Evaluated::Missing
}

/// What the path leads to in each document of an array; elements of other types give nothing.
fn walk_array(array: RawArray<'_>, names: &[Box<str>]) -> kilim_bson::Array {
    let mut found = ArrayBuilder::new();
    for element in array.iter() {
        if let RawValue::Document(document) = element
            && let Some(value) = walk(document, names).raw()
        {
            found.push(value);
        }
    }
    found.finish()
}
