//! Whether a document may be written: a collection's validator is asked once for every document that a user writes,
//! after same-document patterns have shaped it. Further writes that patterns cause are not asked for: they keep declared
//! data true, whatever a validator says.

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::validator::Explanation;

use crate::catalog::{Collection, Verdict};
use crate::unit::Unit;

/// Refuses a document that a collection's validator does not let pass, or tells the log of it.
pub(crate) fn check_valid(
    unit: &Unit<'_>,
    collection: &Collection,
    before: Option<RawDocument<'_>>,
    after: RawDocument<'_>,
) -> Result<()> {
    let Some(validation) = &collection.validation else { return Ok(()) };
    if unit.bypass_validation {
        return Ok(());
    }
    match validation.verdict(before, after, || unit.engine.now())? {
        Verdict::Passes => Ok(()),
        Verdict::Warns(explanation) => {
            let rule = explanation.details.get("operatorName").and_then(RawValue::as_str).unwrap_or_default();
            tracing::warn!(namespace = %collection.namespace, rule, "Document would fail validation");
            Ok(())
        }
        Verdict::Fails(explanation) => Err(failure(after, explanation)),
    }
}

/// A larger report is told without the values and conditions in it, so that it fits into a reply.
const REPORT_BYTES_MAX: usize = 12 * 1024 * 1024;

fn failure(document: RawDocument<'_>, explanation: Explanation) -> Error {
    let id = document.get("_id").map(RawValue::to_value);
    let mut info = Document::new();
    if let Some(id) = id {
        info.push("failingDocumentId", id);
    }
    if let Some(note) = explanation.note {
        info.push("note", note);
    }
    if explanation.details.as_bytes().len() > REPORT_BYTES_MAX {
        info.push("truncated", true);
        info.push("details", shortened(explanation.details.as_raw()));
    } else {
        info.push("details", explanation.details);
    }
    let error = Error::user(ErrorCode::DocumentValidationFailure, "Document failed validation");
    match error {
        Error::User(mut user) => {
            user.details = Some(doc! {"errInfo": info}.into_bytes().into_boxed_slice());
            Error::User(user)
        }
        other => other,
    }
}

fn shortened(report: RawDocument<'_>) -> Document {
    const LEFT_OUT: [&str; 4] = ["specifiedAs", "consideredValue", "consideredValues", "duplicatedValue"];
    let kept = report.iter().filter(|(name, _)| !LEFT_OUT.contains(name));
    kept.map(|(name, value)| (name, shortened_value(value))).collect()
}

fn shortened_value(value: RawValue<'_>) -> Value {
    match value {
        RawValue::Document(document) => Value::Document(shortened(document)),
        RawValue::Array(array) => Value::Array(array.iter().map(shortened_value).collect()),
        other => other.to_value(),
    }
}
