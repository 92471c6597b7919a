//! Rules: what a pattern asks of the documents that users write.
//!
//! A kind that maintains nothing may still forbid. The write path asks [`Rules::judge`] about every document that a user
//! writes, whatever command it comes by, and verification asks [`Rules::breach`] about those that are there.

use kilim_bson::{Document, RawDocument};
use kilim_error::Result;

/// What a pattern asks of documents.
pub trait Rules {
    /// What becomes of a user's change.
    fn judge(&self, before: Option<RawDocument<'_>>, after: RawDocument<'_>) -> Result<Judgement>;

    /// What a document breaks as it stands, whoever wrote it.
    fn breach(&self, document: RawDocument<'_>) -> Result<Option<Breach>>;
}

/// What becomes of a user's change.
#[derive(Debug)]
pub enum Judgement {
    Passes,
    /// It is written all the same, and the log tells of it.
    Warns(Breach),
    Refuses(Breach),
}

/// A rule that a document breaks.
#[derive(Debug, Clone)]
pub struct Breach {
    /// What the document is taken for; none where that is not known.
    pub variant: Option<Box<str>>,
    /// Where it breaks the rule.
    pub path: Box<str>,
    /// The rule's name: `required`, `bsonType`, `discriminator`.
    pub rule: Box<str>,
    /// The rule as it was written, where it was.
    pub expected: Option<Document>,
    /// What happened, for people.
    pub message: String,
    /// What MongoDB's `errInfo.details` say of a validator with the same rules.
    pub details: Document,
    /// What MongoDB's `errInfo.note` says.
    pub note: Option<&'static str>,
}
