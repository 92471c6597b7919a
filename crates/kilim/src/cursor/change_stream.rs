//! Changes, as an iterator.

use std::marker::PhantomData;

use kilim_bson::RawDocument;
use serde::de::DeserializeOwned;

use super::Batches;
use crate::Result;

/// Changes of a collection, of a database, or of all databases of a directory, in the order of their commits.
///
/// As an iterator it waits for the next change, and ends when the stream does: its collection or database was dropped or
/// renamed, which the last event, an `invalidate`, says. A program that is to go on later keeps
/// [`ChangeStream::resume_token`] and gives it to [`Watch::resume_after`](crate::action::Watch::resume_after).
#[derive(Debug)]
pub struct ChangeStream<T> {
    batches: Batches,
    /// The token of the last event that was given.
    last: Option<bson::Document>,
    kind: PhantomData<fn() -> T>,
}

impl<T> ChangeStream<T> {
    pub(crate) fn new(batches: Batches) -> ChangeStream<T> {
        ChangeStream { batches, last: None, kind: PhantomData }
    }

    /// Where a stream goes on that has seen what this one has given. It moves on with changes that concern others, too.
    pub fn resume_token(&self) -> Option<bson::Document> {
        let behind = self.batches.token_behind_batch().and_then(to_document);
        behind.or_else(|| self.last.clone())
    }

    /// Whether more can come.
    pub fn is_alive(&self) -> bool {
        self.batches.is_open()
    }
}

impl<T: DeserializeOwned> ChangeStream<T> {
    /// The next change, if there is one within the time of
    /// [`Watch::max_await_time`](crate::action::Watch::max_await_time).
    pub fn next_if_any(&mut self) -> Result<Option<T>> {
        if self.batches.is_empty() && self.batches.is_open() {
            self.batches.ask_more()?;
        }
        match self.batches.is_empty() {
            true => Ok(None),
            false => self.next().transpose(),
        }
    }
}

impl<T: DeserializeOwned> Iterator for ChangeStream<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let bytes = match self.batches.next()? {
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        let token = RawDocument::parse(bytes).ok().and_then(|event| event.get("_id")?.as_document());
        self.last = token.and_then(to_document).or(self.last.take());
        Some(bson::deserialize_from_slice(bytes).map_err(Into::into))
    }
}

fn to_document(token: RawDocument<'_>) -> Option<bson::Document> {
    bson::deserialize_from_slice(token.as_bytes()).ok()
}
