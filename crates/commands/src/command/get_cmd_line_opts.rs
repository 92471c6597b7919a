//! `getCmdLineOpts`: how the server was started.

use kilim_bson::{Document, Value, doc};
use kilim_error::Result;

use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let argv: Vec<Value> = std::env::args().map(Value::from).collect();
    let mut storage = Document::new();
    match &call.engine.options.data {
        Some(directory) => storage.push("dbPath", directory.display().to_string()),
        None => storage.push("engine", "memory"),
    }
    Ok(
        doc! {"argv": argv, "parsed": {"storage": storage, "replication": {"replSet": crate::topology::SET_NAME}}},
    )
}
