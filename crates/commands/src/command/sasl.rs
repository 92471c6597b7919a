//! `saslStart` and `saslContinue`: log in by SCRAM. `hello` begins a login by the same functions.
//!
//! Whatever goes wrong, the answer is the same, and so is its time: an unknown user takes the same steps with a credential
//! of nobody. After some failures in a row each further one takes longer.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kilim_auth::{ClientFirst, Credential, Mechanism, ServerExchange, UserName};
use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::write_reply::required;
use crate::access::{Conversation, Identity, store};
use crate::argument::{Argument, arguments, nested};
use crate::dispatch::Call;

const START: &str = "saslStart";
const CONTINUE: &str = "saslContinue";
/// One login at a time, so its number need not grow.
const CONVERSATION: i32 = 1;
/// Bytes of the server's part of a nonce.
const NONCE_BYTES: usize = 24;

pub fn start(call: &mut Call<'_, '_>) -> Result<Document> {
    let database = call.generic.database.to_owned();
    begin(call, call.body, &database).inspect_err(|error| {
        if error.code() == ErrorCode::AuthenticationFailed {
            tracing::info!(peer = %call.client.peer, "a login failed");
        }
    })
}

/// Begins a login; `database` is where the user is.
pub fn begin(call: &mut Call<'_, '_>, body: RawDocument<'_>, database: &str) -> Result<Document> {
    let (mut mechanism, mut payload, mut skips_empty) = (None, None, false);
    for argument in arguments(START, body) {
        match argument.name {
            "mechanism" => mechanism = Some(argument.string()?),
            "payload" => payload = Some(Payload::parse(&argument)?),
            "options" => {
                for option in nested("saslStart.options", argument.document()?) {
                    if option.name == "skipEmptyExchange" {
                        skips_empty = option.boolean()?;
                    }
                }
            }
            // Of no consequence on mongod either. `db` is of a login within hello.
            "autoAuthorize" | "db" => {}
            _ => return Err(argument.unknown()),
        }
    }
    let name = required(mechanism, START, "mechanism")?;
    let payload = required(payload, START, "payload")?;
    let mechanism = Mechanism::find(name).ok_or_else(|| not_enabled(name))?;
    call.client.login.conversation = None;
    let first = ClientFirst::parse(&payload.bytes).ok_or_else(failed)?;
    let user = UserName::new(&first.user, database);
    let known = store::user(call.engine, &call.operation, &user)?;
    let credential = known.as_ref().and_then(|user| user.credentials.of(mechanism)).cloned();
    let is_real = credential.is_some();
    let nobody = || {
        let (secret, iterations) = (store::server_secret(call.engine), iterations(call, mechanism));
        Credential::of_nobody(mechanism, &secret, &user.id(), iterations)
    };
    let credential = credential.unwrap_or_else(nobody);
    let random = random_bytes(call, NONCE_BYTES);
    let (exchange, answer) = ServerExchange::begin(mechanism, first, credential, is_real, &random);
    let conversation =
        Conversation { id: CONVERSATION, user, mechanism, exchange, skips_empty, proven: false };
    call.client.login.conversation = Some(conversation);
    Ok(reply(false, payload.answer(answer)))
}

pub fn go_on(call: &mut Call<'_, '_>) -> Result<Document> {
    let (mut id, mut payload) = (None, None);
    for argument in arguments(CONTINUE, call.body) {
        match argument.name {
            "conversationId" => id = Some(argument.integer()?),
            "payload" => payload = Some(Payload::parse(&argument)?),
            _ => return Err(argument.unknown()),
        }
    }
    let id = required(id, CONTINUE, "conversationId")?;
    let payload = required(payload, CONTINUE, "payload")?;
    let protocol = |message: &str| Error::user(ErrorCode::ProtocolError, message.to_owned());
    let conversation = call.client.login.conversation.take();
    let mut conversation = conversation.ok_or_else(|| protocol("No SASL session state found"))?;
    if i64::from(conversation.id) != id {
        return Err(protocol("sasl: Mismatched conversation id"));
    }
    if conversation.proven {
        if !payload.bytes.is_empty() {
            return Err(failed());
        }
        log_in(call, &conversation.user, conversation.mechanism.name())?;
        return Ok(reply(true, payload.answer(Vec::new())));
    }
    let Some(answer) = conversation.exchange.finish(&payload.bytes) else {
        return Err(refuse(call, &conversation.user, conversation.mechanism.name()));
    };
    let done = conversation.skips_empty;
    match done {
        true => log_in(call, &conversation.user, conversation.mechanism.name())?,
        false => {
            conversation.proven = true;
            call.client.login.conversation = Some(conversation);
        }
    }
    Ok(reply(done, payload.answer(answer)))
}

/// A user has proven who he is.
pub fn log_in(call: &mut Call<'_, '_>, user: &UserName, mechanism: &str) -> Result<()> {
    if let Some(before) = &call.client.login.identity
        && before.name != *user
    {
        return Err(Error::location(
            5626701,
            format!(
                "Each client connection may only be authenticated once. Previously authenticated as: {}",
                before.name
            ),
        ));
    }
    let client = &call.client;
    let addresses = (client.peer.ip(), client.local.ip());
    let loaded = Identity::load(call.engine, &client.access, &call.operation, user, addresses)?;
    // He is gone by now, or may not come from there.
    let Some(identity) = loaded else { return Err(refuse(call, user, mechanism)) };
    call.client.access.failures().forget(call.client.peer.ip(), &user.to_string());
    tracing::info!(user = %user, peer = %call.client.peer, "logged in");
    call.engine.connections.note(call.client.id, |told| told.user = Some(identity.user.clone()));
    call.client.login.identity = Some(Arc::new(identity));
    if let Some(audit) = call.client.access.audit() {
        audit.note_login(call.client, user, mechanism, ErrorCode(0));
    }
    Ok(())
}

/// Notes a failure, waits if there were many, and gives the answer.
pub fn refuse(call: &Call<'_, '_>, user: &UserName, mechanism: &str) -> Error {
    let now = call.engine.environment().now();
    let wait = call.client.access.failures().note(call.client.peer.ip(), &user.to_string(), now);
    tracing::info!(user = %user, peer = %call.client.peer, "a login failed");
    if let Some(audit) = call.client.access.audit() {
        audit.note_login(call.client, user, mechanism, ErrorCode::AuthenticationFailed);
    }
    if !wait.is_zero() {
        call.engine.operations.wait(&call.operation, now + wait);
    }
    failed()
}

pub fn not_enabled(mechanism: &str) -> Error {
    Error::user(
        ErrorCode::MechanismUnavailable,
        format!("Received authentication for mechanism {mechanism} which is not enabled"),
    )
}

/// The answer to every failure.
pub fn failed() -> Error {
    Error::user(ErrorCode::AuthenticationFailed, "Authentication failed.")
}

fn reply(done: bool, payload: Value) -> Document {
    doc! {"conversationId": CONVERSATION, "done": done, "payload": payload}
}

pub fn random_bytes(call: &Call<'_, '_>, count: usize) -> Vec<u8> {
    let words = std::iter::repeat_with(|| call.engine.environment().random().to_le_bytes());
    words.flatten().take(count).collect()
}

/// A message of the mechanism: bytes, or as a text in base64, and then it is answered as one.
struct Payload {
    bytes: Vec<u8>,
    is_text: bool,
}

impl Payload {
    fn parse(argument: &Argument<'_>) -> Result<Payload> {
        match argument.value {
            RawValue::Binary { bytes, .. } => Ok(Payload { bytes: bytes.to_vec(), is_text: false }),
            RawValue::String(text) => {
                let bytes = BASE64.decode(text).map_err(|_| {
                    Error::user(ErrorCode::FailedToParse, "not a valid base64 string".to_owned())
                })?;
                Ok(Payload { bytes, is_text: true })
            }
            other => Err(Error::user(
                ErrorCode::BadValue,
                format!(
                    "Invalid SASLPayload type. Expected Base64 or BinData, got: {}",
                    other.element_type().name()
                ),
            )),
        }
    }

    fn answer(&self, bytes: Vec<u8>) -> Value {
        match self.is_text {
            true => Value::from(BASE64.encode(bytes)),
            false => Value::Binary { subtype: 0, bytes },
        }
    }
}

/// How often a new password is hashed.
pub fn iterations(call: &Call<'_, '_>, mechanism: Mechanism) -> u32 {
    match mechanism {
        Mechanism::ScramSha1 => call.engine.settings.scram_sha_1_iterations(),
        Mechanism::ScramSha256 => call.engine.settings.scram_sha_256_iterations(),
    }
}
