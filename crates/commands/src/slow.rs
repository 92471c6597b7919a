//! How long commands take: counted by kind, and told in the log where they are slow.
//!
//! The log names the command and its collection, never what documents or filters hold.

use kilim_bson::RawValue;
use kilim_engine::Engine;
use kilim_engine::operation::Operation;
use tracing::info;

use crate::client::Client;
use crate::registry::{self, COMMANDS, CommandSpec};
use crate::request::Request;

/// Counts a command that has ended.
pub fn note(
    client: &Client,
    engine: &Engine,
    operation: &Operation,
    request: &Request<'_>,
    spec: &CommandSpec,
    failed: bool,
) {
    let time = operation.started.elapsed();
    let metrics = &engine.metrics;
    if let Some(place) = registry::place(spec.name) {
        let count = &metrics.by_command(COMMANDS.len())[place];
        count.total.add(1);
        count.failed.add(u64::from(failed));
    }
    match spec.name {
        "find" | "getMore" | "count" | "distinct" | "aggregate" => metrics.reads.add(time),
        "insert" | "update" | "delete" | "findAndModify" => metrics.writes.add(time),
        _ => metrics.other_commands.add(time),
    }
    // A command that waits for news is not slow.
    let waits = matches!(spec.name, "hello" | "isMaster" | "waitPattern" | "getMore");
    if time < metrics.slow_limit() || waits {
        return;
    }
    let database = request.body.get("$db").and_then(RawValue::as_str).unwrap_or_default();
    let collection = request.body.iter().next().and_then(|(_, value)| value.as_str()).unwrap_or("$cmd");
    info!(
        kind = operation.kind(),
        ns = format!("{database}.{collection}"),
        command = spec.name,
        connection = client.id,
        app_name = client.app_name.as_deref().unwrap_or_default(),
        failed,
        durationMillis = time.as_millis() as u64,
        "Slow query"
    );
}
