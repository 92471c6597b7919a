//! Sessions: several statements in one transaction.

use kilim_bson::{Document, RawValue};

use crate::Result;
use crate::command::Command;
use crate::database::Database;

/// A session. Its transaction, if it is in one, is aborted when it is dropped.
#[derive(Debug)]
pub struct Session {
    database: Database,
    signature: Signature,
    state: State,
}

/// A session and the number of its transaction, as commands carry them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    id: bson::Uuid,
    number: i64,
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
        Session { database, signature: Signature { id: bson::Uuid::new(), number: 0 }, state: State::None }
    }

    /// Begins a transaction; one that is open is aborted.
    pub fn start_transaction(&mut self) -> Result<()> {
        self.abort_transaction()?;
        self.signature.number += 1;
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
        command.sign(self.signature);
        command.run(&self.database.shared.engine, "admin").map(drop)
    }

    /// Puts the session into a command, and its transaction.
    pub(crate) fn sign(&mut self, command: &mut Command) {
        match self.state {
            State::None => command.set("lsid", self.signature.logical_id().as_raw()),
            State::Starting => {
                command.sign(self.signature);
                command.set("startTransaction", true);
                self.state = State::Running;
            }
            State::Running => command.sign(self.signature),
        }
    }

    /// What a cursor goes on with, if it was opened in a transaction.
    pub(crate) fn signature(&self) -> Option<Signature> {
        (self.state == State::Running).then_some(self.signature)
    }
}

impl Signature {
    pub fn number(&self) -> i64 {
        self.number
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
        let ids = kilim_bson::Array::from_iter([kilim_bson::Value::from(self.signature.logical_id())]);
        let _ = Command::new("endSessions", ids.as_raw()).run(&self.database.shared.engine, "admin");
    }
}
