//! Documents on their way into a collection, in batches.

use anyhow::{Result, bail};
use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_client::{Client, check_reply};

/// Small enough that a batch is written while the next is read, large enough that its own cost is small.
const BATCH_DOCUMENTS: usize = 1000;
const BATCH_BYTES: usize = 8 << 20;
/// So many of the refused are shown.
const SHOWN: usize = 5;

/// Writes that a server refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    pub count: u64,
    /// What it said of the first of them.
    pub messages: Vec<String>,
}

impl Refused {
    pub(crate) fn add(&mut self, message: impl Into<String>) {
        self.count += 1;
        if self.messages.len() < SHOWN {
            self.messages.push(message.into());
        }
    }

    pub(crate) fn append(&mut self, mut other: Refused) {
        self.count += other.count;
        other.messages.truncate(SHOWN.saturating_sub(self.messages.len()));
        self.messages.append(&mut other.messages);
    }
}

/// What is made of each document.
pub(crate) enum Write<'w> {
    Insert,
    /// An update of the document with the same values in these fields.
    Update {
        fields: &'w [String],
        how: Update,
    },
    /// A delete of the document with the same values in these fields.
    Delete {
        fields: &'w [String],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    Replace,
    Merge,
}

/// Gathers documents and writes them.
pub(crate) struct Sink<'s> {
    client: &'s mut Client,
    database: &'s str,
    collection: &'s str,
    write: Write<'s>,
    /// Ends at the first that is refused.
    ordered: bool,
    /// What a validator says does not count.
    bypass: bool,
    waiting: Vec<Document>,
    bytes: usize,
    pub written: u64,
    pub refused: Refused,
}

impl<'s> Sink<'s> {
    pub fn new(
        client: &'s mut Client,
        database: &'s str,
        collection: &'s str,
        write: Write<'s>,
        ordered: bool,
    ) -> Sink<'s> {
        let (waiting, bytes, written, refused) = (Vec::new(), 0, 0, Refused::default());
        let bypass = false;
        Sink { client, database, collection, write, ordered, bypass, waiting, bytes, written, refused }
    }

    /// Documents are written whatever the collection's validator says of them.
    pub fn past_validators(mut self) -> Sink<'s> {
        self.bypass = true;
        self
    }

    pub fn push(&mut self, document: Document) -> Result<()> {
        self.bytes += document.as_bytes().len();
        self.waiting.push(document);
        match self.waiting.len() >= BATCH_DOCUMENTS || self.bytes >= BATCH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    pub fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        let (command, sequence) = match self.write {
            Write::Insert => ("insert", "documents"),
            Write::Update { .. } => ("update", "updates"),
            Write::Delete { .. } => ("delete", "deletes"),
        };
        let mut statements = Vec::with_capacity(batch.len());
        for document in batch {
            match self.statement(document) {
                Ok(statement) => statements.push(statement),
                Err(error) if self.ordered => return Err(error),
                Err(error) => self.refused.add(error.to_string()),
            }
        }
        if statements.is_empty() {
            return Ok(());
        }
        let mut body = Document::new();
        body.push(command, self.collection);
        body.push("ordered", self.ordered);
        if self.bypass {
            body.push("bypassDocumentValidation", true);
        }
        let raw = statements.iter().map(Document::as_raw).collect();
        let reply = self.client.reply_to_many(self.database, body.as_raw(), sequence, raw)?;
        self.count(&reply, statements.len())
    }

    fn statement(&self, document: Document) -> Result<Document> {
        Ok(match &self.write {
            Write::Insert => document,
            Write::Update { fields, how } => {
                let key = key(document.as_raw(), fields)?;
                let update = match how {
                    Update::Replace => document,
                    Update::Merge => doc! {"$set": without_id(document.as_raw())},
                };
                doc! {"q": key, "u": update, "upsert": true}
            }
            Write::Delete { fields } => doc! {"q": key(document.as_raw(), fields)?, "limit": 1},
        })
    }

    fn count(&mut self, reply: &Document, sent: usize) -> Result<()> {
        let Some(errors) = reply.get("writeErrors").and_then(RawValue::as_array) else {
            check_reply(reply.as_raw())?;
            self.written += sent as u64;
            return Ok(());
        };
        for error in errors.iter().filter_map(RawValue::as_document) {
            let message = error.get("errmsg").and_then(RawValue::as_str).unwrap_or("refused");
            if self.ordered {
                bail!("{message}. {} documents were written before it", self.written + written_of(reply));
            }
            self.refused.add(message);
        }
        self.written += written_of(reply);
        Ok(())
    }
}

fn written_of(reply: &Document) -> u64 {
    kilim_client::whole(reply.get("n")).unwrap_or(0).max(0) as u64
}

/// The fields that tell a document from others.
fn key(document: RawDocument<'_>, fields: &[String]) -> Result<Document> {
    let mut key = Document::new();
    for field in fields {
        match field
            .split('.')
            .try_fold(RawValue::Document(document), |value, name| value.as_document()?.get(name))
        {
            Some(value) => key.push(field, value),
            None => bail!("a document has no '{field}', which it is to be found by"),
        }
    }
    Ok(key)
}

fn without_id(document: RawDocument<'_>) -> Document {
    document.iter().filter(|(name, _)| *name != "_id").map(|(name, value)| (name, value.to_value())).collect()
}
