//! `connPoolStats` and `dropConnections`: connections to other members. A set of one has none.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::Result;

use super::write_reply::required;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

pub fn run_stats(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    Ok(doc! {
        "numClientConnections": 0,
        "numAScopedConnections": 0,
        "totalInUse": 0,
        "totalAvailable": 0,
        "totalCreated": 0,
        "totalRefreshing": 0,
        "totalRefreshed": 0,
        "pools": {},
        "hosts": {},
        "numReplicaSetMonitorsCreated": 0,
        "replicaSets": {},
    })
}

pub fn run_drop(call: &mut Call<'_, '_>) -> Result<Document> {
    const NAME: &str = "dropConnections";
    call.describe("command");
    let mut hosts = None;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "hostAndPort" => hosts = Some(argument.array()?),
            _ => return Err(argument.unknown()),
        }
    }
    for (name, value) in required(hosts, NAME, "hostAndPort")?.as_document() {
        if !matches!(value, RawValue::String(_)) {
            let name = format!("hostAndPort.{name}");
            return Err(Argument { command: NAME, name: &name, value }.wrong_type("type 'string'"));
        }
    }
    Ok(Document::new())
}
