//! What a pattern asks for: effects as data, and the changes that they follow from.
//!
//! [`Kind::evaluate`](crate::Kind::evaluate) reads a change and answers with effects. It writes nothing and holds nothing.
//! Whoever asked interprets them: the engine's write path applies them in the transaction at hand, `explain` counts what
//! they would touch, a backfill applies those of a document that nobody changed. What a pattern has to read on the way it
//! asks of a [`Reader`], which belongs to the interpreter too.
//!
//! An effect on many documents is one effect. How they are found, and whether all of them are written at once, is for the
//! interpreter to decide.

use std::collections::HashMap;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, Result};

use crate::kind::{Nodes, Step};
use crate::rollup::{GroupState, Row};

/// A change of one document.
#[derive(Debug, Clone, Copy)]
pub struct Change<'c> {
    /// Which of the pattern's collections the document is in. Where both are the same, the change is evaluated twice.
    pub role: Role,
    /// None where the document is inserted.
    pub before: Option<RawDocument<'c>>,
    /// None where it is deleted.
    pub after: Option<RawDocument<'c>>,
    pub cause: Cause,
    /// Its place among its siblings in the pattern's tree is given, whatever its fields say.
    pub is_placed: bool,
}

/// One of a pattern's collections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one whose fields it maintains.
    Target,
    /// The one that it reads from.
    Source,
}

/// Why a document changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A user wrote it.
    User,
    /// A pattern wrote it.
    Pattern,
    /// Nobody wrote it: this pattern makes its fields anew, whatever is there.
    Refresh,
    /// Nobody wrote it: this pattern was paused and makes its fields anew. The document had them before the pause.
    Resume,
}

impl Cause {
    /// Whether a pattern makes its fields anew, and nobody wrote the document.
    pub fn is_refresh(self) -> bool {
        matches!(self, Cause::Refresh | Cause::Resume)
    }
}

impl Change<'_> {
    /// Whether a pattern gives the document its fields: a user wrote it, or it is new, or it is made anew. What other
    /// patterns write leaves them as they are.
    pub fn shapes_target(&self) -> bool {
        self.cause != Cause::Pattern || self.before.is_none()
    }
}

/// What a pattern reads besides the change. Everything is as the effects so far leave it, so that a pattern that reads
/// what another maintains sees what that one made of the same change.
pub trait Reader: Nodes {
    /// The source with this key: the value of the field that [`Kind::found_by`](crate::Kind::found_by) names.
    fn source(&mut self, key: RawValue<'_>) -> Result<Option<Document>>;

    /// What is pending for the documents that refer to a key.
    fn pending(&mut self, key: RawValue<'_>) -> Result<Option<Due>>;
}

/// One thing that a change means.
#[derive(Debug)]
pub enum Effect {
    /// The document itself becomes another. `replaced`: a user's values gave way.
    Becomes { document: Document, replaced: bool },
    /// The document itself shows the group with this key.
    ShowsGroup { key: Value, replaced: bool },
    /// Rows leave their groups, and others enter theirs. `newest`: those that enter come behind all that are there.
    Rows { out: Vec<Row>, into: Vec<Row>, newest: bool },
    /// The documents that refer to a key become what is due to them. `is_new`: there was no source with this key before.
    Holders { key: Value, due: Due, is_new: bool },
    /// The document takes another place in its tree, and with it others change that are above it, below it or beside it.
    Replants(Box<Step>),
    /// The change is refused if any document refers to this key.
    Restrict { key: Value },
    /// The change is refused.
    Refuse(Error),
}

/// What the documents with a key, or with a reference to it, are to become.
#[derive(Debug, Clone)]
pub enum Due {
    /// Their copies become this.
    Copy(Copied),
    /// They are deleted.
    Remove,
    /// They show the state of their group; none until somebody has read it.
    Group(Option<GroupState>),
}

/// What to write for the copy of one reference.
#[derive(Debug, Clone)]
pub enum Copied {
    /// What is there stays.
    Keep,
    To(Document),
    /// There is no such source.
    Null,
    Unset,
}

/// What is due by the bytes of its key ([`key_bytes`]).
pub type DueByKey = HashMap<Vec<u8>, Due>;

/// A document as it is seen through what is due to it.
#[derive(Debug)]
pub enum Sight {
    AsStored,
    Other(Document),
    /// It is to be deleted, so it is not there.
    Gone,
}

impl Sight {
    /// How a document is seen that a pattern may have made another of.
    pub fn of(made: Option<Document>) -> Sight {
        made.map_or(Sight::AsStored, Sight::Other)
    }
}

/// Bytes of a key, equal for equal keys.
pub fn key_bytes(key: RawValue<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    kilim_bson::encode_value(&mut bytes, key, false);
    bytes
}
