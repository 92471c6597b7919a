//! What a retryable write has done, remembered so that its retry is answered and not repeated.

use std::borrow::Cow;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, Result, StorageError};
use kilim_storage::{Space, Transaction};

use super::{Progress, SessionId, State};
use crate::layout;
use crate::operation::User;

/// A retryable write in progress.
#[derive(Debug, Clone)]
pub struct Retry {
    pub id: SessionId,
    pub number: i64,
    pub statements: Statements,
}

/// Which statements are done and what they answered. Neighbours with one answer share an entry, so a
/// batch of a thousand inserts is remembered in one.
#[derive(Debug, Clone, Default)]
pub struct Statements(Vec<Done>);

#[derive(Debug, Clone)]
struct Done {
    first: i32,
    last: i32,
    result: Document,
}

impl Statements {
    pub fn result_of(&self, statement: i32) -> Option<&Document> {
        let done = self.0.iter().find(|done| (done.first..=done.last).contains(&statement))?;
        Some(&done.result)
    }

    fn push(&mut self, statement: i32, result: Cow<'_, Document>) {
        if let Some(done) = self.0.last_mut()
            && done.last + 1 == statement
            && done.result == *result
        {
            done.last = statement;
            return;
        }
        self.0.push(Done { first: statement, last: statement, result: result.into_owned() });
    }
}

impl Retry {
    pub fn result_of(&self, statement: i32) -> Option<&Document> {
        self.statements.result_of(statement)
    }

    /// Remembers a statement's answer.
    pub fn record(&mut self, statement: i32, result: Cow<'_, Document>) {
        self.statements.push(statement, result);
    }

    /// Writes what is remembered, in the transaction that makes it true. Once a batch, for the record grows
    /// with the statements. The user is the session's owner.
    pub fn save(&self, transaction: &mut Transaction, user: Option<&Arc<User>>) {
        let record = self.encode(user).into_bytes();
        transaction.put(Space::Meta, layout::session_key(self.id).to_vec(), record);
    }

    fn encode(&self, user: Option<&Arc<User>>) -> Document {
        let statements: Vec<Document> = self
            .statements
            .0
            .iter()
            .map(|done| doc! {"first": done.first, "last": done.last, "result": done.result.clone()})
            .collect();
        owned_by(user, doc! {"number": self.number, "statements": statements})
    }
}

/// The record of a committed transaction: a second commitTransaction answers the same.
pub(crate) fn encode_committed(number: i64, user: Option<&Arc<User>>) -> Document {
    owned_by(user, doc! {"number": number, "committed": true})
}

/// A session's record with its owner, if there is one: after a restart it is nobody else's either.
fn owned_by(user: Option<&Arc<User>>, mut record: Document) -> Document {
    if let Some(user) = user {
        record.push("owner", doc! {"user": &*user.name, "db": &*user.db});
    }
    record
}

/// A session's state and its owner as its record tells them.
pub(super) fn decode_state(record: &[u8]) -> Result<(State, Option<Arc<User>>)> {
    decode(record)
        .ok_or_else(|| Error::Storage(StorageError::Corrupt("a session record is unreadable".to_owned())))
}

fn decode(record: &[u8]) -> Option<(State, Option<Arc<User>>)> {
    let document = RawDocument::parse(record).ok()?;
    let owner = match document.get("owner") {
        None => None,
        Some(owner) => {
            let text = |field| Some(owner.as_document()?.get(field)?.as_str()?.to_owned());
            Some(Arc::new(User { name: text("user")?, db: text("db")? }))
        }
    };
    Some((decode_progress(document)?, owner))
}

fn decode_progress(document: RawDocument<'_>) -> Option<State> {
    let RawValue::Int64(number) = document.get("number")? else { return None };
    if document.get("committed").is_some() {
        return Some(State { number: Some(number), progress: Progress::Committed(0) });
    }
    let mut statements = Vec::new();
    for entry in document.get("statements")?.as_array()?.iter() {
        let entry = entry.as_document()?;
        let (RawValue::Int32(first), RawValue::Int32(last)) = (entry.get("first")?, entry.get("last")?)
        else {
            return None;
        };
        let result = entry.get("result")?.as_document()?.to_document();
        statements.push(Done { first, last, result });
    }
    Some(State { number: Some(number), progress: Progress::Retryable(Statements(statements)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_one_answer_share_an_entry_and_survive_the_disk() {
        let mut retry = Retry { id: SessionId([7; 16]), number: 3, statements: Statements::default() };
        for statement in 0..1000 {
            retry.statements.push(statement, Cow::Owned(doc! {"n": 1}));
        }
        retry.statements.push(1000, Cow::Owned(doc! {"n": 0}));
        assert_eq!(retry.statements.0.len(), 2);

        let owner = Arc::new(User { name: "ann".to_owned(), db: "shop".to_owned() });
        let (state, owned) = decode_state(retry.encode(Some(&owner)).as_bytes()).unwrap();
        assert_eq!(owned, Some(owner));
        assert_eq!(decode_state(retry.encode(None).as_bytes()).unwrap().1, None);
        let Progress::Retryable(statements) = state.progress else { panic!("it is a retryable write") };
        assert_eq!(statements.result_of(999), Some(&doc! {"n": 1}));
        assert_eq!(statements.result_of(1000), Some(&doc! {"n": 0}));
        assert_eq!(statements.result_of(1001), None);
    }
}
