//! `abortTransaction`: undo the open transaction.

use kilim_bson::Document;
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;
use crate::session;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    for argument in arguments("abortTransaction", call.body) {
        match argument.name {
            "recoveryToken" => {}
            _ => return Err(argument.unknown()),
        }
    }
    let (id, number) = session::required(&call.generic, "abortTransaction")?;
    let session = call.engine.sessions.get(&call.engine.store, id)?;
    let transaction = session.check_out().take_for_abort(id, number)?;
    drop(transaction);
    call.engine.cursors.close_of_transaction(id, number);
    call.engine.metrics.transactions_aborted.add(1);
    Ok(Document::new())
}
