//! What a collection's options ask of its documents: `validator`, `validationLevel` and `validationAction`.

use std::sync::{Arc, OnceLock};

use kilim_bson::{RawDocument, RawValue};
use kilim_error::Result;
use kilim_query::validator::{Explanation, Now, Validator, no_encryption_here};

use crate::index::collation_of;

#[derive(Debug)]
pub struct Validation {
    validator: Validator,
    level: Level,
    action: Action,
    /// What it asks where an array continues in pages, and another field has its size. Made when it is first wanted.
    counting: OnceLock<Counting>,
}

/// A validator that asks a field for the size of an array.
#[derive(Debug)]
struct Counting {
    array: Box<str>,
    count: Box<str>,
    validation: Arc<Validation>,
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
        let validator = Validator::parse(written, &collation_of(options)?)?;
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
        Ok(Some(Arc::new(Validation { validator, level, action, counting: OnceLock::new() })))
    }

    /// Whether it names a field of the document itself otherwise than for its size.
    pub fn mentions_beyond_size(&self, field: &str) -> bool {
        self.validator.mentions_beyond_size(field)
    }

    /// What it asks of documents in which `count` has the size of `array`.
    pub fn counting(self: &Arc<Validation>, array: &str, count: &str) -> Result<Arc<Validation>> {
        let made = |counting: &Counting| *counting.array == *array && *counting.count == *count;
        if let Some(known) = self.counting.get().filter(|known| made(known)) {
            return Ok(known.validation.clone());
        }
        let validator = self.validator.with_size_from(array, count)?;
        let (level, action) = (self.level, self.action);
        let validation = Arc::new(Validation { validator, level, action, counting: OnceLock::new() });
        let counting = Counting { array: array.into(), count: count.into(), validation: validation.clone() };
        // Of two that are made at once, either will do.
        let _ = self.counting.set(counting);
        Ok(validation)
    }

    /// Whether nothing is asked of documents.
    pub fn is_off(&self) -> bool {
        self.level == Level::Off
    }

    /// Whether documents that fail are told of, not refused.
    pub fn warns(&self) -> bool {
        self.action == Action::Warn
    }

    /// Whether a document would pass now, whatever level and action say.
    pub fn complies(&self, document: RawDocument<'_>, now: impl FnOnce() -> Now) -> Result<bool> {
        self.validator.passes(document, now)
    }

    /// What becomes of a document that is written in place of another, or as a new one.
    pub fn verdict(
        &self,
        before: Option<RawDocument<'_>>,
        after: RawDocument<'_>,
        now: impl Fn() -> Now,
    ) -> Result<Verdict> {
        if self.level == Level::Off || self.complies(after, &now)? {
            return Ok(Verdict::Passes);
        }
        if self.level == Level::Moderate
            && let Some(before) = before
            && !self.complies(before, &now)?
        {
            return Ok(Verdict::Passes);
        }
        let explanation = self.validator.explain(after, now());
        Ok(match self.action {
            Action::Warn => Verdict::Warns(explanation),
            Action::Error => Verdict::Fails(explanation),
        })
    }
}

/// What validation says of a document.
pub enum Verdict {
    Passes,
    /// It fails, and is written all the same.
    Warns(Explanation),
    /// It fails, and is not written.
    Fails(Explanation),
}
