//! Validation: a collection's validator is asked about every document that a statement writes, after patterns have
//! given it its fields, and so are the rules of patterns. A document passes with what patterns maintain in it or without.
//! Neither is asked about changes that a pattern causes: maintenance must not fail.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Breach, Judgement};
use kilim_query::validator::Explanation;

use crate::catalog::Verdict;
use crate::change::{Cause, Change};
use crate::patterns::{Pattern, bare_of};
use crate::unit::Unit;

/// Refuses a document that does not pass its collection's validator, or logs it (`validationAction: "warn"`).
pub(crate) fn check_valid(unit: &Unit<'_>, change: &Change<'_>) -> Result<()> {
    let Some(after) = change.after else { return Ok(()) };
    let Some(validation) = change.collection.validation()? else { return Ok(()) };
    if unit.bypass_validation || matches!(change.cause, Cause::Pattern(_)) {
        return Ok(());
    }
    let verdict = validation.verdict(change.stored_before(), after, || unit.engine.now())?;
    if !matches!(verdict, Verdict::Passes)
        && let Some(bare) = unit.engine.patterns().without_maintained(&change.collection.namespace, after)?
    {
        let bare = validation.verdict(change.stored_before(), bare.as_raw(), || unit.engine.now())?;
        if matches!(bare, Verdict::Passes) {
            return Ok(());
        }
    }
    match verdict {
        Verdict::Passes => Ok(()),
        Verdict::Warns(explanation) => {
            let rule = explanation.details.get("operatorName").and_then(RawValue::as_str).unwrap_or_default();
            tracing::warn!(namespace = %change.collection.namespace, rule, "Document would fail validation");
            Ok(())
        }
        Verdict::Fails(explanation) => Err(failure(after, explanation)),
    }
}

/// Refuses a document that breaks the rules of a pattern, or logs it (`validationAction: "warn"`).
/// `bypassDocumentValidation` does not bypass these.
pub(crate) fn check_rules(patterns: &[Arc<Pattern>], change: &Change<'_>) -> Result<()> {
    let namespace = &change.collection.namespace;
    let Some(after) = change.after else { return Ok(()) };
    if matches!(change.cause, Cause::Pattern(_) | Cause::Job) {
        return Ok(());
    }
    let own = |pattern: &&Arc<Pattern>| pattern.target == *namespace && pattern.is_maintained();
    for pattern in patterns.iter().filter(own) {
        let Some(rules) = pattern.kind().rules() else { continue };
        let before = change.stored_before();
        let judgement = rules.judge(before, after)?;
        if matches!(judgement, Judgement::Passes) {
            continue;
        }
        // What other patterns maintain in it does not count against the user.
        if let Some(bare) = bare_of(patterns, namespace, after)? {
            let before = match before {
                Some(before) => {
                    Some(bare_of(patterns, namespace, before)?.unwrap_or_else(|| before.to_document()))
                }
                None => None,
            };
            let before = before.as_ref().map(Document::as_raw);
            if matches!(rules.judge(before, bare.as_raw())?, Judgement::Passes) {
                continue;
            }
        }
        match judgement {
            Judgement::Passes => {}
            Judgement::Warns(breach) => {
                tracing::warn!(
                    %namespace,
                    pattern = &*pattern.declaration.name,
                    rule = &*breach.rule,
                    "Document would break the rules of a pattern"
                );
            }
            Judgement::Refuses(breach) => return Err(refusal(pattern, after, breach)),
        }
    }
    Ok(())
}

/// The error of a broken rule: what MongoDB says of a validator with the same rules, then whose rule it is.
fn refusal(pattern: &Pattern, document: RawDocument<'_>, breach: Breach) -> Error {
    let mut info = report(document, breach.details, breach.note);
    info.push("pattern", &*pattern.declaration.name);
    if let Some(variant) = &breach.variant {
        info.push("variant", &**variant);
    }
    info.push("path", &*breach.path);
    info.push("rule", &*breach.rule);
    info.push("ns", pattern.target.to_string());
    let message = format!(
        "Document failed validation by {} '{}' of {}: {}",
        pattern.declaration.kind_name, pattern.declaration.name, pattern.target, breach.message
    );
    let error = Error::user(ErrorCode::VariantValidationFailed, message);
    error.with_details(doc! {"errInfo": info}.into_bytes())
}

/// A larger report is given without the values and conditions in it, so that it fits into a reply.
const REPORT_BYTES_MAX: usize = 12 * 1024 * 1024;

/// `errInfo`: which document failed, and why.
fn report(document: RawDocument<'_>, details: Document, note: Option<&'static str>) -> Document {
    let id = document.get("_id").map(RawValue::to_value);
    let mut info = Document::new();
    if let Some(id) = id {
        info.push("failingDocumentId", id);
    }
    if let Some(note) = note {
        info.push("note", note);
    }
    if details.as_bytes().len() > REPORT_BYTES_MAX {
        info.push("truncated", true);
        info.push("details", shortened(details.as_raw()));
    } else {
        info.push("details", details);
    }
    info
}

fn failure(document: RawDocument<'_>, explanation: Explanation) -> Error {
    let info = report(document, explanation.details, explanation.note);
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
