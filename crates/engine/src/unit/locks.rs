//! What maintenance holds until its commit.
//!
//! A copy is true at its commit if its source was not written in between: so the source is shared. A group's
//! state is true if nobody else changed the group in between: so the group is held alone. Both are read as of the newest
//! commit, queued ones included.
//!
//! Order is not enough to keep writers from waiting for each other in a circle, since what one needs is known only
//! step by step. So one rule: who holds something does not wait. A conflict ends the attempt; the key is waited
//! for with empty hands, and the attempt begins anew.

use kilim_error::{Error, Result};
use kilim_storage::{Space, Wait};

use super::Unit;
use super::pending::Until;
use crate::ids::PatternId;
use crate::limits;

/// What an attempt could not have.
#[derive(Debug, Clone)]
pub(crate) enum Contended {
    /// A key that somebody else held.
    Key { space: Space, key: Vec<u8> },
    /// Room for another source that is pending, beside those that the attempt left.
    Room(PatternId, usize),
    /// A key of which nothing is pending.
    Pending(PatternId, Vec<u8>),
}

impl Contended {
    pub(crate) fn new(space: Space, key: &[u8]) -> Contended {
        Contended::Key { space, key: key.to_vec() }
    }
}

impl Unit<'_> {
    /// Holds a key alone until the commit.
    pub(crate) fn hold_alone(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.hold(space, key, false)
    }

    /// Shares a key until the commit: nobody writes it before.
    pub(crate) fn hold_shared(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.hold(space, key, true)
    }

    fn hold(&mut self, space: Space, key: &[u8], shared: bool) -> Result<()> {
        let may_wait = self.has_empty_hands();
        let operation = self.operation.clone();
        let interrupt = || operation.check().err();
        let wait = match may_wait {
            true => Wait::Until { deadline: operation.deadline(), interrupt: &interrupt },
            false => Wait::No,
        };
        let transaction = self.transaction();
        let held = match shared {
            true => transaction.share(space, key, wait),
            false => transaction.lock(space, key, wait),
        };
        match held {
            Ok(_) => {
                self.maintains = true;
                self.note_looked();
                Ok(())
            }
            Err(error @ Error::Conflict(_)) => {
                self.contended = Some(Contended::new(space, key));
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Stands in line for a key although other things are held: for keys that everybody takes in one order.
    pub(crate) fn hold_in_line(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let operation = self.operation.clone();
        let interrupt = || operation.check().err();
        let limit = std::time::Instant::now() + limits::TRANSACTION_LIFETIME;
        let deadline = Some(operation.deadline().map_or(limit, |deadline| deadline.min(limit)));
        self.transaction().lock(space, key, Wait::Until { deadline, interrupt: &interrupt })?;
        Ok(())
    }

    /// The same to share a key: for those that nobody holds alone while he waits for another.
    pub(crate) fn share_in_line(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let operation = self.operation.clone();
        let interrupt = || operation.check().err();
        let limit = std::time::Instant::now() + limits::TRANSACTION_LIFETIME;
        let deadline = Some(operation.deadline().map_or(limit, |deadline| deadline.min(limit)));
        self.transaction().share(space, key, Wait::Until { deadline, interrupt: &interrupt })?;
        self.maintains = true;
        self.note_looked();
        Ok(())
    }

    /// Waits for what ended the last attempt, with empty hands. It is kept for the next attempt: if those
    /// in line let it go again, they would only pass it on to each other.
    pub(crate) fn await_contended(&mut self) -> Result<()> {
        let (space, key) = match self.contended.take() {
            None => return Ok(()),
            Some(Contended::Room(pattern, left)) => return self.await_pending(pattern, Until::Room(left)),
            Some(Contended::Pending(pattern, key)) => {
                return self.await_pending(pattern, Until::Done(&key));
            }
            Some(Contended::Key { space, key }) => (space, key),
        };
        let operation = self.operation.clone();
        let interrupt = || operation.check().err();
        let wait = Wait::Until { deadline: operation.deadline(), interrupt: &interrupt };
        self.transaction().lock(space, &key, wait)?;
        self.keeps = true;
        self.maintains = true;
        Ok(())
    }
}
