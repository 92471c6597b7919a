//! OP_QUERY and OP_REPLY: what a driver says before it knows whom it talks to.
//!
//! MongoDB dropped legacy queries in 6.0 except for the first handshake and authentication. Anything
//! else is refused with an error that tells the user to upgrade the driver.

use kilim_bson::RawDocument;
use kilim_error::{Error, ErrorCode};

use crate::header::{Header, Opcode, finish_frame};
use crate::{Refusal, parse_document};

/// A legacy query that is a command on `<database>.$cmd`.
#[derive(Debug, Clone, PartialEq)]
pub struct OpQuery<'a> {
    pub flags: i32,
    pub database: &'a str,
    /// The command itself, taken out of `$query` if it was wrapped. It holds no `$db`.
    pub command: RawDocument<'a>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OpReply<'a> {
    pub flags: ReplyFlags,
    pub cursor_id: i64,
    pub starting_from: i32,
    pub documents: Vec<RawDocument<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyFlags(pub i32);

impl ReplyFlags {
    pub const QUERY_FAILURE: ReplyFlags = ReplyFlags(1 << 1);
    /// MongoDB sets it on every answer to a command.
    pub const AWAIT_CAPABLE: ReplyFlags = ReplyFlags(1 << 3);
}

const FLAG_EXHAUST: i32 = 1 << 6;
const COMMAND_COLLECTION: &str = ".$cmd";

/// The commands that MongoDB still takes as legacy queries.
const COMMANDS: [&str; 9] = [
    "hello",
    "isMaster",
    "ismaster",
    "buildInfo",
    "buildinfo",
    "saslStart",
    "saslContinue",
    "authenticate",
    "_isSelf",
];

pub(crate) fn no_longer_supported(opcode: &str) -> Refusal {
    Refusal::AnswerQueryFailure(Error::location(
        5739101,
        format!("{opcode} is no longer supported. {UPGRADE}"),
    ))
}

const UPGRADE: &str = "The client driver may require an upgrade. For more details see \
                       https://dochub.mongodb.org/core/legacy-opcode-removal";

impl<'a> OpQuery<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<OpQuery<'a>, Refusal> {
        const CUT: Refusal = Refusal::Close("OP_QUERY is cut short");
        let (flags, rest) = split_i32(body).ok_or(CUT)?;
        let namespace_end = rest.iter().position(|&byte| byte == 0).ok_or(CUT)?;
        let (namespace, rest) = (&rest[..namespace_end], &rest[namespace_end + 1..]);
        let Some(database) = namespace.strip_suffix(COMMAND_COLLECTION.as_bytes()) else {
            return Err(no_longer_supported("OP_QUERY"));
        };
        let database =
            std::str::from_utf8(database).ok().filter(|name| !name.is_empty()).ok_or_else(|| {
                let message = format!("Invalid database name: '{}'", String::from_utf8_lossy(database));
                Error::user(ErrorCode::InvalidNamespace, message)
            })?;

        let cut = || Error::location(18634, "Not enough data to read");
        let (_skip, rest) = split_i32(rest).ok_or_else(cut)?;
        let (return_count, rest) = split_i32(rest).ok_or_else(cut)?;
        let (query, rest) = parse_query_document(rest)?;
        if !rest.is_empty() {
            // A projection, which a command does not look at.
            parse_query_document(rest)?;
        }
        if !matches!(return_count, 1 | -1) {
            let message =
                format!("Bad numberToReturn ({return_count}) for $cmd type ns - can only be 1 or -1");
            return Err(Error::location(16979, message).into());
        }
        if flags & FLAG_EXHAUST != 0 {
            let message = format!("The 'exhaust' OP_QUERY flag is invalid for commands: {database}.$cmd");
            return Err(Error::location(18527, message).into());
        }

        let command = unwrap_query(query);
        if command.get("$db").is_some() {
            return Err(Error::location(40621, "$db is not allowed in OP_QUERY requests").into());
        }
        // An empty command is refused by the name of the field that MongoDB adds to it.
        let name = command.iter().next().map_or("$db", |(name, _)| name);
        if !COMMANDS.contains(&name) {
            let message = format!("Unsupported OP_QUERY command: {name}. {UPGRADE}");
            return Err(Error::user(ErrorCode::UnsupportedOpQueryCommand, message).into());
        }
        Ok(OpQuery { flags, database, command })
    }
}

fn parse_query_document(bytes: &[u8]) -> Result<(RawDocument<'_>, &[u8]), Error> {
    if bytes.len() < RawDocument::empty().as_bytes().len() {
        let message = "Client Error: Remaining data too small for BSON object";
        return Err(Error::user(ErrorCode::InvalidBSON, message));
    }
    parse_document(bytes).map_err(|error| match error.code() {
        ErrorCode::InvalidBSON => {
            Error::user(ErrorCode::InvalidBSON, format!("Client Error: bad object in message: {error}"))
        }
        _ => error,
    })
}

/// Old drivers wrap a command to send a read preference beside it.
fn unwrap_query(query: RawDocument<'_>) -> RawDocument<'_> {
    match query.iter().next() {
        Some(("$query" | "query", value)) => value.as_document().unwrap_or(query),
        _ => query,
    }
}

impl<'a> OpReply<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<OpReply<'a>, Refusal> {
        const CUT: Refusal = Refusal::Close("OP_REPLY is cut short");
        let (flags, rest) = split_i32(body).ok_or(CUT)?;
        let (cursor_id, rest) = rest.split_first_chunk().ok_or(CUT)?;
        let (starting_from, rest) = split_i32(rest).ok_or(CUT)?;
        let (count, mut rest) = split_i32(rest).ok_or(CUT)?;
        let mut documents = Vec::new();
        while !rest.is_empty() {
            let (document, after) = parse_document(rest)?;
            documents.push(document);
            rest = after;
        }
        if usize::try_from(count) != Ok(documents.len()) {
            return Err(Refusal::Close("OP_REPLY counts other documents than it holds"));
        }
        let cursor_id = i64::from_le_bytes(*cursor_id);
        Ok(OpReply { flags: ReplyFlags(flags), cursor_id, starting_from, documents })
    }
}

/// Appends the reply to a command that came by OP_QUERY.
pub fn write_op_reply(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: ReplyFlags,
    document: RawDocument<'_>,
) {
    let start = Header::begin_frame(out, request_id, response_to, Opcode::Reply);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.extend_from_slice(&0i64.to_le_bytes());
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&1i32.to_le_bytes());
    out.extend_from_slice(document.as_bytes());
    finish_frame(out, start, 0);
}

/// Appends a command as OP_QUERY, as drivers do for the first hello.
pub fn write_op_query(out: &mut Vec<u8>, request_id: i32, database: &str, command: RawDocument<'_>) {
    let start = Header::begin_frame(out, request_id, 0, Opcode::Query);
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(database.as_bytes());
    out.extend_from_slice(COMMAND_COLLECTION.as_bytes());
    out.push(0);
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&(-1i32).to_le_bytes());
    out.extend_from_slice(command.as_bytes());
    finish_frame(out, start, 0);
}

fn split_i32(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((i32::from_le_bytes(*number), rest))
}
