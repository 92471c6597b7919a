//! What a statement of a retryable write did, as a retry finds it.
//!
//! A retry may be another kind of statement, if a client reuses a number by mistake. mongod answers an insert or a delete
//! whatever the first statement was, and refuses an update or a findAndModify that does not fit. This does the same, with
//! mongod's codes.
//!
//! An entry of an earlier version of Kilim has no `kind`. It is taken for the kind that the retry is of.

use std::borrow::Cow;
use std::sync::LazyLock;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, Result};

use super::find_and_modify::{Modification, Modified};
use super::update::UpdateOutcome;
use crate::unit::Unit;

/// The code of an update whose number was used for another kind of write. It ends the command.
pub(super) const INCOMPATIBLE_UPDATE: i32 = 40_638;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Update,
    Delete,
}

/// One entry of a session's record.
pub(super) struct Done {
    kind: Option<Kind>,
    modified: bool,
    /// The document before or after. Only findAndModify stores it.
    value: Option<Document>,
    upserted: Option<Value>,
    counted: Option<u64>,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Insert => "i",
            Kind::Update => "u",
            Kind::Delete => "d",
        }
    }
}

/// What a statement answered, if this is its retry.
pub(super) fn answered(unit: &mut Unit<'_>, statement: i32) -> Option<Done> {
    unit.answered(statement).map(Done::decode)
}

/// Adds to an entry what kind of write it was.
pub(super) fn of_kind(kind: Kind, mut entry: Document) -> Document {
    entry.push("kind", kind.name());
    entry
}

/// The entry of an insert. It has no other fields, so that the entries of neighbouring statements are equal and are stored
/// once.
pub(super) fn inserted() -> Cow<'static, Document> {
    static INSERTED: LazyLock<Document> = LazyLock::new(|| of_kind(Kind::Insert, doc! {"n": 1}));
    Cow::Borrowed(&*INSERTED)
}

/// The entry of a delete.
pub(super) fn deleted() -> Cow<'static, Document> {
    static DELETED: LazyLock<Document> = LazyLock::new(|| of_kind(Kind::Delete, doc! {"n": 1i64}));
    Cow::Borrowed(&*DELETED)
}

impl Done {
    pub fn decode(entry: &Document) -> Done {
        let number = |name| match entry.get(name) {
            Some(RawValue::Int64(value)) => Some(value as u64),
            _ => None,
        };
        let kind = [Kind::Insert, Kind::Update, Kind::Delete]
            .into_iter()
            .find(|kind| entry.get("kind").and_then(RawValue::as_str) == Some(kind.name()));
        Done {
            kind,
            modified: number("nModified").is_none_or(|count| count > 0),
            value: entry.get("value").and_then(RawValue::as_document).map(RawDocument::to_document),
            upserted: entry.get("upserted").map(RawValue::to_value),
            counted: number("n"),
        }
    }

    /// The answer of an update that was done already.
    pub fn as_update(&self) -> Result<UpdateOutcome> {
        match (&self.upserted, self.kind) {
            (Some(id), _) => Ok(UpdateOutcome { upserted: Some(id.clone()), ..UpdateOutcome::default() }),
            (None, Some(Kind::Update) | None) => Ok(UpdateOutcome {
                matched: 1,
                modified: u64::from(self.modified),
                ..UpdateOutcome::default()
            }),
            (None, Some(kind)) => Err(Error::location(
                INCOMPATIBLE_UPDATE,
                format!(
                    "update retry request is not compatible with previous write in the transaction of type: {}",
                    kind.name()
                ),
            )),
        }
    }

    /// The answer of a delete that was done already.
    pub fn as_delete(&self) -> u64 {
        match self.kind {
            None => self.counted.unwrap_or(1),
            Some(_) => 1,
        }
    }

    /// The answer of a findAndModify that was done already.
    pub fn as_find_and_modify(&self, modification: Modification, upsert: bool) -> Result<Modified> {
        let refuse =
            |code, why: &str| Err(Error::location(code, format!("findAndModify retry request {why}")));
        let unfitting = "is not compatible with previous write in the transaction";
        let removes = modification == Modification::Remove;
        if let Some(id) = &self.upserted {
            return match upsert {
                true => Ok(Modified {
                    value: self.value.clone(),
                    upserted: Some(id.clone()),
                    ..Modified::default()
                }),
                false => refuse(40_608, unfitting),
            };
        }
        let found = |value: &Document| Modified {
            value: Some(value.clone()),
            matched: true,
            removes: self.kind.map_or(removes, |kind| kind == Kind::Delete),
            ..Modified::default()
        };
        match (self.kind, &self.value) {
            (Some(Kind::Insert), _) => refuse(40_608, unfitting),
            (Some(Kind::Delete), _) if !removes => refuse(40_606, unfitting),
            (_, Some(value)) => Ok(found(value)),
            (Some(Kind::Delete), None) => refuse(40_607, "finds no pre-image"),
            (Some(Kind::Update) | None, None) => match modification {
                Modification::Update { new: true } => refuse(
                    40_611,
                    "wants the document after update returned, but only before update document is stored",
                ),
                _ => refuse(
                    40_612,
                    "wants the document before update returned, but only after update document is stored",
                ),
            },
        }
    }
}
