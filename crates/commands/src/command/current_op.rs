//! `currentOp`: what runs now.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::Engine;
use kilim_engine::catalog::Collection;
use kilim_engine::connections::Connection;
use kilim_engine::cursor::{IdleCursor, Told};
use kilim_engine::ids::SessionId;
use kilim_engine::index::{BuildProgress, Phase};
use kilim_engine::operation::User;
use kilim_engine::patterns::{Job, JobKind};
use kilim_engine::session::OpenTransaction;
use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_query::stage::CurrentOp;

use super::build_info::host;
use super::update::now_ms;
use crate::dispatch::Call;
use crate::request::is_generic;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    // Everything but its own options is a filter on what it shows.
    let mut filter = Document::new();
    for (name, value) in call.body.iter().skip(1) {
        if !name.starts_with('$') && !is_generic(name) {
            filter.push(name, value.to_value());
        }
    }
    let only_own = matches!(call.body.get("$ownOps"), Some(value) if value.as_bool() != Some(false));
    let identity = call.client.login.identity.as_ref().filter(|_| only_own);
    if let Some(identity) = identity {
        filter.push("effectiveUsers", users(&identity.user));
    }
    let filter = Filter::parse(filter.as_raw())?;
    let mut operations = Vec::new();
    let all = matches!(call.body.get("$all"), Some(value) if value.as_bool() != Some(false));
    let mut stage = CurrentOp::default();
    (stage.idle_sessions, stage.idle_connections) = (true, all);
    for operation in shown(call.engine, &stage) {
        if filter.matches(operation.as_raw())? {
            operations.push(operation);
        }
    }
    let mut reply = doc! {"inprog": operations};
    if call.engine.fsync_lock.count() > 0 {
        reply.push("fsyncLock", true);
        reply.push("info", "use db.fsyncUnlock() to terminate the fsync write/snapshot lock");
    }
    Ok(reply)
}

/// All that runs, and what is idle as far as it is asked for.
pub fn shown(engine: &Engine, stage: &CurrentOp) -> Vec<Document> {
    let mut shown = running(engine);
    if stage.idle_connections {
        let active: HashSet<u64> =
            engine.operations.list().iter().map(|operation| operation.connection).collect();
        let idle = engine.connections.list().into_iter().filter(|it| !active.contains(&it.id));
        shown.extend(idle.map(|connection| idle_connection(engine, &connection)));
    }
    if stage.idle_cursors {
        shown.extend(engine.cursors.list_idle().iter().map(|cursor| idle_cursor(engine, cursor)));
    }
    if stage.idle_sessions {
        let open = engine.sessions.list_open_transactions();
        shown.extend(open.iter().map(|transaction| idle_session(engine, transaction)));
    }
    shown
}

fn idle_connection(engine: &Engine, connection: &Connection) -> Document {
    let told = connection.told();
    let mut document = doc! {
        "type": "op",
        "host": host(engine),
        "desc": format!("conn{}", connection.id),
        "connectionId": connection.id as i64,
        "client": connection.peer.to_string(),
        "clientMetadata": told.metadata.map(Value::Document),
        "active": false,
    };
    if let Some(user) = &told.user {
        document.push("effectiveUsers", users(user));
    }
    document
}

fn idle_cursor(engine: &Engine, cursor: &IdleCursor) -> Document {
    let mut document = doc! {"type": "idleCursor", "host": host(engine), "ns": cursor.namespace.to_string()};
    for (name, value) in session_and_user(cursor.session, cursor.user.as_deref()) {
        document.push(name, value);
    }
    document.push("cursor", cursor_of(cursor.id, cursor.opened, &cursor.told));
    document
}

fn cursor_of(id: i64, opened: Instant, told: &Told) -> Document {
    doc! {
        "cursorId": id,
        "createdDate": date_of(opened),
        "lastAccessDate": date_of(told.last_use),
        "nDocsReturned": told.returned as i64,
        "nBatchesReturned": told.batches as i64,
        "noCursorTimeout": told.immortal,
        "tailable": told.tailable,
        "awaitData": told.awaits,
        "originatingCommand": told.originating.as_deref().cloned().map(Value::Document),
    }
}

/// A session that holds a transaction open and runs nothing.
fn idle_session(engine: &Engine, transaction: &OpenTransaction) -> Document {
    let mut document = doc! {"type": "idleSession", "host": host(engine), "desc": "inactive transaction"};
    for (name, value) in session_and_user(Some(transaction.session), transaction.owner.as_deref()) {
        document.push(name, value);
    }
    let open = transaction.started.elapsed();
    let expires = engine.settings.transaction_lifetime().saturating_sub(open);
    document.push(
        "transaction",
        doc! {
            "parameters": {"txnNumber": transaction.number, "autocommit": false},
            "startWallClockTime": date_of(transaction.started),
            "timeOpenMicros": open.as_micros() as i64,
            "expiryTime": Value::DateTime(now_ms() + expires.as_millis() as i64),
        },
    );
    document.push("waitingForLock", false);
    document.push("active", false);
    document
}

fn session_and_user(session: Option<SessionId>, user: Option<&User>) -> Vec<(&'static str, Value)> {
    let id = session.map(|id| Value::Binary { subtype: 4, bytes: id.0.to_vec() });
    let session = id.map(|id| ("lsid", Value::Document(doc! {"id": id})));
    session.into_iter().chain(user.map(|user| ("effectiveUsers", users(user)))).collect()
}

/// When something was, by the wall's clock.
fn date_of(moment: Instant) -> Value {
    Value::DateTime(now_ms() - moment.elapsed().as_millis() as i64)
}

/// All that runs.
fn running(engine: &Engine) -> Vec<Document> {
    let shown = engine.operations.list().into_iter().map(|operation| {
        let nothing = Document::new();
        let command = operation.command().unwrap_or(&nothing);
        let running = operation.started.elapsed();
        let mut document = doc! {
            "type": "op",
            "host": host(engine),
            "desc": format!("conn{}", operation.connection),
            "connectionId": operation.connection as i64,
            "active": true,
            "opid": operation.id as i32,
            "secs_running": running.as_secs() as i64,
            "microsecs_running": running.as_micros() as i64,
            "op": operation.kind(),
            "ns": namespace_of(command),
            "command": command.clone(),
        };
        if let Some(RawValue::Int64(id)) = command.get("getMore")
            && let Some((opened, told)) = engine.cursors.in_use(id)
        {
            let mut cursor = cursor_of(id, opened, &told);
            cursor.push("operationUsingCursorId", operation.id);
            document.push("cursor", cursor);
        }
        let check = |job: &&Arc<Job>| job.kind == JobKind::Verify && job.is_run_by(&operation);
        if let Some(job) = engine.jobs.lock().iter().find(check) {
            push_progress(&mut document, "Pattern: comparing documents", job.progress());
        }
        if let Some(progress) = operation.progress() {
            push_progress(&mut document, progress.what, (progress.done, progress.total));
        }
        if let Some(user) = operation.user() {
            document.push("effectiveUsers", users(user));
        }
        if let Some(session) = command.get("lsid") {
            document.push("lsid", session.to_value());
        }
        document
    });
    shown.chain(index_builds(engine)).collect()
}

/// For whom something runs.
pub fn users(user: &User) -> Value {
    Value::from(vec![Value::Document(doc! {"user": &user.name, "db": &user.db})])
}

/// Index builds and how far they are, as mongod's builders tell it.
fn index_builds(engine: &Engine) -> Vec<Document> {
    let catalog = engine.catalog();
    let mut builds = Vec::new();
    for collection in catalog.iter() {
        let mut building = collection.building.iter().peekable();
        while let Some(first) = building.next() {
            let mut specs = vec![first.index.spec.to_document()];
            while let Some(next) = building.next_if(|next| Arc::ptr_eq(&next.build, &first.build)) {
                specs.push(next.index.spec.to_document());
            }
            builds.push(index_build(engine, collection, &first.build, specs));
        }
    }
    builds
}

fn index_build(
    engine: &Engine,
    collection: &Collection,
    build: &BuildProgress,
    specs: Vec<Document>,
) -> Document {
    let (phase, done, total) = build.now();
    let running = build.started.elapsed();
    let mut document = doc! {
        "type": "op",
        "host": host(engine),
        "desc": "IndexBuildsCoordinator",
        "active": true,
        "secs_running": running.as_secs() as i64,
        "microsecs_running": running.as_micros() as i64,
        "op": "command",
        "ns": collection.namespace.to_string(),
        "command": {
            "createIndexes": &collection.namespace.collection,
            "indexes": specs,
            "$db": &collection.namespace.database,
        },
    };
    let what = match phase {
        Phase::Scanning => "Index Build: scanning collection",
        Phase::Loading => "Index Build: inserting keys from external sorter into index",
        Phase::CatchingUp => {
            document.push("msg", "Index Build: draining writes received during build");
            return document;
        }
    };
    push_progress(&mut document, what, (done, total));
    document
}

/// How far an operation is, as mongod words it.
fn push_progress(document: &mut Document, what: &str, (done, total): (u64, u64)) {
    let percent = (done * 100).checked_div(total).unwrap_or(0).min(100);
    document.push("msg", format!("{what} {what}: {done}/{total} {percent}%"));
    document.push("progress", doc! {"done": done as i64, "total": total as i64});
}

/// The collection that a command names, or that it is about its database.
fn namespace_of(command: &Document) -> String {
    let database = command.get("$db").and_then(RawValue::as_str).unwrap_or_default();
    let named = match command.iter().next() {
        Some(("getMore", _)) => command.get("collection").and_then(RawValue::as_str),
        Some((_, RawValue::String(collection))) => Some(collection),
        _ => None,
    };
    format!("{database}.{}", named.unwrap_or("$cmd"))
}
