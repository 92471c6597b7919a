//! `replSetGetConfig`: the configuration of a set of one.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;
use crate::topology::SET_NAME;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut committed = false;
    for argument in arguments("replSetGetConfig", call.body) {
        match argument.name {
            "commitmentStatus" => committed = argument.boolean()?,
            _ => return Err(argument.unknown()),
        }
    }
    let mut reply = doc! {
        "config": {
            "_id": SET_NAME,
            "version": 1,
            "term": 1i64,
            "members": [{
                "_id": 0,
                "host": call.client.local.to_string(),
                "arbiterOnly": false,
                "buildIndexes": true,
                "hidden": false,
                "priority": 1.0,
                "tags": {},
                "secondaryDelaySecs": 0i64,
                "votes": 1,
            }],
            "protocolVersion": 1i64,
            "writeConcernMajorityJournalDefault": true,
            "settings": {
                "chainingAllowed": true,
                "heartbeatIntervalMillis": 2000,
                "heartbeatTimeoutSecs": 10,
                "electionTimeoutMillis": 10000,
                "catchUpTimeoutMillis": -1,
                "catchUpTakeoverDelayMillis": 30000,
                "getLastErrorModes": {},
                "getLastErrorDefaults": {"w": 1, "wtimeout": 0},
            },
        },
    };
    if committed {
        reply.push("commitmentStatus", true);
    }
    Ok(reply)
}
