//! How change streams are opened and go on: from a position in the change log to the newest commit that is on disk.
//!
//! A stream is shown a commit only once it is on disk, whatever its writer asked for. Between batches it holds nothing of the
//! store, so a slow reader neither keeps the log nor a snapshot; it may find that the log no longer reaches back to it.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Timestamp, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use kilim_query::stage::Stage;
use kilim_query::update::Update;
use kilim_storage::{Bytes, CommitTime, Durability, LogPosition};

use crate::change_log::{Named, Record, Token};
use crate::engine::Engine;
use crate::feed::Entry;
use crate::limits;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::operator::ExecContext;
use crate::plan::ReadRequest;
use crate::read;
use crate::stream::{Scope, Stream, StreamOptions};
use crate::unit::Unit;
use crate::write::{self, UpdateRequest};

/// Where a stream begins.
#[derive(Debug, Clone)]
pub enum Start {
    /// With the next commit.
    Now,
    /// With the first commit of a time or later.
    At(CommitTime),
    /// Behind what a token names.
    After(Token),
}

/// Opens a stream.
pub fn open(
    engine: &Engine,
    scope: Scope,
    start: Start,
    options: StreamOptions,
    stages: Vec<Stage>,
) -> Result<Stream> {
    if !engine.store.logs() {
        return Err(Error::user(
            ErrorCode::IllegalOperation,
            "change streams need the change log, which is off: start the server without --change-log-hours 0",
        ));
    }
    // First, so that what is published after the stream has looked is told.
    let subscription = engine.feed.subscribe(scope);
    let scope = subscription.scope();
    let begins = engine.store.log_begins();
    let (next, token) = match start {
        Start::Now => {
            let time = engine.store.next_commit_time();
            (LogPosition { time, index: 0 }, Token::mark(time))
        }
        Start::At(time) => {
            if time <= begins && begins > 0 {
                return Err(history_lost(time, begins));
            }
            (LogPosition { time, index: 0 }, Token::mark(time))
        }
        Start::After(token) => {
            let Resumed { next, token, record } = behind(engine, scope, token, begins)?;
            if token.fragment.is_some() && !options.splits {
                return Err(Error::user(
                    ErrorCode::ChangeStreamFatalError,
                    "To resume from a split event, the resumed stream must include a $changeStreamSplitLargeEvent stage",
                ));
            }
            let position = token.position;
            let is_event = token.named == Named::Event;
            let mut stream = Stream::new(subscription, options, stages, next, token);
            // Behind an event that ends streams comes the end.
            if let Some(record) = record.filter(|_| is_event) {
                stream.end_by(position, &Record::decode(&record)?)?;
            }
            return Ok(stream);
        }
    };
    Ok(Stream::new(subscription, options, stages, next, token))
}

/// Where a stream goes on behind a token.
struct Resumed {
    next: LogPosition,
    /// The token that was sent, with the fragment that it names.
    token: Token,
    /// Of the event that it names.
    record: Option<Bytes>,
}

/// The position behind what a token names. An event that a token names must be there, and must be one of the scope's.
fn behind(engine: &Engine, scope: &Scope, token: Token, begins: CommitTime) -> Result<Resumed> {
    let position = token.position;
    if token.named == Named::Mark {
        return match position.time >= begins {
            true => {
                let next = LogPosition { time: position.time.max(begins + 1), index: 0 };
                Ok(Resumed { next, token, record: None })
            }
            false => Err(history_lost(position.time, begins)),
        };
    }
    if position.time <= begins {
        return Err(history_lost(position.time, begins));
    }
    let snapshot = engine.store.snapshot();
    let found = engine.store.log_from(&snapshot, position).next().transpose()?;
    if let Some((at, bytes)) = found
        && at == position
    {
        let record = Record::decode(&bytes)?;
        let named = Token::of(&record, at, token.named == Named::Invalidation);
        let is_known =
            scope.covers(&record) && (token.named != Named::Invalidation || scope.is_ended_by(record.kind));
        if let Some(token) = token.naming(&named).filter(|_| is_known) {
            // Of an event that was split, the fragments behind the one that is named are still to come.
            let index = position.index + u32::from(token.fragment.is_none());
            return Ok(Resumed { next: LogPosition { index, ..position }, token, record: Some(bytes) });
        }
    }
    let shown = kilim_query::text::document(token.to_document().as_raw());
    Err(Error::user(
        ErrorCode::ChangeStreamFatalError,
        format!(
            "cannot resume stream; the resume token was not found. {}",
            shown.replace("{ ", "{").replace(" }", "}")
        ),
    ))
}

fn history_lost(time: CommitTime, begins: CommitTime) -> Error {
    let shown = |time| {
        let Timestamp { seconds, increment } = Timestamp::from_bits(time);
        format!("Timestamp({seconds}, {increment})")
    };
    Error::user(
        ErrorCode::ChangeStreamHistoryLost,
        format!(
            "Resume of change stream was not possible, as the resume point may no longer be in the oplog. The change log \
             begins after {}, and {} was asked for: open a new stream, read what it is to follow anew, and give the \
             log more room with --change-log-hours or --change-log-size",
            shown(begins),
            shown(time)
        ),
    )
}

/// Has a stream look at what is new, until it has so many events ready; if it is to hurry, until it has some and its turn is
/// over. Gives up to which commit it has looked.
pub fn go_on(
    engine: &Engine,
    operation: &Arc<Operation>,
    stream: &mut Stream,
    documents_max: usize,
    hurries: bool,
) -> Result<CommitTime> {
    let until = engine.store.durable_time();
    if stream.next.time > until || stream.is_invalidated() {
        return Ok(until);
    }
    if stream.shows_images() {
        stream.images_from = images_from(engine, operation)?;
    }
    let lookup = |record: &Record<'_>| find_now(engine, operation, record);
    let mut bytes_ready = 0;
    let turn_ends = hurries.then(|| engine.environment().now() + limits::STREAM_TURN);
    let is_late = || turn_ends.is_some_and(|end| engine.environment().now() >= end);
    let mut was_large = false;
    // Gives whether the stream goes on.
    let mut take = |stream: &mut Stream, entry: &Arc<Entry>| -> Result<bool> {
        operation.check()?;
        if stream.ready_len() >= documents_max || bytes_ready >= limits::STREAM_BATCH_BYTES {
            return Ok(false);
        }
        // Looking at the clock takes a good part of what a small event does.
        let looks = was_large || stream.ready_len().is_multiple_of(16);
        if looks && stream.ready_len() > 0 && is_late() {
            return Ok(false);
        }
        let bytes = stream.take(entry, &lookup)?;
        was_large = bytes > 16 * 1024;
        bytes_ready += bytes;
        Ok(!stream.is_invalidated())
    };
    let chunk = documents_max.clamp(16, 256);
    loop {
        let Some(entries) = stream.subscription.held(stream.next, until, chunk) else { break };
        for entry in &entries {
            if !take(stream, entry)? {
                return Ok(until);
            }
        }
        if entries.len() < chunk {
            stream.note_seen(until);
            return Ok(until);
        }
    }
    // It has fallen behind what is held.
    stream.next = stream.subscription.first_from(stream.next);
    let snapshot = engine.store.snapshot();
    let rows = engine.store.log_from(&snapshot, stream.next);
    let begins = engine.store.log_begins();
    if stream.next.time <= begins && begins > 0 {
        return Err(history_lost(stream.next.time, begins));
    }
    for row in rows {
        let (position, bytes) = row?;
        if position.time > until {
            break;
        }
        if !take(stream, &Arc::new(Entry::new(position, bytes)))? {
            return Ok(until);
        }
    }
    stream.note_seen(until);
    Ok(until)
}

/// The document of an update as it is now. Its collection may have another name by now, and another collection its name.
fn find_now(engine: &Engine, operation: &Arc<Operation>, record: &Record<'_>) -> Result<Option<Document>> {
    let (Some(uuid), Some(id)) = (record.uuid, record.id()) else { return Ok(None) };
    let catalog = engine.catalog();
    let namespace =
        Namespace { database: record.database.to_owned(), collection: record.collection.to_owned() };
    let found = match catalog.get(&namespace).filter(|collection| collection.uuid == uuid) {
        Some(_) => Some(&namespace),
        None => catalog.database(record.database).find(|it| it.uuid == uuid).map(|it| &it.namespace),
    };
    match found {
        Some(namespace) => find(engine, operation, namespace, id),
        None => Ok(None),
    }
}

fn find(
    engine: &Engine,
    operation: &Arc<Operation>,
    namespace: &Namespace,
    id: RawValue<'_>,
) -> Result<Option<Document>> {
    let mut equal = Document::new();
    equal.push("$eq", id);
    let mut filter = Document::new();
    filter.push("_id", equal);
    let mut unit = Unit::new(engine, operation.clone(), Durability::Relaxed);
    let request = ReadRequest::new(Arc::new(Filter::parse(filter.as_raw())?));
    let mut executor = read::plan(&mut unit, namespace, request)?.execute();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    Ok(executor.next_document(&mut context)?.map(|row| row.document().to_document()))
}

/// Where cluster parameters are kept, as on MongoDB.
fn parameters() -> Namespace {
    Namespace { database: "config".to_owned(), collection: "clusterParameters".to_owned() }
}

/// The name of the cluster parameter that says how long images are shown.
pub const OPTIONS_PARAMETER: &str = "changeStreamOptions";

/// The stored value of [`OPTIONS_PARAMETER`].
pub fn options_parameter(engine: &Engine, operation: &Arc<Operation>) -> Result<Option<Document>> {
    match engine.collection(&parameters()) {
        Some(_) => find(engine, operation, &parameters(), RawValue::String(OPTIONS_PARAMETER)),
        None => Ok(None),
    }
}

/// Stores the value of [`OPTIONS_PARAMETER`], whose `_id` is its name.
pub fn set_options_parameter(unit: &mut Unit<'_>, value: &Document) -> Result<()> {
    let filter = doc! {"_id": OPTIONS_PARAMETER};
    let update = Update::parse(RawValue::Document(value.as_raw()), None, false)?;
    let request = UpdateRequest {
        filter: Arc::new(Filter::parse(filter.as_raw())?),
        update: &update,
        multi: false,
        upsert: true,
        hint: None,
        collation: None,
        now_ms: unit.engine.now_millis(),
        statement: 0,
        projection: None,
    };
    write::update(unit, &parameters(), &request).map(drop)
}

/// Images of earlier changes are no longer shown, in milliseconds since 1970.
fn images_from(engine: &Engine, operation: &Arc<Operation>) -> Result<i64> {
    let value = options_parameter(engine, operation)?;
    let images =
        value.as_ref().and_then(|value| value.get("preAndPostImages")).and_then(RawValue::as_document);
    Ok(match images.and_then(|images| images.get("expireAfterSeconds")) {
        Some(RawValue::Int64(seconds)) => engine.now_millis().saturating_sub(seconds.saturating_mul(1000)),
        _ => i64::MIN,
    })
}
