//! `commitTransaction`: make the open transaction durable.

use kilim_bson::Document;
use kilim_engine::write;
use kilim_error::Result;

use super::write_reply::push_caused;
use crate::argument::arguments;
use crate::dispatch::Call;
use crate::session;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    for argument in arguments("commitTransaction", call.body) {
        match argument.name {
            "recoveryToken" => {}
            _ => return Err(argument.unknown()),
        }
    }
    let (id, number) = session::required(&call.generic, "commitTransaction")?;
    let session = call.engine.sessions.get(&call.engine.store, id)?;
    let mut state = session.check_out();
    let durability = call.durability();
    let Ok(transaction) = state.take_for_commit(id, number)? else {
        // Committed already: the first answer was lost on its way, and may have promised less than this one.
        call.engine.store.settle(durability)?;
        return Ok(Document::new());
    };
    let result =
        write::commit(transaction, call.engine, call.operation.clone(), Some((id, number)), durability);
    call.engine.cursors.close_of_transaction(id, number);
    let committed = result.inspect_err(|_| call.engine.metrics.transactions_aborted.add(1))?;
    state.committed(committed.time);
    call.engine.metrics.transactions_committed.add(1);
    let mut reply = Document::new();
    push_caused(&mut reply, &committed.caused);
    Ok(reply)
}
