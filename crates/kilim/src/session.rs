//! Sessions: several statements in one transaction.

use kilim_bson::{Document, RawValue};

use crate::Result;
use crate::command::Command;
use crate::database::Database;

/// A session. Its transaction, if it is in one, is aborted when it is dropped.
#[derive(Debug)]
pub struct Session {
    database: Database,
    id: bson::Uuid,
    /// The number of its latest transaction.
    number: i64,
    state: State,
}

/// A session, and its transaction if it is in one, as commands carry them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    id: bson::Uuid,
    transaction: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    None,
    /// The first statement says so.
    Starting,
    Running,
}

impl Session {
    pub(crate) fn new(database: Database) -> Session {
        Session { database, id: bson::Uuid::new(), number: 0, state: State::None }
    }

    /// Begins a transaction; one that is open is aborted.
    pub fn start_transaction(&mut self) -> Result<()> {
        self.abort_transaction()?;
        self.number += 1;
        self.state = State::Starting;
        Ok(())
    }

    /// Makes what the transaction wrote durable and visible, all at once.
    pub fn commit_transaction(&mut self) -> Result<()> {
        self.end("commitTransaction")
    }

    /// Forgets what the transaction wrote.
    pub fn abort_transaction(&mut self) -> Result<()> {
        match self.end("abortTransaction") {
            // A statement that failed has aborted it already.
            Err(error) if error.code() == Some(NO_SUCH_TRANSACTION) => Ok(()),
            other => other,
        }
    }

    fn end(&mut self, how: &str) -> Result<()> {
        let state = std::mem::replace(&mut self.state, State::None);
        if state != State::Running {
            return Ok(());
        }
        let mut command = Command::new(how, 1);
        command.sign(Signature { id: self.id, transaction: Some(self.number) });
        command.run(&self.database.shared.engine, "admin").map(drop)
    }

    /// Puts the session into a command, and its transaction. What a cursor goes on with.
    fn sign(&mut self, command: &mut Command) -> Signature {
        let transaction = (self.state != State::None).then_some(self.number);
        let signature = Signature { id: self.id, transaction };
        command.sign(signature);
        if self.state == State::Starting {
            command.set("startTransaction", true);
            self.state = State::Running;
        }
        signature
    }
}

/// Puts a session, if there is one, into a command; what a cursor that it opens goes on with.
pub(crate) fn sign(session: Option<&mut Session>, command: &mut Command) -> Option<Signature> {
    Some(session?.sign(command))
}

impl Signature {
    /// The number of the transaction.
    pub fn transaction(&self) -> Option<i64> {
        self.transaction
    }

    pub fn logical_id(&self) -> Document {
        let bytes = self.id.bytes();
        let mut document = Document::new();
        document.push("id", RawValue::Binary { subtype: 4, bytes: &bytes });
        document
    }
}

const NO_SUCH_TRANSACTION: i32 = 251;

impl Drop for Session {
    fn drop(&mut self) {
        // Nobody is left to tell. What cannot be ended ends by its age.
        let _ = self.abort_transaction();
        let signature = Signature { id: self.id, transaction: None };
        let ids = kilim_bson::Array::from_iter([kilim_bson::Value::from(signature.logical_id())]);
        let _ = Command::new("endSessions", ids.as_raw()).run(&self.database.shared.engine, "admin");
    }
}
