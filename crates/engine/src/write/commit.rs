//! The end of a multi-statement transaction: the groups that its statements deferred are changed, then all of it is one
//! commit.

use std::sync::Arc;

use kilim_error::{Error, Result};
use kilim_storage::{CommitTime, Durability, Space};

use super::door::put_evaluation;
use crate::engine::Engine;
use crate::ids::SessionId;
use crate::layout;
use crate::maintenance::carry_deferred;
use crate::operation::Operation;
use crate::session::{ActiveTransaction, encode_committed};
use crate::unit::{Caused, Unit};

/// A transaction's end.
#[derive(Debug)]
pub struct Committed {
    pub time: CommitTime,
    /// What maintenance did at the commit.
    pub caused: Caused,
}

/// Commits everything, or nothing. The record of its session, if it has one, is part of the commit, so that a repeated
/// commit can be answered after a restart.
pub fn commit(
    transaction: Box<ActiveTransaction>,
    engine: &Engine,
    operation: Arc<Operation>,
    session: Option<(SessionId, i64)>,
    durability: Durability,
) -> Result<Committed> {
    let user = operation.user().cloned();
    let mut unit = Unit::in_transaction(engine, operation, transaction);
    carry_deferred(&mut unit, &put_evaluation)?;
    let caused = std::mem::take(&mut unit.caused);
    let committed = |time| Committed { time, caused };
    let Some(transaction) = unit.into_transaction() else {
        return Err(Error::bug("a transaction's unit lost it"));
    };
    let ActiveTransaction { mut storage, created, held, .. } = *transaction;
    if storage.is_empty() {
        // What it read may be a commit whose writer did not ask for a sync.
        engine.store.settle(durability)?;
        return Ok(committed(engine.store.last_commit_time()));
    }
    if let Some((id, number)) = session {
        let record = encode_committed(number, user.as_ref()).into_bytes();
        storage.put(Space::Meta, layout::session_key(id).to_vec(), record);
    }
    if created.is_empty() {
        let ticket = storage.enqueue(durability)?;
        drop(held);
        return ticket.wait().map(committed);
    }
    engine.commit_created(storage, created, durability).map(committed)
}
