//! One way between two versions: the pipeline of an update, which depends on the document alone.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Timestamp, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::update::{Context, Update};

use crate::expression::{bad_expression, refuse_chance};

#[derive(Debug)]
pub(super) struct Conversion {
    update: Update,
    /// As it was declared.
    pub stages: Value,
}

/// Pipelines know no moment, position or insertion.
const CONTEXT: Context = Context {
    position: None,
    inserting: false,
    now_millis: 0,
    timestamp: Timestamp { seconds: 0, increment: 0 },
};

impl Conversion {
    pub fn parse(place: &str, stages: RawArray<'_>) -> Result<Conversion> {
        if stages.is_empty() {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!("{place} has no stages: say what changes between the versions"),
            ));
        }
        refuse_chance(place, RawValue::Array(stages))?;
        let update = Update::parse(RawValue::Array(stages), None, false)
            .map_err(|error| bad_expression(place, error))?;
        let conversion = Conversion { update, stages: RawValue::Array(stages).to_value() };
        match conversion.touched() {
            Some(paths) if paths.iter().any(|path| &**path == "_id") => Err(Error::user(
                ErrorCode::PatternBadExpression,
                format!("{place} writes '_id', by which a document is the same in all versions"),
            )),
            _ => Ok(conversion),
        }
    }

    /// The document in the other version; its version field is not set yet.
    pub fn apply(&self, document: RawDocument<'_>) -> Result<Document> {
        Ok(self.update.apply(document, &CONTEXT)?.after.unwrap_or_else(|| document.to_document()))
    }

    /// The paths that it may change; none where that may be all but `_id`.
    pub fn touched(&self) -> Option<Vec<Box<str>>> {
        Some(self.update.touched_paths()?.iter().map(|path| path.as_str().into()).collect())
    }
}
