//! Hints: which index a client wants used.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, compare};
use kilim_error::{Error, ErrorCode, Result};

use crate::index::Index;
use kilim_query::text::document as shell_text;

#[derive(Debug, Clone)]
pub enum Hint {
    Name(String),
    Key(Document),
    /// `{$natural: 1}`: the collection, in insertion order or against it.
    Natural {
        backward: bool,
    },
}

impl Hint {
    /// Parses the `hint` of a command; an empty document is none.
    pub fn parse(value: RawValue<'_>) -> Result<Option<Hint>> {
        match value {
            RawValue::String(name) => Ok(Some(Hint::Name(name.to_owned()))),
            RawValue::Document(document) if document.is_empty() => Ok(None),
            RawValue::Document(document)
                if document.get("$natural").is_some() && document.iter().count() > 1 =>
            {
                Err(Error::user(ErrorCode::BadValue, "$natural hint cannot be combined with other fields"))
            }
            RawValue::Document(document) => Ok(Some(Hint::of_document(document))),
            _ => Err(Error::user(ErrorCode::FailedToParse, "Hint must be a string or an object")),
        }
    }

    fn of_document(document: RawDocument<'_>) -> Hint {
        match document.get("$natural") {
            Some(direction) => {
                let backward = compare(direction, RawValue::Int32(0)) == Ordering::Less;
                Hint::Natural { backward }
            }
            None => Hint::Key(document.to_document()),
        }
    }

    /// The index that is meant.
    pub(crate) fn find<'i>(&self, indexes: &[&'i Arc<Index>]) -> Result<&'i Arc<Index>> {
        let meant = |index: &Index| match self {
            Hint::Name(name) => index.spec.name == *name,
            Hint::Key(key) => index.spec.has_key(key.as_raw()),
            Hint::Natural { .. } => false,
        };
        let mut found = indexes.iter().copied().filter(|index| meant(index));
        let first = found.next();
        // Indexes over the same fields may differ in their collation.
        if let (Some(first), Some(second)) = (first, found.next()) {
            let tell = |index: &Index| {
                let spec = &index.spec;
                let document = spec.to_document();
                format!(
                    "kp: {} name: '({}, )' io: {}",
                    shell_text(spec.key_document.as_raw()),
                    spec.name,
                    shell_text(document.as_raw())
                )
            };
            return Err(Error::user(
                ErrorCode::IndexNotFound,
                format!(
                    "error processing query: planner returned error :: caused by :: Hint matched multiple indexes, \
                     must hint by index name. Matched: {} and {}",
                    tell(first),
                    tell(second)
                ),
            ));
        }
        first.ok_or_else(|| {
            Error::user(
                ErrorCode::BadValue,
                "error processing query: planner returned error :: caused by :: \
                 hint provided does not correspond to an existing index",
            )
        })
    }
}
