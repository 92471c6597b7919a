//! What the change log says of a change: its record, made by the last step of the door and by schema changes.
//!
//! A record is bytes to the store, which gives it a position in its commit and puts the time of day into its first eight
//! bytes ([`kilim_storage::Transaction::log`]). Streams read records and make events of them (module `stream`).
//!
//! On disk: time of day in milliseconds u64 · kind u8 · the collection's UUID, 16 bytes, zeros if there is none · lengths of the
//! database's and the collection's name u16 · both names · parts, each a tag u8 and a document.

mod token;

use std::sync::Arc;

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Result, StorageError};
use kilim_query::update::describe_difference;
use kilim_storage::Transaction;

pub use token::{Named, Token, parse_token};

use crate::catalog::{Collection, View};
use crate::change::{Cause, Change, Form};
use crate::ids::SessionId;
use crate::namespace::Namespace;
use crate::patterns::Pattern;

/// What happened. The numbers are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Insert = 1,
    Update = 2,
    Replace = 3,
    Delete = 4,
    Drop = 5,
    Rename = 6,
    DropDatabase = 7,
    Create = 8,
    CreateIndexes = 9,
    DropIndexes = 10,
    Modify = 11,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Insert,
        Kind::Update,
        Kind::Replace,
        Kind::Delete,
        Kind::Drop,
        Kind::Rename,
        Kind::DropDatabase,
        Kind::Create,
        Kind::CreateIndexes,
        Kind::DropIndexes,
        Kind::Modify,
    ];

    /// What `operationType` says.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Insert => "insert",
            Kind::Update => "update",
            Kind::Replace => "replace",
            Kind::Delete => "delete",
            Kind::Drop => "drop",
            Kind::Rename => "rename",
            Kind::DropDatabase => "dropDatabase",
            Kind::Create => "create",
            Kind::CreateIndexes => "createIndexes",
            Kind::DropIndexes => "dropIndexes",
            Kind::Modify => "modify",
        }
    }

    /// Whether its event says in `operationDescription` what was done.
    fn is_described(self) -> bool {
        matches!(self, Kind::Create | Kind::CreateIndexes | Kind::DropIndexes | Kind::Modify)
    }
}

/// Tags of parts. On disk.
mod part {
    /// The document after an insert or a replacement.
    pub const DOCUMENT: u8 = 1;
    /// `{_id}`, where there is no document.
    pub const KEY: u8 = 2;
    /// What an update changed.
    pub const DESCRIPTION: u8 = 3;
    /// The document before the change, where the collection keeps images.
    pub const BEFORE: u8 = 4;
    /// The document after an update, where the collection keeps images.
    pub const AFTER: u8 = 5;
    /// `{txnNumber, lsid}` of a transaction.
    pub const SESSION: u8 = 6;
    /// `{pattern, patterns}`, if patterns changed the document: the first of them, and all.
    pub const MARK: u8 = 7;
    /// Of a schema change: `operationDescription`, `to`, `stateBeforeChange`.
    pub const DETAILS: u8 = 8;
    /// Of a view; the document is empty. Records of earlier versions know views by the UUID that they lack.
    pub const VIEW: u8 = 9;
}

/// The collection option that has images kept.
pub const IMAGES_OPTION: &str = "changeStreamPreAndPostImages";

/// Whether the collection keeps images of its documents in the log.
fn keeps_images(collection: &Collection) -> bool {
    let option = collection.options.get(IMAGES_OPTION).and_then(RawValue::as_document);
    option.and_then(|option| option.get("enabled")).and_then(RawValue::as_bool).unwrap_or(false)
}

/// Whether changes of a namespace are events: of internal ones they are not, as on MongoDB.
pub(crate) fn is_logged(namespace: &Namespace) -> bool {
    !matches!(&*namespace.database, "admin" | "config" | "local")
        && !namespace.collection.starts_with("system.")
}

struct Recorder(Vec<u8>);

impl Recorder {
    fn new(kind: Kind, uuid: [u8; 16], namespace: &Namespace, room: usize) -> Recorder {
        Recorder::into(Vec::new(), kind, uuid, namespace, room)
    }

    /// Takes a buffer that may have been used before.
    fn into(mut bytes: Vec<u8>, kind: Kind, uuid: [u8; 16], namespace: &Namespace, room: usize) -> Recorder {
        let (database, collection) = (namespace.database.as_bytes(), namespace.collection.as_bytes());
        bytes.clear();
        bytes.reserve(29 + database.len() + collection.len() + room);
        bytes.extend_from_slice(&[0; 8]);
        bytes.push(kind as u8);
        bytes.extend_from_slice(&uuid);
        bytes.extend_from_slice(&(database.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(collection.len() as u16).to_le_bytes());
        bytes.extend_from_slice(database);
        bytes.extend_from_slice(collection);
        Recorder(bytes)
    }

    fn part(&mut self, tag: u8, document: RawDocument<'_>) {
        self.0.push(tag);
        self.0.extend_from_slice(document.as_bytes());
    }
}

/// The record of a change: its bytes, up to a document that it ends with.
pub(crate) struct Told<'c> {
    pub head: Vec<u8>,
    /// The document after the change, which the record has as its last part.
    pub document: Option<RawDocument<'c>>,
}

/// The record of a change of a document, in a buffer that may have been used before; none if nothing changed.
pub(crate) fn of_change<'c>(
    change: &Change<'c>,
    session: Option<(SessionId, i64)>,
    buffer: Vec<u8>,
) -> Option<Told<'c>> {
    let collection = &**change.collection;
    let (before, after) = (change.stored_before(), change.after);
    let id = after.or(before)?.get("_id")?;
    let recorder = |kind, room| Recorder::into(buffer, kind, collection.uuid, &collection.namespace, room);
    let images = keeps_images(collection);
    let mut last = None;
    let mut record = match (before, after) {
        (None, Some(after)) => {
            last = Some((part::DOCUMENT, after));
            recorder(Kind::Insert, 1)
        }
        (Some(before), Some(after)) => {
            let computed;
            let seen_as_stored = change.before.is_none_or(|seen| seen.seen.as_bytes() == before.as_bytes());
            // NaN is never what it was, so a sum that stays NaN is a change, although no byte is another one.
            let is_said = match change.form {
                Form::Replacement => true,
                Form::Described(description) => seen_as_stored && says_something(description),
                Form::Smaller | Form::Difference => false,
            };
            if before.as_bytes() == after.as_bytes() && !is_said {
                return None;
            }
            let description = match change.form {
                Form::Replacement => None,
                Form::Described(description) if seen_as_stored => Some(description),
                Form::Smaller => {
                    computed = describe_difference(before, after, false);
                    computed.as_ref().map(Document::as_raw)
                }
                Form::Described(_) | Form::Difference => {
                    computed = describe_difference(before, after, true);
                    computed.as_ref().map(Document::as_raw)
                }
            };
            match description {
                None => {
                    last = Some((part::DOCUMENT, after));
                    recorder(Kind::Replace, 1)
                }
                Some(description) => {
                    let mut record = recorder(Kind::Update, description.as_bytes().len() + 64);
                    record.part(part::KEY, key(id).as_raw());
                    record.part(part::DESCRIPTION, description);
                    last = images.then_some((part::AFTER, after));
                    record
                }
            }
        }
        (Some(_), None) => {
            let mut record = recorder(Kind::Delete, 64);
            record.part(part::KEY, key(id).as_raw());
            record
        }
        (None, None) => return None,
    };
    if let Some(before) = before.filter(|_| images) {
        record.part(part::BEFORE, before);
    }
    if let Some((id, number)) = session {
        record.part(part::SESSION, session_part(id, number).as_raw());
    }
    if let Cause::Pattern([first, others @ ..]) = change.cause {
        let name = |pattern: &Arc<Pattern>| Value::String(pattern.declaration.name.to_string());
        let all: Array = std::iter::once(first).chain(others).map(name).collect();
        record.part(part::MARK, doc! {"pattern": name(first), "patterns": all}.as_raw());
    }
    record.0.extend(last.map(|(tag, _)| tag));
    Some(Told { head: record.0, document: last.map(|(_, document)| document) })
}

/// Whether a description names a change.
fn says_something(description: RawDocument<'_>) -> bool {
    description.iter().any(|(_, value)| match value {
        RawValue::Document(fields) => !fields.is_empty(),
        RawValue::Array(elements) => !elements.is_empty(),
        _ => false,
    })
}

/// The record of the insert of a document as it is stored, where no change is made.
pub(crate) fn of_copied(collection: &Collection, document: RawDocument<'_>) -> Vec<u8> {
    let room = document.as_bytes().len() + 1;
    let mut record = Recorder::new(Kind::Insert, collection.uuid, &collection.namespace, room);
    record.part(part::DOCUMENT, document);
    record.0
}

fn key(id: RawValue<'_>) -> Document {
    let mut key = Document::new();
    key.push("_id", id);
    key
}

/// As mongod shows a transaction of nobody in particular: `uid` is the hash of no name.
fn session_part(id: SessionId, number: i64) -> Document {
    const NOBODY: [u8; 32] = [
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
        0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
    ];
    let binary = |subtype, bytes: &[u8]| kilim_bson::Value::Binary { subtype, bytes: bytes.into() };
    let mut lsid = Document::new();
    lsid.push("id", binary(4, &id.0));
    lsid.push("uid", binary(0, &NOBODY));
    doc! {"txnNumber": number, "lsid": lsid}
}

/// A change of the schema, as the log tells of it.
pub(crate) struct SchemaChange<'c> {
    pub kind: Kind,
    /// The collection's, or for a view that of `system.views`. Databases have none.
    pub uuid: Option<[u8; 16]>,
    pub namespace: &'c Namespace,
    /// The fields that its event has of its own.
    pub details: Document,
    /// The transaction that it belongs to.
    pub session: Option<(SessionId, i64)>,
    pub is_of_view: bool,
}

impl<'c> SchemaChange<'c> {
    pub(crate) fn of(collection: &'c Collection, kind: Kind, details: Document) -> SchemaChange<'c> {
        let (uuid, namespace) = (Some(collection.uuid), &collection.namespace);
        SchemaChange { kind, uuid, namespace, details, session: None, is_of_view: false }
    }

    pub(crate) fn of_view(view: &'c View, kind: Kind, details: Document) -> SchemaChange<'c> {
        let (uuid, namespace) = (view.uuid, &view.namespace);
        SchemaChange { kind, uuid, namespace, details, session: None, is_of_view: true }
    }

    /// Of a database, which is a namespace without a collection.
    pub(crate) fn of_database(namespace: &'c Namespace, kind: Kind) -> SchemaChange<'c> {
        let details = Document::new();
        SchemaChange { kind, uuid: None, namespace, details, session: None, is_of_view: false }
    }

    /// Adds its record to its commit.
    pub(crate) fn log(&self, transaction: &mut Transaction) {
        if is_logged(self.namespace) {
            transaction.log(self.record());
        }
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        let room = self.details.as_bytes().len() + 1;
        let mut record = Recorder::new(self.kind, self.uuid.unwrap_or_default(), self.namespace, room);
        if !self.details.is_empty() {
            record.part(part::DETAILS, self.details.as_raw());
        }
        if let Some((id, number)) = self.session {
            record.part(part::SESSION, session_part(id, number).as_raw());
        }
        if self.is_of_view {
            record.part(part::VIEW, RawDocument::empty());
        }
        record.0
    }
}

/// A record as it is read.
#[derive(Clone, Copy)]
pub struct Record<'r> {
    /// The time of day in milliseconds since 1970.
    pub wall_millis: i64,
    pub kind: Kind,
    pub uuid: Option<[u8; 16]>,
    pub database: &'r str,
    pub collection: &'r str,
    parts: &'r [u8],
}

impl<'r> Record<'r> {
    pub fn decode(bytes: &'r [u8]) -> Result<Record<'r>> {
        Record::read(bytes).ok_or_else(|| {
            StorageError::Corrupt("a record of the change log is unreadable".to_owned()).into()
        })
    }

    fn read(bytes: &'r [u8]) -> Option<Record<'r>> {
        let (wall, rest) = bytes.split_first_chunk::<8>()?;
        let (kind, rest) = rest.split_first()?;
        let (uuid, rest) = rest.split_first_chunk::<16>()?;
        let (database, rest) = rest.split_first_chunk::<2>()?;
        let (collection, rest) = rest.split_first_chunk::<2>()?;
        let (database, rest) = rest.split_at_checked(u16::from_le_bytes(*database).into())?;
        let (collection, parts) = rest.split_at_checked(u16::from_le_bytes(*collection).into())?;
        Some(Record {
            wall_millis: i64::from_le_bytes(*wall),
            kind: *Kind::ALL.get(usize::from(*kind).checked_sub(1)?)?,
            uuid: (*uuid != [0; 16]).then_some(*uuid),
            database: std::str::from_utf8(database).ok()?,
            collection: std::str::from_utf8(collection).ok()?,
            parts,
        })
    }

    /// Whether it tells of a view. Streams of a collection never show it.
    pub fn is_of_view(&self) -> bool {
        !self.collection.is_empty() && (self.uuid.is_none() || self.part(part::VIEW).is_some())
    }

    /// Whether it is shown only with `showExpandedEvents`.
    pub fn is_expanded(&self) -> bool {
        self.kind.is_described() || self.is_of_view()
    }

    fn part(&self, tag: u8) -> Option<RawDocument<'r>> {
        let mut parts = self.parts;
        while let Some((found, rest)) = parts.split_first() {
            let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
            let (document, behind) = rest.split_at_checked(length)?;
            if *found == tag {
                // SAFETY: the record was made of validated documents, and its page or batch was checked when it was read.
                return Some(unsafe { RawDocument::from_validated(document) });
            }
            parts = behind;
        }
        None
    }

    /// The document after an insert or replacement.
    pub fn document(&self) -> Option<RawDocument<'r>> {
        self.part(part::DOCUMENT)
    }

    /// The `_id` of the document that changed.
    pub fn id(&self) -> Option<RawValue<'r>> {
        self.document().or_else(|| self.part(part::KEY))?.get("_id")
    }

    pub fn description(&self) -> Option<RawDocument<'r>> {
        self.part(part::DESCRIPTION)
    }

    /// Whether there was a document before the change, which a stream may show.
    pub fn has_pre_image(&self) -> bool {
        matches!(self.kind, Kind::Update | Kind::Replace | Kind::Delete)
    }

    pub fn before(&self) -> Option<RawDocument<'r>> {
        self.part(part::BEFORE)
    }

    pub fn after(&self) -> Option<RawDocument<'r>> {
        self.part(part::AFTER)
    }

    pub fn session(&self) -> Option<RawDocument<'r>> {
        self.part(part::SESSION)
    }

    pub fn mark(&self) -> Option<RawDocument<'r>> {
        self.part(part::MARK)
    }

    pub fn details(&self) -> Option<RawDocument<'r>> {
        self.part(part::DETAILS)
    }

    /// The new name, if it is of a rename.
    pub(crate) fn renamed_to(&self) -> Option<Namespace> {
        let to = self.details()?.get("to")?.as_document()?;
        let (database, collection) = (to.get("db")?.as_str()?, to.get("coll")?.as_str()?);
        Some(Namespace { database: database.to_owned(), collection: collection.to_owned() })
    }
}
