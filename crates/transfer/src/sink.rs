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
    /// With the lines that they come from, where they come from lines.
    waiting: Vec<(Document, Option<u64>)>,
    bytes: usize,
    pub written: u64,
    /// Documents that were to be deleted and were not there.
    pub missing: u64,
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
        Sink {
            client,
            database,
            collection,
            write,
            ordered,
            bypass: false,
            waiting: Vec::new(),
            bytes: 0,
            written: 0,
            missing: 0,
            refused: Refused::default(),
        }
    }

    /// Documents are written whatever the collection's validator says of them.
    pub fn past_validators(mut self) -> Sink<'s> {
        self.bypass = true;
        self
    }

    /// Takes a document. A line that is given is named where the document is refused.
    pub fn push(&mut self, document: Document, line: Option<u64>) -> Result<()> {
        self.bytes += document.as_bytes().len();
        self.waiting.push((document, line));
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
        let (mut statements, mut lines) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        let mut unusable = None;
        for (document, line) in batch {
            match self.statement(document) {
                Ok(statement) => {
                    statements.push(statement);
                    lines.push(line);
                }
                // What stands in front of it is written first.
                Err(error) if self.ordered => {
                    unusable = Some(at(line, &error.to_string()));
                    break;
                }
                Err(error) => self.refused.add(at(line, &error.to_string())),
            }
        }
        if !statements.is_empty() {
            self.send(command, sequence, &statements, &lines)?;
        }
        match unusable {
            Some(message) => bail!("{message}. {} documents were written before it", self.written),
            None => Ok(()),
        }
    }

    fn send(
        &mut self,
        command: &str,
        sequence: &str,
        statements: &[Document],
        lines: &[Option<u64>],
    ) -> Result<()> {
        let mut body = Document::new();
        body.push(command, self.collection);
        body.push("ordered", self.ordered);
        if self.bypass {
            body.push("bypassDocumentValidation", true);
        }
        let raw = statements.iter().map(Document::as_raw).collect();
        let reply = self.client.reply_to_many(self.database, body.as_raw(), sequence, raw)?;
        self.count(&reply, lines)
    }

    fn statement(&self, document: Document) -> Result<Document> {
        Ok(match &self.write {
            Write::Insert => document,
            Write::Update { fields, how } => {
                let key = key(document.as_raw(), fields)?;
                let update = match how {
                    Update::Replace => document,
                    Update::Merge => merge(document.as_raw(), fields),
                };
                doc! {"q": key, "u": update, "upsert": true}
            }
            Write::Delete { fields } => doc! {"q": key(document.as_raw(), fields)?, "limit": 1},
        })
    }

    fn count(&mut self, reply: &Document, lines: &[Option<u64>]) -> Result<()> {
        let written = written_of(reply);
        let Some(errors) = reply.get("writeErrors").and_then(RawValue::as_array) else {
            check_reply(reply.as_raw())?;
            self.written += written;
            if let Write::Delete { .. } = self.write {
                self.missing += (lines.len() as u64).saturating_sub(written);
            }
            return Ok(());
        };
        self.written += written;
        let mut count = 0;
        for error in errors.iter().filter_map(RawValue::as_document) {
            let message = error.get("errmsg").and_then(RawValue::as_str).unwrap_or("refused");
            let index = kilim_client::whole(error.get("index")).and_then(|index| usize::try_from(index).ok());
            let message = at(index.and_then(|index| lines.get(index).copied().flatten()), message);
            if self.ordered {
                bail!("{message}. {} documents were written before it", self.written);
            }
            self.refused.add(message);
            count += 1;
        }
        if let Write::Delete { .. } = self.write {
            self.missing += (lines.len() as u64).saturating_sub(written + count);
        }
        Ok(())
    }
}

/// A message with the line that it is about.
fn at(line: Option<u64>, message: &str) -> String {
    match line {
        Some(line) => format!("line {line}: {message}"),
        None => message.to_owned(),
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

/// Sets the given fields. An `_id` is for a document that is made; one that is there has its own, and keeps it.
fn merge(document: RawDocument<'_>, found_by: &[String]) -> Document {
    let rest = document.iter().filter(|(name, _)| *name != "_id");
    let rest: Document = rest.map(|(name, value)| (name, value.to_value())).collect();
    let mut update = doc! {"$set": rest};
    if let Some(id) = document.get("_id")
        && !found_by.iter().any(|field| field == "_id")
    {
        update.push("$setOnInsert", doc! {"_id": id.to_value()});
    }
    update
}
