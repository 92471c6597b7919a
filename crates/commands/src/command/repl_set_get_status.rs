//! `replSetGetStatus`: a set of one, healthy.

use kilim_bson::{Document, Timestamp, Value, doc};
use kilim_error::Result;

use super::update::now_ms;
use crate::dispatch::Call;
use crate::topology::SET_NAME;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let written = Timestamp::from_bits(call.engine.store.last_commit_time());
    let op_time = doc! {"ts": written, "t": 1i64};
    Ok(doc! {
        "set": SET_NAME,
        "date": Value::DateTime(now_ms()),
        "myState": 1,
        "term": 1i64,
        "members": [{
            "_id": 0,
            "name": call.client.local.to_string(),
            "health": 1.0,
            "state": 1,
            "stateStr": "PRIMARY",
            "uptime": call.engine.started.elapsed().as_secs() as i32,
            "optime": op_time,
            "self": true,
        }],
    })
}
