//! `getMore`: the next batch of a cursor.

use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, Writer, doc};
use kilim_engine::cursor::{Batch, Cursor, CursorSource, PutBack, StableApi};
use kilim_engine::fail_point::FailPoint;
use kilim_engine::operator::ExecContext;
use kilim_engine::{CommitTime, Namespace, listen, read};
use kilim_error::{Error, ErrorCode, Result};

use crate::access;
use crate::argument::{arguments, as_double};
use crate::cursor_reply;
use crate::dispatch::Call;
use crate::reply::while_executing;
use crate::suspended::Suspended;

const NAME: &str = "getMore";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    if call.wait.suspended.is_none() {
        call.engine.metrics.got_more.add(1);
    }
    let id = match call.body.get("getMore") {
        Some(RawValue::Int64(id)) => id,
        Some(RawValue::Null) | None => {
            return Err(Error::location(
                40414,
                "BSON field 'getMore.getMore' is missing but a required field",
            ));
        }
        Some(other) => {
            return Err(Error::user(
                ErrorCode::TypeMismatch,
                format!(
                    "BSON field 'getMore.getMore' is the wrong type '{}', expected type 'long'",
                    other.element_type().name()
                ),
            ));
        }
    };
    let (mut collection, mut batch_size) = (None, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "collection" => collection = Some(argument.string()?),
            "batchSize" => batch_size = Some(argument.not_negative()? as usize),
            // Members of a set ask each other so; there is only one.
            "term" | "lastKnownCommittedOpTime" => return Err(argument.unsupported()),
            _ => return Err(argument.unknown()),
        }
    }
    let Some(collection) = collection else {
        return Err(Error::location(
            40414,
            "BSON field 'getMore.collection' is missing but a required field",
        ));
    };
    let namespace = Namespace::parse(call.generic.database, collection)?;
    call.describe("getmore");
    let resumed = call.wait.suspended.take().map(|mut suspended| {
        call.trace.waited = suspended.waited();
        (suspended.take_cursor(), suspended.until)
    });
    let (mut cursor, waits_until) = match resumed {
        Some((Some(cursor), until)) => (cursor, Some(until)),
        _ => (call.engine.cursors.take(id)?, None),
    };
    // A refused reader leaves the cursor to its owner.
    if let Err(error) = check_owner(call, &cursor, &namespace, id) {
        call.engine.cursors.put_back(id, cursor);
        return Err(error);
    }
    call.trace.originating = cursor.originating.clone();
    if call.engine.options.test_commands
        && waits_until.is_none()
        && let Some(data) = call.engine.fail_points.fire(FailPoint::FailGetMoreAfterCursorCheckout)
    {
        call.engine.cursors.forget(id);
        let code = data.get("errorCode").and_then(as_double).map(|code| ErrorCode(code as i32));
        let message = "Hit the 'failGetMoreAfterCursorCheckout' failpoint";
        return Err(Error::user(code.unwrap_or(ErrorCode::InternalError), message));
    }
    match next_batch(call, id, &mut cursor, batch_size, waits_until) {
        Ok(Next::Suspended { seen, until }) => {
            // What stages and lookups take nobody knows: others shall not wait for it.
            let is_quick = matches!(&cursor.source, CursorSource::Stream(stream) if stream.is_plain());
            call.client.awaited_cursor = is_quick.then_some(id);
            let waited = call.trace.waited;
            let suspended = Suspended::new(call.engine, &call.operation, (id, cursor), seen, until, waited);
            call.client.suspended = Some(suspended);
            Ok(Document::new())
        }
        Ok(Next::Batch(writer, exhausted)) => {
            if exhausted {
                call.engine.cursors.forget(id);
                return cursor_reply::finish(writer, 0, &namespace);
            }
            if call.engine.cursors.put_back(id, cursor) == PutBack::Killed {
                return Err(killed());
            }
            if call.request.exhaust_allowed {
                call.exhaust_next = Some(call.body.to_document());
            }
            cursor_reply::finish(writer, id, &namespace)
        }
        Err(error) => {
            // It has lost its place.
            call.engine.cursors.forget(id);
            Err(error)
        }
    }
}

fn killed() -> Error {
    while_executing(
        "Executor error during getMore",
        Error::user(ErrorCode::CursorKilled, "operation was interrupted"),
    )
}

/// Whether the operation may go on. It ends in the words of a cursor that is read.
fn check_operation(call: &Call<'_, '_>) -> Result<()> {
    call.operation.check().map_err(|error| match error {
        Error::User(mut user) if user.code == ErrorCode::Interrupted => {
            user.message = format!("Executor error during getMore :: caused by :: {}", user.message);
            Error::User(user)
        }
        other => other,
    })
}

enum Next {
    /// And whether it was the last.
    Batch(Writer, bool),
    /// There is none yet, and no thread waits for it.
    Suspended { seen: CommitTime, until: Instant },
}

fn next_batch(
    call: &mut Call<'_, '_>,
    id: i64,
    cursor: &mut Cursor,
    size: Option<usize>,
    waits_until: Option<Instant>,
) -> Result<Next> {
    let before = cursor.returned;
    // Streams wait with it, and most have little to show.
    let is_stream = matches!(cursor.source, CursorSource::Stream(_));
    let mut writer = Writer::with_capacity(if is_stream { 256 } else { 4096 });
    writer.open_document("cursor");
    writer.open_array("nextBatch");
    let operation = call.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut fill = |cursor: &mut Cursor| {
        cursor
            .fill(&mut writer, Batch::next(size), &mut context)
            .map_err(|error| while_executing("Executor error during getMore", error))
    };
    let exhausted = match cursor.source {
        CursorSource::Tail(_) => wait_for_more(call, id, cursor, fill)?,
        CursorSource::Stream(_) => {
            let documents_max = Batch::next(size).documents_max;
            match wait_for_events(call, id, cursor, documents_max, waits_until, fill)? {
                Waited::Over(exhausted) => exhausted,
                Waited::Suspended { seen, until } => return Ok(Next::Suspended { seen, until }),
            }
        }
        _ => fill(cursor)?,
    };
    writer.close();
    cursor_reply::append_token(&mut writer, cursor);
    call.unit.figures.add(context.figures);
    call.engine.metrics.documents_returned.add(cursor.returned - before);
    Ok(Next::Batch(writer, exhausted))
}

/// How long a getMore with `awaitData` waits where nobody says.
const AWAIT: Duration = Duration::from_secs(1);

/// A stream that has shown nothing for so long may well show nothing for hours.
const REST_AFTER: Duration = Duration::from_secs(1);

/// The next batch of a tailable cursor: what has arrived, waited for if it was asked to.
fn wait_for_more(
    call: &mut Call<'_, '_>,
    id: i64,
    cursor: &mut Cursor,
    mut fill: impl FnMut(&mut Cursor) -> Result<bool>,
) -> Result<bool> {
    // Here `maxTimeMS` bounds the waiting, and is no reason to fail.
    call.operation.set_time_limit(None);
    let waits = match call.body.get("maxTimeMS") {
        None => AWAIT,
        // Unlike elsewhere, 0 is no time at all.
        Some(_) => call.generic.time_limit.unwrap_or(Duration::ZERO),
    };
    let until = Instant::now() + waits;
    let returned = cursor.returned;
    loop {
        let snapshot = call.engine.store.snapshot();
        if cursor.collection.is_some_and(|id| call.engine.catalog().by_id(id).is_none()) {
            return Err(Error::user(
                ErrorCode::QueryPlanKilled,
                format!(
                    "Executor error during getMore :: caused by :: collection dropped: {}",
                    cursor.namespace
                ),
            ));
        }
        if let CursorSource::Tail(tail) = &mut cursor.source {
            read::go_on(call.engine, tail, &snapshot)
                .map_err(|error| while_executing("Executor error during getMore", error))?;
        }
        let exhausted = fill(cursor)?;
        if let CursorSource::Tail(tail) = &mut cursor.source {
            tail.rest();
        }
        let seen = snapshot.commit_time();
        drop(snapshot);
        if cursor.returned != returned || !cursor.awaits {
            return Ok(exhausted);
        }
        let (operations, cursors) = (&call.engine.operations, &call.engine.cursors);
        let begun = Instant::now();
        call.engine.store.wait_past(seen, until, &|| {
            call.operation.check().is_err() || operations.is_ending() || cursors.is_killed(id)
        });
        call.trace.waited += begun.elapsed();
        check_operation(call)?;
        if cursors.is_killed(id) {
            return Err(killed());
        }
        if operations.is_ending() || Instant::now() >= until || access::is_outdated(call.client) {
            return Ok(exhausted);
        }
    }
}

enum Waited {
    /// And whether the stream has ended.
    Over(bool),
    Suspended {
        seen: CommitTime,
        until: Instant,
    },
}

/// The next batch of a change stream: what has come to be on disk, waited for. One that has waited before says until when.
fn wait_for_events(
    call: &mut Call<'_, '_>,
    id: i64,
    cursor: &mut Cursor,
    documents_max: usize,
    waits_until: Option<Instant>,
    mut fill: impl FnMut(&mut Cursor) -> Result<bool>,
) -> Result<Waited> {
    call.operation.set_time_limit(None);
    let waits = match call.body.get("maxTimeMS") {
        None => AWAIT,
        Some(_) => call.generic.time_limit.unwrap_or(Duration::ZERO),
    };
    let until = waits_until.unwrap_or_else(|| Instant::now() + waits);
    let (operations, cursors) = (&call.engine.operations, &call.engine.cursors);
    let returned = cursor.returned;
    let mut has_waited = waits_until.is_some();
    loop {
        let mut is_last = false;
        if has_waited {
            check_operation(call)?;
            if cursors.is_killed(id) {
                return Err(killed());
            }
            // What has come is not shown to somebody who may have lost the right to it: the next getMore asks.
            if operations.is_ending() || access::is_outdated(call.client) {
                return Ok(Waited::Over(false));
            }
            is_last = Instant::now() >= until;
        }
        let CursorSource::Stream(stream) = &mut cursor.source else { return Ok(Waited::Over(true)) };
        // Also if the time is over: the token of the reply says up to where there was nothing.
        let hurries = call.wait.may_suspend;
        let seen = listen::go_on(call.engine, &call.operation, stream, documents_max, hurries)
            .map_err(|error| while_executing("Executor error during getMore", error))?;
        let exhausted = fill(cursor)?;
        if cursor.returned != returned || exhausted || is_last {
            return Ok(Waited::Over(exhausted));
        }
        if call.wait.may_suspend {
            return Ok(Waited::Suspended { seen, until });
        }
        let is_ended = || call.operation.check().is_err() || operations.is_ending() || cursors.is_killed(id);
        let CursorSource::Stream(stream) = &cursor.source else { return Ok(Waited::Over(true)) };
        let begun = Instant::now();
        let awake_until = until.min(begun + REST_AFTER);
        stream.subscription.wait(seen, awake_until, &is_ended);
        if Instant::now() >= awake_until && awake_until < until {
            // Nothing is done between these two: it would take the memory again.
            kilim_memory::rest();
            stream.subscription.wait(seen, until, &is_ended);
        }
        call.trace.waited += begun.elapsed();
        has_waited = true;
    }
}

/// A cursor is read on by its own session, in its own transaction, under its own name.
fn check_owner(call: &Call<'_, '_>, cursor: &Cursor, namespace: &Namespace, id: i64) -> Result<()> {
    if call.body.get("maxTimeMS").is_some() && !cursor.awaits {
        return Err(Error::user(
            ErrorCode::BadValue,
            "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
        ));
    }
    if cursor.namespace != *namespace {
        return Err(Error::user(
            ErrorCode::Unauthorized,
            format!(
                "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                cursor.namespace
            ),
        ));
    }
    check_api(call, cursor)?;
    access::check_cursor(call, cursor.user.as_ref(), cursor.claims.as_ref(), id)?;
    let ours = call.generic.session;
    let in_transaction = call.unit.is_transaction().then_some(call.generic.transaction_number).flatten();
    match (cursor.session, ours) {
        (None, Some(_)) => Err(Error::location(
            50736,
            format!("Cannot run getMore on cursor {id}, which was not created in a session, in a session"),
        )),
        (Some(_), None) => Err(Error::location(
            50737,
            format!("Cannot run getMore on cursor {id}, which was created in a session, without an lsid"),
        )),
        (Some(theirs), Some(ours)) if theirs != ours => Err(Error::location(
            50738,
            format!(
                "Cannot run getMore on cursor {id}, which was created in session {theirs}, in session {ours}"
            ),
        )),
        _ => match (cursor.transaction, in_transaction) {
            (None, Some(_)) => Err(Error::location(
                50739,
                format!(
                    "Cannot run getMore on cursor {id}, which was not created in a transaction, in a transaction"
                ),
            )),
            (Some(_), None) => Err(Error::location(
                50740,
                format!(
                    "Cannot run getMore on cursor {id}, which was created in a transaction, without a txnNumber"
                ),
            )),
            (Some(theirs), Some(ours)) if theirs != ours => Err(Error::location(
                50741,
                format!(
                    "Cannot run getMore on cursor {id}, which was created in transaction {theirs}, in transaction {ours}"
                ),
            )),
            _ => Ok(()),
        },
    }
}

/// A cursor is read on with the parameters of the stable API that it was opened with.
fn check_api(call: &Call<'_, '_>, cursor: &Cursor) -> Result<()> {
    let (ours, theirs) = (call.generic.api, cursor.api);
    if ours == theirs {
        return Ok(());
    }
    let (ours, theirs) = (shown(ours), shown(theirs));
    Err(Error::user(
        ErrorCode::APIMismatchError,
        format!(
            "API parameter mismatch: getMore used params {ours}, the cursor-creating command used {theirs}"
        ),
    ))
}

fn shown(api: Option<StableApi>) -> String {
    let Some(StableApi { strict, deprecation_errors }) = api else { return "{}".to_owned() };
    let mut shown = doc! {"apiVersion": "1"};
    for (name, value) in [("apiStrict", strict), ("apiDeprecationErrors", deprecation_errors)] {
        value.into_iter().for_each(|value| shown.push(name, value));
    }
    kilim_query::text::document(shown.as_raw())
}
