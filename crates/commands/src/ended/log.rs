//! The log's line of a slow command. It tells which collection, how it was read and how much, never what documents or
//! filters hold.

use kilim_bson::Value;
use tracing::info;

use super::Ended;
use super::facts::Facts;

pub(super) fn write(ended: &Ended<'_>, facts: &Facts<'_>) {
    let number = |name: &str| match facts.get(name) {
        Some(Value::Int32(number)) => Some(i64::from(*number)),
        Some(Value::Int64(number)) => Some(*number),
        _ => None,
    };
    let flag = |name: &str| facts.get(name).map(|_| true);
    let text = |name: &str| match facts.get(name) {
        Some(Value::String(text)) => Some(&**text),
        _ => None,
    };
    info!(
        "type" = if facts.is_statement { facts.kind } else { "command" },
        ns = facts.namespace,
        command = ended.spec.name,
        connection = ended.client.id,
        appName = ended.client.app_name.as_deref(),
        planSummary = facts.plan_summary.as_deref(),
        cursorid = number("cursorid"),
        keysExamined = number("keysExamined"),
        docsExamined = number("docsExamined"),
        hasSortStage = flag("hasSortStage"),
        usedDisk = flag("usedDisk"),
        fromMultiPlanner = flag("fromMultiPlanner"),
        nMatched = number("nMatched"),
        nModified = number("nModified"),
        ninserted = number("ninserted"),
        ndeleted = number("ndeleted"),
        nUpserted = number("nUpserted"),
        cursorExhausted = flag("cursorExhausted"),
        keysInserted = number("keysInserted"),
        keysDeleted = number("keysDeleted"),
        nreturned = number("nreturned"),
        queryHash = text("queryHash"),
        planCacheKey = text("planCacheKey"),
        failed = facts.error.map(|_| true),
        errName = facts.error.map(|error| error.code().name().into_owned()),
        errCode = facts.error.map(|error| error.code().0),
        reslen = facts.response_bytes.map(|bytes| bytes as u64),
        durationMillis = facts.time.as_millis() as u64,
        "Slow query"
    );
}
