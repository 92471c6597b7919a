//! Results, a batch at a time.

mod change_stream;

use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue};
use serde::de::DeserializeOwned;

use crate::Result;
use crate::command::Command;
use crate::database::Database;
use crate::options::CursorType;
use crate::session::Signature;

pub use change_stream::ChangeStream;

/// The documents that a query finds, in turn. A batch of them is in memory, never all.
#[derive(Debug)]
pub struct Cursor<T> {
    batches: Batches,
    kind: PhantomData<fn() -> T>,
}

impl<T> Cursor<T> {
    pub(crate) fn new(batches: Batches) -> Cursor<T> {
        Cursor { batches, kind: PhantomData }
    }
}

impl<T: DeserializeOwned> Iterator for Cursor<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let bytes = match self.batches.next()? {
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        Some(bson::deserialize_from_slice(bytes).map_err(Into::into))
    }
}

/// A cursor's batches, by their bytes.
#[derive(Debug)]
pub(crate) struct Batches {
    database: Database,
    /// What more is asked for by; 0 when there is no more.
    id: i64,
    collection: String,
    paging: Paging,
    reply: Document,
    /// Where documents lie in the reply, last first.
    places: Vec<Range<usize>>,
}

/// How a cursor goes on.
#[derive(Debug)]
pub(crate) struct Paging {
    pub batch_size: Option<u32>,
    pub kind: CursorType,
    /// How long a batch waits for the first document.
    pub max_await: Option<Duration>,
    /// The session and the transaction that it was opened in.
    pub signature: Option<Signature>,
}

impl Default for Paging {
    fn default() -> Paging {
        Paging { batch_size: None, kind: CursorType::NonTailable, max_await: None, signature: None }
    }
}

/// The first document of a reply with a cursor.
pub(crate) fn first_of(reply: &Document) -> Option<RawDocument<'_>> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document)?;
    cursor.get("firstBatch").and_then(RawValue::as_array)?.iter().next()?.as_document()
}

impl Batches {
    /// From a reply with a cursor.
    pub fn of(database: Database, reply: Document, paging: Paging) -> Batches {
        let mut batches = Batches {
            database,
            id: 0,
            collection: String::new(),
            paging,
            reply: Document::new(),
            places: Vec::new(),
        };
        batches.take(reply, "firstBatch");
        batches
    }

    fn take(&mut self, reply: Document, batch: &str) {
        self.reply = reply;
        self.places.clear();
        self.id = 0;
        let Some(cursor) = self.reply.get("cursor").and_then(RawValue::as_document) else { return };
        if let Some(RawValue::Int64(id)) = cursor.get("id") {
            self.id = id;
        }
        if self.id != 0
            && self.collection.is_empty()
            && let Some((_, collection)) =
                cursor.get("ns").and_then(RawValue::as_str).and_then(|ns| ns.split_once('.'))
        {
            self.collection = collection.to_owned();
        }
        let start = self.reply.as_bytes().as_ptr() as usize;
        let place = |document: RawDocument<'_>| {
            let bytes = document.as_bytes();
            let from = bytes.as_ptr() as usize - start;
            from..from + bytes.len()
        };
        let documents = cursor.get(batch).and_then(RawValue::as_array);
        let documents =
            documents.into_iter().flat_map(|batch| batch.iter().filter_map(RawValue::as_document));
        self.places.extend(documents.map(place));
        self.places.reverse();
    }

    /// The next document's bytes.
    pub fn next(&mut self) -> Option<Result<&[u8]>> {
        let mut asked = false;
        while self.places.is_empty() {
            let ended = self.id == 0 || (asked && self.paging.kind == CursorType::Tailable);
            if ended {
                return None;
            }
            asked = true;
            if let Err(error) = self.ask_more() {
                self.id = 0;
                return Some(Err(error));
            }
        }
        let place = self.places.pop()?;
        Some(Ok(&self.reply.as_bytes()[place]))
    }

    /// Whether nothing is left of the batch at hand.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether more can be asked for.
    pub fn is_open(&self) -> bool {
        self.id != 0
    }

    /// Of a change stream whose batch is used up: where it goes on.
    pub fn token_behind_batch(&self) -> Option<RawDocument<'_>> {
        let cursor = self.reply.get("cursor").and_then(RawValue::as_document).filter(|_| self.is_empty())?;
        cursor.get("postBatchResumeToken").and_then(RawValue::as_document)
    }

    /// Asks for the next batch, in place of the one at hand.
    pub fn ask_more(&mut self) -> Result<()> {
        let mut command = Command::new("getMore", self.id);
        command.set("collection", self.collection.as_str());
        if let Some(size) = self.paging.batch_size {
            command.set("batchSize", i64::from(size));
        }
        if let Some(time) = self.paging.max_await {
            command.set("maxTimeMS", i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        }
        if let Some(signature) = self.paging.signature {
            command.sign(signature);
        }
        let reply = self.database.run(command)?;
        self.take(reply, "nextBatch");
        Ok(())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        let mut command = Command::new("killCursors", self.collection.as_str());
        command.set("cursors", kilim_bson::Array::from_iter([kilim_bson::Value::from(self.id)]));
        // One that cannot be closed closes by itself, for being idle.
        let _ = self.database.run(command);
    }
}
