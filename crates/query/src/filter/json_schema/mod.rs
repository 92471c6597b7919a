//! `$jsonSchema`: what a document and the values in it must look like.
//!
//! A schema is parsed once. What it says of objects is gathered into one [`ObjectRules`], so that a document's
//! fields are walked once; everything is read from raw bytes. Keywords that speak of one kind of value hold for any
//! other. A schema that stands for the whole document drops what can only concern other kinds.
//!
//! Invariant: [`Schema::matches`] is true exactly where [`Schema::report`] has nothing to tell.

mod encrypt;
mod keywords;
mod matching;
mod object;
mod parse;
mod report;
#[cfg(test)]
mod tests;
mod unordered;

use kilim_bson::{Decimal128, Document, RawDocument, RawValue, Value};
use kilim_error::Result;

use super::{Regex, TypeSet};
use encrypt::Encrypted;
use object::ObjectRules;

/// A `$jsonSchema` as it was written, and what it means.
#[derive(Debug, Clone)]
pub struct JsonSchema {
    written: Document,
    schema: Schema,
}

impl JsonSchema {
    pub fn parse(document: RawDocument<'_>) -> Result<JsonSchema> {
        Ok(JsonSchema {
            written: document.to_document(),
            schema: Schema::parse(document, Subject::Document)?,
        })
    }

    pub fn matches(&self, document: RawDocument<'_>) -> bool {
        self.schema.matches(RawValue::Document(document))
    }

    /// The schema as it was given.
    pub fn written(&self) -> &Document {
        &self.written
    }

    /// Whether client-side encryption is spoken of anywhere in it.
    pub fn mentions_encryption(&self) -> bool {
        self.schema.mentions_encryption
    }

    /// Why a document does not match, for `errInfo`.
    pub fn report(&self, document: RawDocument<'_>) -> Document {
        self.schema.report_document(document)
    }
}

/// What a schema stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// The whole document, which is an object whatever happens.
    Document,
    /// A value in it.
    Value,
}

#[derive(Debug, Clone, Default)]
struct Schema {
    title: Option<Box<str>>,
    description: Option<Box<str>>,
    /// Of the whole document, something else than an object is asked: the schema as written, for the report.
    impossible: Option<Document>,
    scalar: Vec<(Document, Scalar)>,
    array: Option<Box<ArrayRules>>,
    encrypted: Option<Encrypted>,
    object: Option<Box<ObjectRules>>,
    logic: Logic,
    types: Option<(Document, TypeSet)>,
    mentions_encryption: bool,
}

/// A keyword on numbers or strings. Beside each stands what was specified.
#[derive(Debug, Clone)]
enum Scalar {
    MultipleOf(Decimal128),
    Maximum { bound: Value, exclusive: bool },
    Minimum { bound: Value, exclusive: bool },
    Pattern(Regex),
    MaxLength(i64),
    MinLength(i64),
}

#[derive(Debug, Clone, Default)]
struct ArrayRules {
    min: Option<Count>,
    max: Option<Count>,
    unique: bool,
    items: Option<Items>,
    additional: Option<Additional>,
}

/// A bound on how many there are, with the number as it was written.
#[derive(Debug, Clone)]
struct Count {
    number: i64,
    written: Value,
}

#[derive(Debug, Clone)]
enum Items {
    /// One schema for all.
    Each(Box<Schema>),
    /// One schema a position; what comes behind them is additional.
    List(Vec<Schema>),
}

#[derive(Debug, Clone)]
enum Additional {
    Forbidden,
    Like(Box<Schema>),
}

#[derive(Debug, Clone, Default)]
struct Logic {
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    /// The list as written.
    one_of_values: Option<Document>,
}
