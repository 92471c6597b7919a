//! What maintenance holds until its commit, and who may wait for what another writer holds.
//!
//! A copy is true at its commit if its source was not written in between, so the source is shared until then. A group's
//! state is true if nobody else changed the group in between, so the group is held alone. Both are read as of the newest
//! commit, queued ones included.
//!
//! Maintenance learns only step by step which keys it needs, so writers cannot agree on an order in which to take them.
//! One rule keeps them from waiting for each other in a circle: a unit that holds such a key does not wait. A conflict
//! ends the attempt. The unit gives everything back, waits for the key with nothing else held, and begins anew.

use kilim_error::{Error, Result};
use kilim_storage::{Space, Wait};

use super::batch::Holding;
use super::pending::Until;
use super::{Unit, Writes};
use crate::ids::PatternId;

/// Why a unit may wait for a key that another writer holds. Each reason excludes that writers wait for each other in a
/// circle. A unit without a reason gets a conflict at once.
#[derive(Debug, Clone, Copy)]
pub(super) enum MayWait {
    /// It holds nothing, so nobody waits for it.
    EmptyHands,
    /// It holds intents on one document only. All writers take those in one order: the record, then unique keys by
    /// their bytes.
    OneDocument,
    /// All writers take keys like this one in one order, and a writer that holds one waits for nothing else.
    InLine,
}

/// How a key is held.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hold {
    /// Nobody else holds it.
    Alone,
    /// Others may share it; nobody writes it.
    Shared,
}

/// What an attempt did not get.
#[derive(Debug, Clone)]
pub(crate) enum Contended {
    /// A key that another writer held.
    Key { space: Space, key: Vec<u8> },
    /// Room for another pending source of a pattern, beside the number that the attempt itself adds.
    Room(PatternId, usize),
    /// The end of what is pending for a key of a pattern.
    Pending(PatternId, Vec<u8>),
    /// The end of a job's work for a key of a pattern.
    Written(PatternId, Vec<u8>),
}

impl Contended {
    pub(crate) fn new(space: Space, key: &[u8]) -> Contended {
        Contended::Key { space, key: key.to_vec() }
    }
}

impl Unit<'_> {
    /// Holds a key alone until the commit.
    pub(crate) fn hold_alone(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.hold(Hold::Alone, space, key)
    }

    /// Shares a key until the commit: nobody writes it before.
    pub(crate) fn hold_shared(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.hold(Hold::Shared, space, key)
    }

    fn hold(&mut self, hold: Hold, space: Space, key: &[u8]) -> Result<()> {
        match self.acquire(hold, space, key, self.empty_hands()) {
            Ok(()) => {
                self.note_held_until_commit();
                self.note_read_unpublished();
                Ok(())
            }
            Err(error @ Error::Conflict(_)) => {
                self.contended = Some(Contended::new(space, key));
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Stands in line for a key although other things are held: for keys that all writers take in one order.
    pub(crate) fn hold_in_line(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.acquire(Hold::Alone, space, key, Some(MayWait::InLine))
    }

    /// Stands in line to share a key although other things are held: for keys that a writer never holds alone while it
    /// waits for another.
    pub(crate) fn share_in_line(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.acquire(Hold::Shared, space, key, Some(MayWait::InLine))?;
        self.note_held_until_commit();
        self.note_read_unpublished();
        Ok(())
    }

    /// Waits for what ended the last attempt. The unit has given back everything it held. It keeps the key for the next
    /// attempt: writers in line that let it go again would only pass it on to each other.
    pub(crate) fn await_contended(&mut self) -> Result<()> {
        match self.contended.take() {
            None => Ok(()),
            Some(Contended::Room(pattern, added)) => self.await_pending(pattern, Until::Room(added)),
            Some(Contended::Written(pattern, key)) => self.await_pending(pattern, Until::Written(&key)),
            Some(Contended::Pending(pattern, key)) => self.await_pending(pattern, Until::Done(&key)),
            Some(Contended::Key { space, key }) => {
                self.acquire(Hold::Alone, space, &key, self.empty_hands())?;
                if let Writes::Batch(batch) = &mut self.writes {
                    batch.holding = Holding::Contended;
                }
                Ok(())
            }
        }
    }

    /// Takes a key. This is the one place where a unit waits for a key of another writer.
    pub(super) fn acquire(
        &mut self,
        hold: Hold,
        space: Space,
        key: &[u8],
        may_wait: Option<MayWait>,
    ) -> Result<()> {
        let operation = self.operation.clone();
        let interrupt = || operation.check().err();
        let until = |deadline| Wait::Until { deadline, interrupt: &interrupt };
        let wait = match may_wait {
            None => Wait::No,
            Some(MayWait::EmptyHands | MayWait::OneDocument) => until(operation.deadline()),
            // No transaction that holds the key lives longer.
            Some(MayWait::InLine) => {
                let limit = self.engine.environment().now() + self.engine.settings.transaction_lifetime();
                until(Some(operation.deadline().map_or(limit, |deadline| deadline.min(limit))))
            }
        };
        let transaction = self.transaction();
        match hold {
            Hold::Alone => transaction.lock(space, key, wait)?,
            Hold::Shared => transaction.share(space, key, wait)?,
        };
        Ok(())
    }

    /// Whether it may wait because it holds nothing.
    fn empty_hands(&self) -> Option<MayWait> {
        match &self.writes {
            Writes::Batch(batch) => batch.has_empty_hands().then_some(MayWait::EmptyHands),
            Writes::Transaction { .. } => None,
        }
    }

    pub(super) fn note_held_until_commit(&mut self) {
        if let Writes::Batch(batch) = &mut self.writes {
            batch.hold_until_commit();
        }
    }
}
