//! `hello` and `isMaster`: what drivers ask first, and then again and again.

use std::time::Duration;

use kilim_auth::UserName;
use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value, doc};
use kilim_engine::limits;
use kilim_error::{Error, ErrorCode, Result};

use super::update::now_ms;
use super::{authenticate, sasl};
use crate::access::store;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;
use crate::topology;

/// MongoDB 7.0's.
pub const WIRE_VERSION_MAX: i32 = 21;
/// What a message may hold.
pub const MESSAGE_BYTES_MAX: i32 = 48_000_000;

/// How long a monitoring hello waits for a change that never comes, at most.
const AWAIT_MAX: Duration = Duration::from_secs(10);

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    reply(call, "isWritablePrimary")
}

pub fn run_is_master(call: &mut Call<'_, '_>) -> Result<Document> {
    reply(call, "ismaster")
}

fn reply(call: &mut Call<'_, '_>, primary: &str) -> Result<Document> {
    let (mut compression, mut await_ms, mut seen, mut hello_ok) = (Vec::new(), None, None, false);
    let (mut mechanisms_of, mut speculative) = (None, None);
    for argument in arguments("hello", call.body) {
        match argument.name {
            "client" => keep_metadata(call, argument.document()?)?,
            "compression" => {
                let offered = argument.array()?;
                for (index, value) in offered.as_document().iter() {
                    let name = format!("compression.{index}");
                    if !matches!(value, RawValue::Null) {
                        Argument { command: argument.command, name: &name, value }.string()?;
                    }
                }
                let ours = offered.iter().filter_map(RawValue::as_str);
                compression =
                    ours.filter(|name| ["snappy", "zstd", "zlib"].contains(name)).map(Value::from).collect();
            }
            "maxAwaitTimeMS" => await_ms = Some(argument.not_negative()?),
            "helloOk" => hello_ok = argument.boolean()?,
            "topologyVersion" => seen = Some(argument.document()?),
            "saslSupportedMechs" => mechanisms_of = Some(parse_user(&argument)?),
            "speculativeAuthenticate" => speculative = Some(argument.document()?),
            // As mongod: newer drivers announce here what older servers have never heard of.
            _ => {}
        }
    }
    if await_ms.is_some() != seen.is_some() {
        return Err(Error::location(
            31368,
            "A request with a 'topologyVersion' must include 'maxAwaitTimeMS' and the other way round",
        ));
    }
    if let (Some(millis), Some(seen)) = (await_ms, seen)
        && matches!(seen.get("processId"), Some(RawValue::ObjectId(id)) if id == topology::process_id())
    {
        wait(call, Duration::from_millis(millis).min(AWAIT_MAX));
        if call.request.exhaust_allowed {
            call.exhaust_next = Some(call.body.to_document());
        }
    }
    let address = call.client.local.to_string();
    let mut document = Document::new();
    if hello_ok {
        document.push("helloOk", true);
    }
    document.push("topologyVersion", topology::version());
    document.push("hosts", vec![Value::from(address.as_str())]);
    document.push("setName", topology::SET_NAME);
    document.push("setVersion", 1);
    document.push(primary, true);
    document.push("secondary", false);
    document.push("primary", address.as_str());
    document.push("me", address.as_str());
    document.push("electionId", topology::election_id());
    let written = Timestamp::from_bits(call.engine.store.last_commit_time());
    let write_date = Value::DateTime(i64::from(written.seconds) * 1000);
    let op_time = || doc! {"ts": written, "t": 1i64};
    document.push(
        "lastWrite",
        doc! {
            "opTime": op_time(),
            "lastWriteDate": write_date.clone(),
            "majorityOpTime": op_time(),
            "majorityWriteDate": write_date,
        },
    );
    document.push("maxBsonObjectSize", limits::DOCUMENT_BYTES_MAX as i32);
    document.push("maxMessageSizeBytes", MESSAGE_BYTES_MAX);
    document.push("maxWriteBatchSize", limits::WRITE_BATCH_STATEMENTS_MAX as i32);
    document.push("localTime", Value::DateTime(now_ms()));
    document.push("logicalSessionTimeoutMinutes", (limits::SESSION_IDLE.as_secs() / 60) as i32);
    document.push("connectionId", call.client.id as i32);
    document.push("minWireVersion", 0);
    document.push("maxWireVersion", WIRE_VERSION_MAX);
    document.push("readOnly", false);
    if !compression.is_empty() {
        document.push("compression", compression);
    }
    if let Some(user) = mechanisms_of
        && let Some(user) = store::user(call.engine, &call.operation, &user)?
    {
        let names: Vec<Value> = user.credentials.mechanisms().into_iter().map(Value::from).collect();
        document.push("saslSupportedMechs", names);
    }
    if let Some(command) = speculative {
        // A login that cannot begin here leaves the field out: the driver begins it again by itself.
        if let Some(begun) = begin_login(call, command)? {
            document.push("speculativeAuthenticate", begun);
        }
    }
    Ok(document)
}

/// `database.user`, or `{user, db}`.
fn parse_user(argument: &Argument<'_>) -> Result<UserName> {
    match argument.value {
        RawValue::String(text) => match text.split_once('.') {
            Some((db, user)) => Ok(UserName::new(user, db)),
            None => Err(Error::user(
                ErrorCode::BadValue,
                "UserName must contain a '.' separated database.user pair",
            )),
        },
        RawValue::Document(_) => UserName::parse(argument.value, "admin"),
        _ => Err(argument.wrong_type("types '[string, object']")),
    }
}

/// Begins the login that a driver sends along, to save a message.
fn begin_login(call: &mut Call<'_, '_>, command: RawDocument<'_>) -> Result<Option<Document>> {
    let name = command.iter().next().map(|(name, _)| name).unwrap_or_default();
    let db = command.get("db").and_then(RawValue::as_str).map(str::to_owned);
    match (name, db) {
        ("saslStart", Some(db)) => Ok(sasl::begin(call, command, &db).ok()),
        ("authenticate", Some(_)) => Ok(authenticate::by_certificate(call, command).ok()),
        ("saslStart" | "authenticate", None) => Ok(None),
        _ => Err(Error::location(51769, format!("hello.speculativeAuthenticate unknown command: {name}"))),
    }
}

/// The driver's name and version, told once a connection.
fn keep_metadata(call: &mut Call<'_, '_>, metadata: RawDocument<'_>) -> Result<()> {
    if metadata.as_bytes().len() > 512 + 16 {
        return Err(Error::user(
            ErrorCode::ClientMetadataDocumentTooLarge,
            "The client metadata document must be less then or equal to 512 bytes",
        ));
    }
    if call.client.metadata.is_none() {
        let app = metadata.get("application").and_then(RawValue::as_document);
        let name = app.and_then(|app| app.get("name")).and_then(RawValue::as_str);
        call.client.app_name = name.map(str::to_owned);
        call.client.metadata = Some(metadata.to_document());
        call.engine.connections.note(call.client.id, |told| told.metadata = Some(metadata.to_document()));
    }
    Ok(())
}

/// The topology never changes, so a monitor waits its time out; shutting down wakes it.
fn wait(call: &Call<'_, '_>, time: Duration) {
    call.engine.operations.wait(&call.operation, std::time::Instant::now() + time);
}
