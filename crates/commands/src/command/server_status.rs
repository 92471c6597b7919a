//! `serverStatus`: counters that monitoring reads.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Timestamp, Value, doc};
use kilim_engine::catalog::Collection;
use kilim_engine::cursor::{LIFESPANS, Tally};
use kilim_engine::metrics::{Counter, Latency, Metrics};
use kilim_engine::{Engine, Namespace};
use kilim_error::Result;

use super::build_info::{MONGODB_VERSION, host};
use super::hello::WIRE_VERSION_MAX;
use super::update::now_ms;
use crate::argument::as_double;
use crate::dispatch::Call;
use crate::registry::COMMANDS;
use crate::topology::SET_NAME;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut status = status(call)?;
    let is_section = |name: &str| status.get(name).is_some_and(|value| value.as_document().is_some());
    let is_off = |value: RawValue<'_>| as_double(value) == Some(0.0) || value.as_bool() == Some(false);
    let left_out: Vec<&str> = (call.body.iter().skip(1))
        .filter(|(name, value)| is_section(name) && is_off(*value))
        .map(|(name, _)| name)
        .collect();
    if !left_out.is_empty() {
        let kept = status.iter().filter(|(name, _)| !left_out.contains(name));
        status = kept.map(|(name, value)| (name, value.to_value())).collect();
    }
    Ok(status)
}

/// All sections; a command may leave some out: `{serverStatus: 1, metrics: 0}`.
fn status(call: &mut Call<'_, '_>) -> Result<Document> {
    let engine = call.engine;
    let metrics = &engine.metrics;
    let count = |counter: &Counter| Value::Int64(counter.get() as i64);
    let uptime = engine.started.elapsed();
    let address = call.client.local.to_string();
    let (resident_mb, virtual_mb) = memory_mb();
    let open_transactions = metrics.transactions_started.get() as i64
        - metrics.transactions_committed.get() as i64
        - metrics.transactions_aborted.get() as i64;
    let (cursors, tally) = (engine.cursors.counts(), engine.cursors.tally());
    let running = engine.operations.list();
    let connections_max = metrics.server.get().map_or(0, |server| server.connections_max as i32);
    let connections = metrics.connections_current.get() as i32;
    Ok(doc! {
        "host": host(engine),
        "version": MONGODB_VERSION,
        "process": "kilim",
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs_f64().floor(),
        "uptimeMillis": uptime.as_millis() as i64,
        "uptimeEstimate": uptime.as_secs() as i64,
        "localTime": Value::DateTime(now_ms()),
        "activeIndexBuilds": {"total": builds(engine)},
        "catalogStats": catalog_stats(engine),
        "extra_info": process_info(),
        "connections": {
            "current": connections,
            "available": (connections_max - connections).max(0),
            "totalCreated": metrics.connections_total.get() as i32,
            "active": running.len() as i32,
        },
        "network": {
            "bytesIn": count(&metrics.bytes_in),
            "bytesOut": count(&metrics.bytes_out),
            "numRequests": count(&metrics.requests),
        },
        "opcounters": {
            "insert": count(&metrics.inserted),
            "query": count(&metrics.queried),
            "update": count(&metrics.updated),
            "delete": count(&metrics.deleted),
            "getmore": count(&metrics.got_more),
            "command": count(&metrics.commands),
        },
        "opLatencies": {
            "reads": latency(&metrics.reads),
            "writes": latency(&metrics.writes),
            "commands": latency(&metrics.other_commands),
        },
        "asserts": {"regular": 0, "warning": 0, "msg": 0, "user": failed(metrics), "tripwire": 0, "rollovers": 0},
        "globalLock": {
            "totalTime": uptime.as_micros() as i64,
            "currentQueue": {"total": 0, "readers": 0, "writers": 0},
            "activeClients": {
                "total": running.len() as i32,
                "readers": running.iter().filter(|operation| !is_write(operation.kind())).count() as i32,
                "writers": running.iter().filter(|operation| is_write(operation.kind())).count() as i32,
            },
        },
        "metrics": {
            "commands": by_command(metrics),
            "cursor": {
                "moreThanOneBatch": count(&tally.more_than_one_batch),
                "timedOut": count(&tally.timed_out),
                "totalOpened": count(&tally.opened),
                "lifespan": lifespans(tally),
                "open": {
                    "noTimeout": cursors.immortal as i64,
                    "pinned": cursors.pinned as i64,
                    "total": cursors.total as i64,
                },
            },
            "document": {
                "deleted": count(&metrics.documents_deleted),
                "inserted": count(&metrics.documents_inserted),
                "returned": count(&metrics.documents_returned),
                "updated": count(&metrics.documents_updated),
            },
            "operation": {
                "scanAndOrder": count(&metrics.sorted),
                "writeConflicts": count(&metrics.write_conflicts),
            },
            "queryExecutor": {
                "scanned": count(&metrics.keys_examined),
                "scannedObjects": count(&metrics.documents_read),
            },
            "ttl": {
                "deletedDocuments": count(&engine.expiry.removed),
                "passes": count(&engine.expiry.passes),
            },
        },
        "logicalSessionRecordCache": {"activeSessionsCount": engine.sessions.list().len() as i32},
        "transactions": {
            "totalStarted": count(&metrics.transactions_started),
            "totalCommitted": count(&metrics.transactions_committed),
            "totalAborted": count(&metrics.transactions_aborted),
            "currentOpen": open_transactions.max(0),
        },
        "changeLog": change_log(engine),
        "mem": {"bits": 64, "resident": resident_mb, "virtual": virtual_mb, "supported": true},
        "repl": {
            "setName": SET_NAME,
            "setVersion": 1,
            "isWritablePrimary": true,
            "secondary": false,
            "hosts": vec![Value::from(address.as_str())],
            "primary": address.as_str(),
            "me": address.as_str(),
        },
        "storageEngine": {
            "name": if engine.options.data.is_some() { "kilim" } else { "memory" },
            "supportsCommittedReads": true,
            "readOnly": false,
            "persistent": engine.options.data.is_some(),
            "diskBytes": engine.store.disk_bytes() as i64,
            "pageScrub": page_scrub(engine),
        },
        "wireVersion": {"minWireVersion": 0, "maxWireVersion": WIRE_VERSION_MAX},
    })
}

/// What the background passes over the pages on disk found.
fn page_scrub(engine: &Engine) -> Document {
    let scrub = &engine.page_scrub;
    let mut document = doc! {
        "passes": scrub.passes.get() as i64,
        "bytes": scrub.bytes.get() as i64,
        "damagedPages": scrub.damaged_pages.get() as i64,
    };
    match scrub.ended_millis.load(std::sync::atomic::Ordering::Relaxed) {
        0 => {}
        millis => document.push("lastEnded", Value::DateTime(millis)),
    }
    document
}

/// How many collections of which kind there are.
fn catalog_stats(engine: &Engine) -> Document {
    const OWN: [&str; 3] = ["admin", "config", "local"];
    let catalog = engine.catalog();
    let is_own = |namespace: &Namespace| OWN.contains(&namespace.database.as_str());
    let count = |wanted: &dyn Fn(&Collection) -> bool| {
        catalog.iter().filter(|collection| wanted(collection)).count() as i32
    };
    let of_users = || catalog.views().filter(|view| !is_own(&view.namespace));
    let series = of_users().filter(|view| view.time_series.is_some()).count() as i32;
    let views = of_users().count() as i32 - series;
    doc! {
        "collections": count(&|one| !is_own(&one.namespace)),
        "capped": count(&|one| !is_own(&one.namespace) && one.capped.is_some()),
        "clustered": count(&|one| !is_own(&one.namespace) && one.clustered),
        "timeseries": series,
        "views": views,
        "internalCollections": count(&|one| is_own(&one.namespace)),
        "internalViews": catalog.views().filter(|view| is_own(&view.namespace)).count() as i32,
    }
}

/// Builds that run; one may be of several indexes.
fn builds(engine: &Engine) -> i32 {
    let mut builds = 0;
    for collection in engine.catalog().iter() {
        let begins = |at: usize| match at.checked_sub(1) {
            None => true,
            Some(before) => !Arc::ptr_eq(&collection.building[before].build, &collection.building[at].build),
        };
        builds += (0..collection.building.len()).filter(|at| begins(*at)).count() as i32;
    }
    builds
}

/// What the operating system counts of this process. Times are as fine as its clock, a hundredth of a second.
fn process_info() -> Document {
    const TICK_US: i64 = 10_000;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold anything; the third field comes behind it.
    let fields: Vec<i64> = stat
        .rsplit_once(')')
        .map_or("", |(_, behind)| behind)
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    doc! {
        "note": "fields vary by platform",
        "user_time_us": field(14) * TICK_US,
        "system_time_us": field(15) * TICK_US,
        "page_reclaims": field(10),
        "page_faults": field(12),
    }
}

/// How far the change log reaches, and what it takes.
fn change_log(engine: &Engine) -> Document {
    let Some(stats) = engine.store.log_stats() else { return doc! {"enabled": false} };
    doc! {
        "enabled": true,
        "beginsAfter": Value::Timestamp(Timestamp::from_bits(stats.begins)),
        "last": Value::Timestamp(Timestamp::from_bits(engine.store.durable_time())),
        "bytes": stats.bytes as i64,
        "maxBytes": stats.bytes_max as i64,
        "maxHours": (stats.age_max.as_secs() / 3600) as i64,
        "streams": engine.feed.streams() as i64,
    }
}

fn latency(latency: &Latency) -> Document {
    doc! {"latency": latency.micros.get() as i64, "ops": latency.operations.get() as i64}
}

/// How often each command that was asked for at all ran and failed.
fn by_command(metrics: &Metrics) -> Document {
    let mut shown = Document::new();
    for (spec, count) in COMMANDS.iter().zip(metrics.by_command(COMMANDS.len())) {
        let (failed, total) = (count.failed.get() as i64, count.total.get() as i64);
        if total > 0 {
            shown.push(spec.name, doc! {"failed": failed, "total": total}.as_raw());
        }
    }
    shown
}

/// How many cursors lived about how long, in the order of their names.
fn lifespans(tally: &Tally) -> Document {
    let mut named: Vec<(&str, i64)> = LIFESPANS
        .iter()
        .zip(&tally.lifespans)
        .map(|((name, _), ended)| (*name, ended.get() as i64))
        .collect();
    named.sort_unstable();
    let mut shown = Document::new();
    named.into_iter().for_each(|(name, ended)| shown.push(name, ended));
    shown
}

fn failed(metrics: &Metrics) -> i64 {
    metrics.by_command(COMMANDS.len()).iter().map(|count| count.failed.get() as i64).sum()
}

fn is_write(kind: &str) -> bool {
    matches!(kind, "insert" | "update" | "remove")
}

/// Resident and virtual memory of this process.
fn memory_mb() -> (i32, i32) {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_whitespace().map(|field| field.parse::<i64>().unwrap_or(0));
    let (total, resident) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    let megabytes = |pages: i64| (pages * 4096 / (1024 * 1024)) as i32;
    (megabytes(resident), megabytes(total))
}
