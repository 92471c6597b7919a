//! An entry of `system.profile`.

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};

use super::Ended;
use super::facts::Facts;

/// What a filter of the command `profile` may ask for: all that mongod knows, though some of it is never there.
pub const FIELDS: [&str; 54] = [
    "ts",
    "client",
    "appName",
    "allUsers",
    "user",
    "op",
    "ns",
    "command",
    "originatingCommand",
    "nShards",
    "cursorid",
    "exhaust",
    "keysExamined",
    "docsExamined",
    "hasSortStage",
    "usedDisk",
    "fromMultiPlanner",
    "replanned",
    "replanReason",
    "nMatched",
    "nModified",
    "ninserted",
    "ndeleted",
    "nUpserted",
    "cursorExhausted",
    "keysInserted",
    "keysDeleted",
    "prepareReadConflicts",
    "writeConflicts",
    "temporarilyUnavailableErrors",
    "dataThroughputLastSecond",
    "dataThroughputAverage",
    "numYield",
    "nreturned",
    "queryHash",
    "planCacheKey",
    "queryFramework",
    "locks",
    "authorization",
    "flowControl",
    "writeConcern",
    "storage",
    "ok",
    "errMsg",
    "errName",
    "errCode",
    "responseLength",
    "protocol",
    "remoteOpWaitMillis",
    "millis",
    "durationMillis",
    "planSummary",
    "execStats",
    "mongot",
];

/// The entry; `judged` is one that a filter is asked about, which has the time by another name too.
pub(super) fn entry(ended: &Ended<'_>, facts: &Facts<'_>, judged: bool) -> Document {
    let mut entry = doc! {"op": facts.kind, "ns": facts.namespace.as_str()};
    if let Some(command) = &facts.command {
        entry.push("command", command.as_raw());
    }
    if let Some(originating) = &ended.trace.originating {
        entry.push("originatingCommand", originating.as_raw());
    }
    for (name, value) in &facts.list {
        entry.push(name, value.as_raw());
    }
    let body = ended.request.body;
    entry.push("readConcern", read_concern(body).as_raw());
    if ended.spec.writes && !facts.is_statement {
        entry.push("writeConcern", write_concern(body).as_raw());
    }
    if let Some(error) = facts.error {
        entry.push("ok", 0.0);
        entry.push("errMsg", error.to_string());
        entry.push("errName", error.code().name().into_owned());
        entry.push("errCode", error.code().0);
    }
    if let Some(bytes) = facts.response_bytes {
        entry.push("responseLength", bytes as i32);
        entry.push("protocol", "op_msg");
    }
    let millis = i32::try_from(facts.time.as_millis()).unwrap_or(i32::MAX);
    entry.push("millis", millis);
    if judged {
        entry.push("durationMillis", millis);
    }
    if let Some(summary) = &facts.plan_summary {
        entry.push("planSummary", summary.as_str());
    }
    entry.push("ts", Value::DateTime(ended.engine.now_millis()));
    entry.push("client", ended.client.peer.ip().to_string());
    if let Some(name) = &ended.client.app_name {
        entry.push("appName", name.as_str());
    }
    let user = ended.operation.user();
    let users = user.map(|user| Value::Document(doc! {"user": &user.name, "db": &user.db}));
    entry.push("allUsers", users.into_iter().collect::<Vec<Value>>());
    entry.push("user", user.map_or_else(String::new, |user| format!("{}@{}", user.name, user.db)));
    entry
}

const SUPPLIED: &str = "clientSupplied";
const IMPLICIT: &str = "implicitDefault";

fn read_concern(body: RawDocument<'_>) -> Document {
    let level = body.get("readConcern").and_then(RawValue::as_document);
    match level.and_then(|concern| concern.get("level")).and_then(RawValue::as_str) {
        Some(level) => doc! {"level": level, "provenance": SUPPLIED},
        None => doc! {"level": "local", "provenance": IMPLICIT},
    }
}

fn write_concern(body: RawDocument<'_>) -> Document {
    let given = body.get("writeConcern").and_then(RawValue::as_document).filter(|given| !given.is_empty());
    let Some(given) = given else {
        return doc! {"w": "majority", "wtimeout": 0, "provenance": IMPLICIT};
    };
    let mut shown = Document::new();
    match given.get("w") {
        Some(w) => shown.push("w", w),
        None => shown.push("w", 1),
    }
    if let Some(journal) = given.get("j") {
        shown.push("j", journal);
    }
    match given.get("wtimeout") {
        Some(limit) => shown.push("wtimeout", limit),
        None => shown.push("wtimeout", 0),
    }
    shown.push("provenance", SUPPLIED);
    shown
}
