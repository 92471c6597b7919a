//! Validation: what a collection's `validator` asks of the documents written to it.
//!
//! The door asks once for every document that a user writes, after same-document patterns have shaped it. Further
//! writes that patterns cause are not asked for: they keep declared data true, whatever a validator says.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::validator::{Explanation, Now, Validator, no_encryption_here};

use crate::catalog::{Collection, default_collation};
use crate::engine::Engine;
use crate::write::Unit;

#[derive(Debug)]
pub struct Validation {
    validator: Validator,
    level: Level,
    action: Action,
}

/// `validationLevel`: which documents are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Off,
    Strict,
    /// Not those that were invalid before.
    Moderate,
}

/// `validationAction`: what becomes of those that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Error,
    Warn,
}

impl Validation {
    /// What a collection's options ask for; nothing where they have no validator.
    pub fn of(options: RawDocument<'_>) -> Result<Option<Arc<Validation>>> {
        let Some(RawValue::Document(written)) = options.get("validator") else { return Ok(None) };
        let validator = Validator::parse(written, &default_collation(options)?)?;
        let level = match options.get("validationLevel") {
            Some(RawValue::String("off")) => Level::Off,
            Some(RawValue::String("moderate")) => Level::Moderate,
            _ => Level::Strict,
        };
        let action = match options.get("validationAction") {
            Some(RawValue::String("warn")) => Action::Warn,
            _ => Action::Error,
        };
        // What a client was to encrypt would be stored in the clear.
        if (level == Level::Moderate || action == Action::Warn) && validator.mentions_encryption() {
            return Err(no_encryption_here());
        }
        Ok(Some(Arc::new(Validation { validator, level, action })))
    }

    /// Whether nothing is asked of documents.
    pub fn is_off(&self) -> bool {
        self.level == Level::Off
    }

    /// Whether documents that fail are told of, not refused.
    pub fn warns(&self) -> bool {
        self.action == Action::Warn
    }

    /// Whether a stored document would pass now, whatever level and action say.
    pub fn complies(&self, engine: &Engine, document: RawDocument<'_>) -> Result<bool> {
        self.validator.passes(document, || now(engine))
    }
}

/// Refuses a document that a collection's validator does not let pass, or tells the log of it.
pub(crate) fn check_valid(
    unit: &Unit<'_>,
    collection: &Collection,
    before: Option<RawDocument<'_>>,
    after: RawDocument<'_>,
) -> Result<()> {
    let Some(validation) = &collection.validation else { return Ok(()) };
    let engine = unit.engine;
    if unit.bypass_validation || validation.level == Level::Off || validation.complies(engine, after)? {
        return Ok(());
    }
    if validation.level == Level::Moderate
        && let Some(before) = before
        && !validation.complies(engine, before)?
    {
        return Ok(());
    }
    let explanation = validation.validator.explain(after, now(engine));
    if validation.action == Action::Warn {
        let rule = explanation.details.get("operatorName").and_then(RawValue::as_str).unwrap_or_default();
        tracing::warn!(namespace = %collection.namespace, rule, "Document would fail validation");
        return Ok(());
    }
    Err(failure(after, explanation))
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

fn now(engine: &Engine) -> Now {
    Now { millis: engine.now_millis(), cluster_time: Timestamp::from_bits(engine.store.now()) }
}
