//! Takes up and gives back the session that a numbered command runs in.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_engine::operation::Operation;
use kilim_engine::session::State;
use kilim_engine::unit::Unit;
use kilim_engine::{CommitTime, Durability, Engine, Snapshot};
use kilim_error::{Error, ErrorCode, Result};

use crate::concern::ReadConcern;
use crate::dispatch::{Call, Outcome};
use crate::registry::CommandSpec;
use crate::request::Generic;

/// The unit that a command works in: its transaction's, a retryable write's, or a plain one.
pub fn begin<'e>(
    engine: &'e Engine,
    operation: &Arc<Operation>,
    spec: &CommandSpec,
    generic: &Generic<'_>,
    state: Option<&mut State>,
    durability: Durability,
) -> Result<Unit<'e>> {
    let mut unit = Unit::new(engine, operation.clone(), durability);
    if let Some(ReadConcern::Snapshot { at }) = generic.read_concern
        && generic.autocommit.is_none()
        && spec.name != "getMore"
    {
        unit.read_at = Some(snapshot_to_read(engine, at)?);
    }
    let (Some(state), Some(session)) = (state, generic.session) else { return Ok(unit) };
    if let Some(named) = generic.transaction()? {
        let transaction = state.begin_transaction(session, named, &engine.store)?;
        if named.start {
            engine.metrics.transactions_started.add(1);
        }
        return Ok(Unit::in_transaction(engine, operation.clone(), transaction));
    }
    let Some(number) = generic.transaction_number else { return Ok(unit) };
    if !spec.retryable {
        return Err(Error::user(
            ErrorCode::NotARetryableWriteCommand,
            format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {} is not a retryable write command.",
                spec.name
            ),
        ));
    }
    unit.retry = Some(state.begin_retryable(session, number)?);
    Ok(unit)
}

/// The snapshot of a read outside a transaction, kept for the reads that will ask for it again.
fn snapshot_to_read(engine: &Engine, at: Option<CommitTime>) -> Result<Snapshot> {
    match at {
        Some(time) if time > engine.store.now().max(engine.store.last_commit_time()) => Err(Error::user(
            ErrorCode::InvalidOptions,
            "readConcern atClusterTime value must not be greater than the current clusterTime",
        )),
        Some(time) => engine.history.at(time),
        None => {
            let snapshot = engine.store.snapshot();
            engine.history.keep(&snapshot);
            Ok(snapshot)
        }
    }
}

/// Settles the command's writes and leaves the session as the next command must find it.
pub fn end(
    mut call: Call<'_, '_>,
    state: Option<&mut State>,
    result: Result<Document>,
    outcome: &mut Outcome<'_>,
) -> Result<Document> {
    if call.unit.is_transaction() {
        let Some(state) = state else { return Err(Error::bug("a transaction without a session")) };
        let result = result.and_then(|document| call.unit.check_transaction_limits().map(|()| document));
        let transaction = call.unit.into_transaction();
        match (&result, transaction) {
            (Ok(_), Some(transaction)) if !call.statement_failed => state.keep_transaction(transaction),
            _ => {
                state.abort_transaction();
                call.engine.metrics.transactions_aborted.add(1);
                if let (Some(session), Some(number)) = (call.generic.session, call.generic.transaction_number)
                {
                    call.engine.cursors.close_of_transaction(session, number);
                }
            }
        }
        return result;
    }
    // Also after an error: what was done before it stays done, and its retry must know.
    let settled = call.unit.settle();
    outcome.committed = outcome.committed.max(call.unit.committed());
    if let (Some(state), Some(retry), Ok(())) = (state, call.unit.retry.take(), &settled) {
        state.finish_retryable(retry);
    }
    match (result, settled) {
        (Ok(document), Ok(())) => Ok(document),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// The session and transaction number that commitTransaction and abortTransaction must carry.
pub fn required(generic: &Generic<'_>, command: &str) -> Result<(kilim_engine::ids::SessionId, i64)> {
    match (generic.session, generic.transaction_number, generic.autocommit) {
        (Some(session), Some(number), Some(false)) => Ok((session, number)),
        _ => {
            Err(Error::user(ErrorCode::CommandFailed, format!("{command} must be run within a transaction")))
        }
    }
}
