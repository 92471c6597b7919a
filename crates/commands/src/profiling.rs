//! What is written down of a command that has ended: figures for `top`, and its entry in `system.profile`.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::Engine;
use kilim_engine::operation::Operation;
use kilim_engine::top::Use;
use kilim_error::Error;

use crate::client::Client;
use crate::registry::CommandSpec;
use crate::request::Request;

/// Notes a command and the reply that it has.
pub fn note(
    client: &Client,
    engine: &Engine,
    operation: &Arc<Operation>,
    request: &Request<'_>,
    spec: &CommandSpec,
    result: Result<&Document, &Error>,
) {
    let (what, kind) = match spec.name {
        "find" => (Use::Query, "query"),
        "getMore" => (Use::GetMore, "getmore"),
        "insert" => (Use::Insert, "insert"),
        "update" => (Use::Update, "update"),
        "delete" => (Use::Remove, "remove"),
        "aggregate" | "count" | "distinct" | "findAndModify" => (Use::Command, "command"),
        _ => return,
    };
    let body = request.body;
    let named = match spec.name {
        "getMore" => body.get("collection"),
        _ => body.iter().next().map(|(_, name)| name),
    };
    let database = body.get("$db").and_then(RawValue::as_str);
    let (Some(database), Some(RawValue::String(collection))) = (database, named) else { return };
    let time = operation.started.elapsed();
    engine.top.note(database, collection, what, time);
    if !engine.profiler.wants(database, time, engine.metrics.slow_limit()) {
        return;
    }
    let mut entry = doc! {"op": kind, "ns": format!("{database}.{collection}")};
    if let Some(command) = operation.command() {
        entry.push("command", command.clone());
    }
    match result {
        Ok(reply) => push_figures(&mut entry, kind, reply.as_raw()),
        Err(error) => {
            entry.push("ok", 0.0);
            entry.push("errMsg", error.to_string());
            entry.push("errName", error.code().name().into_owned());
            entry.push("errCode", error.code().0);
        }
    }
    entry.push("numYield", 0);
    if let Ok(reply) = result {
        entry.push("responseLength", reply.as_bytes().len() as i32);
    }
    entry.push("protocol", "op_msg");
    entry.push("millis", time.as_millis() as i32);
    entry.push("ts", Value::DateTime(engine.now_millis()));
    entry.push("client", client.peer.ip().to_string());
    if let Some(name) = &client.app_name {
        entry.push("appName", name.as_str());
    }
    entry.push("allUsers", Vec::<Value>::new());
    entry.push("user", "");
    if let Err(error) = engine.write_profile(operation, database, &entry) {
        tracing::warn!(%error, database, "a command could not be written to the profile");
    }
}

/// What the reply tells of the documents that were given or changed.
fn push_figures(entry: &mut Document, kind: &str, reply: RawDocument<'_>) {
    let number = |name: &str| match reply.get(name) {
        Some(RawValue::Int32(number)) => Some(number),
        _ => None,
    };
    let pairs: &[(&str, &str)] = match kind {
        "insert" => &[("n", "ninserted")],
        "update" => &[("n", "nMatched"), ("nModified", "nModified")],
        "remove" => &[("n", "ndeleted")],
        _ => &[],
    };
    for (from, to) in pairs {
        if let Some(number) = number(from) {
            entry.push(to, number);
        }
    }
    let Some(cursor) = reply.get("cursor").and_then(RawValue::as_document) else { return };
    let batch = cursor.get("firstBatch").or_else(|| cursor.get("nextBatch")).and_then(RawValue::as_array);
    match cursor.get("id") {
        Some(RawValue::Int64(0)) => entry.push("cursorExhausted", true),
        Some(RawValue::Int64(id)) => entry.push("cursorid", id),
        _ => {}
    }
    if let Some(batch) = batch {
        entry.push("nreturned", batch.len() as i32);
    }
}
