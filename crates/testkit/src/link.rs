//! One connection that speaks OP_MSG, cheap enough to load a server from the same machine.
//!
//! Messages can be built once and sent many times with a number patched in ([`Template`]); replies stay
//! bytes until somebody looks. Crash runs, histories and the benchmark use it instead of a driver,
//! because they must see every acknowledgement themselves: it never retries.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};

const HEADER_BYTES: usize = 16;
/// The header, the flags and the byte that says what section follows.
const BODY_AT: usize = HEADER_BYTES + 5;
const OP_MSG: i32 = 2013;
/// Longer than any operation that the runs ask for; a server silent for so long is a finding.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Fault {
    /// The connection broke: whether the command took effect is unknown.
    Lost(io::Error),
    /// The server answered with an error.
    Refused { code: i32, message: String, labels: Vec<String> },
}

impl Fault {
    pub fn code(&self) -> Option<i32> {
        match self {
            Fault::Lost(_) => None,
            Fault::Refused { code, .. } => Some(*code),
        }
    }

    pub fn has_label(&self, label: &str) -> bool {
        matches!(self, Fault::Refused { labels, .. } if labels.iter().any(|l| l == label))
    }

    /// The outcome is unknown: the command may or may not have taken effect.
    pub fn is_unknown(&self) -> bool {
        // Shutting down, interrupted by it, no longer primary, or a write concern that was not waited for.
        const UNKNOWN: [i32; 7] = [91, 11600, 11602, 64, 189, 10107, 13435];
        match self {
            Fault::Lost(_) => true,
            Fault::Refused { code, .. } => {
                UNKNOWN.contains(code) || self.has_label("UnknownTransactionCommitResult")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Lost(error) => write!(f, "connection lost: {error}"),
            Fault::Refused { code, message, labels } if labels.is_empty() => {
                write!(f, "error {code}: {message}")
            }
            Fault::Refused { code, message, labels } => write!(f, "error {code} {labels:?}: {message}"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Lost(error)
    }
}

/// A connection.
pub struct Link {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Link {
    pub fn connect(address: SocketAddr) -> io::Result<Link> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Link { stream, reply: Vec::new() })
    }

    /// Sends a whole message and returns the reply's body.
    pub fn exchange(&mut self, message: &[u8]) -> io::Result<RawDocument<'_>> {
        self.stream.write_all(message)?;
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let length = i32::from_le_bytes(header[..4].try_into().expect("four bytes")) as usize;
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the reply is no OP_MSG");
        if header[12..] != OP_MSG.to_le_bytes() || !(BODY_AT + 5..=48_000_000).contains(&length) {
            return Err(malformed());
        }
        self.reply.resize(length - HEADER_BYTES, 0);
        self.stream.read_exact(&mut self.reply)?;
        let body = self.reply.get(BODY_AT - HEADER_BYTES..).ok_or_else(malformed)?;
        RawDocument::parse(body).map_err(|_| malformed())
    }

    /// Runs a command; an error in the reply, also a write error or a write concern error, is a fault.
    pub fn run(&mut self, database: &str, mut command: Document) -> Result<Document, Fault> {
        command.push("$db", database);
        let reply = self.exchange(&message(&command))?.to_document();
        check_reply(reply.as_raw())?;
        Ok(reply)
    }

    /// All documents that a `find` or `aggregate` gives, across batches.
    pub fn all(&mut self, database: &str, command: Document) -> Result<Vec<Document>, Fault> {
        let first = self.run(database, command)?;
        let mut documents = Vec::new();
        let (mut cursor, namespace) = read_batch(&first, "firstBatch", &mut documents);
        let collection = namespace.split_once('.').map_or("", |(_, collection)| collection).to_owned();
        while cursor != 0 {
            let next = self.run(database, doc! {"getMore": cursor, "collection": collection.clone()})?;
            (cursor, _) = read_batch(&next, "nextBatch", &mut documents);
        }
        Ok(documents)
    }
}

/// A message whose commands differ in one int32, patched in place.
pub struct Template {
    message: Vec<u8>,
    at: Vec<usize>,
}

impl Template {
    /// Stands for the number in the command that a template is made from.
    pub const MARK: i32 = 0x4b49_4c4d;

    pub fn new(database: &str, mut command: Document) -> Template {
        command.push("$db", database);
        let message = message(&command);
        let mark = Template::MARK.to_le_bytes();
        let at = (0..message.len() - 3).filter(|&i| message[i..i + 4] == mark).collect();
        Template { message, at }
    }

    /// Marks become numbers that grow by one, in the order in which they stand.
    pub fn counting_from(&mut self, first: i32) -> &[u8] {
        for (number, &at) in (first..).zip(&self.at) {
            self.message[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        &self.message
    }

    /// All marks become the same number.
    pub fn with(&mut self, number: i32) -> &[u8] {
        for &at in &self.at {
            self.message[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        &self.message
    }
}

/// A multi-statement transaction on a link. Dropped without an end, it is left to the server's timeout.
pub struct Transaction<'l> {
    link: &'l mut Link,
    session: Value,
    number: i64,
    started: bool,
}

impl<'l> Transaction<'l> {
    /// `number` grows with each transaction of the session.
    pub fn new(link: &'l mut Link, session: [u8; 16], number: i64) -> Transaction<'l> {
        let session = Value::Document(doc! {"id": Value::Binary { subtype: 4, bytes: session.to_vec() }});
        Transaction { link, session, number, started: false }
    }

    fn dress(&mut self, mut command: Document) -> Document {
        command.push("lsid", self.session.clone());
        command.push("txnNumber", self.number);
        command.push("autocommit", false);
        if !self.started {
            command.push("startTransaction", true);
            command.push("readConcern", doc! {"level": "snapshot"});
            self.started = true;
        }
        command
    }

    pub fn run(&mut self, database: &str, command: Document) -> Result<Document, Fault> {
        let command = self.dress(command);
        self.link.run(database, command)
    }

    pub fn commit(mut self) -> Result<(), Fault> {
        let command = self.dress(doc! {"commitTransaction": 1, "writeConcern": {"w": "majority", "j": true}});
        self.link.run("admin", command).map(drop)
    }

    pub fn abort(mut self) -> Result<(), Fault> {
        let command = self.dress(doc! {"abortTransaction": 1});
        self.link.run("admin", command).map(drop)
    }
}

/// A command as an OP_MSG with one body section.
pub fn message(command: &Document) -> Vec<u8> {
    let length = BODY_AT + command.as_bytes().len();
    let mut message = Vec::with_capacity(length);
    for number in [length as i32, 1, 0, OP_MSG, 0] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(command.as_bytes());
    message
}

/// A number of any type as a whole one; counts come as int32, int64 or double.
pub fn whole(value: Option<RawValue<'_>>) -> Option<i64> {
    match value? {
        RawValue::Int32(value) => Some(value.into()),
        RawValue::Int64(value) => Some(value),
        RawValue::Double(value) => Some(value as i64),
        _ => None,
    }
}

/// What the reply complains about, if it does.
pub fn check_reply(reply: RawDocument<'_>) -> Result<(), Fault> {
    if whole(reply.get("ok")) != Some(1) {
        return Err(refusal(reply, reply, "errmsg"));
    }
    let first_error = reply.get("writeErrors").and_then(RawValue::as_array).and_then(|errors| errors.get(0));
    let concern = reply.get("writeConcernError");
    match first_error.or(concern).and_then(RawValue::as_document) {
        Some(error) => Err(refusal(error, reply, "errmsg")),
        None => Ok(()),
    }
}

fn refusal(error: RawDocument<'_>, reply: RawDocument<'_>, message: &str) -> Fault {
    let labels = reply.get("errorLabels").and_then(RawValue::as_array);
    Fault::Refused {
        code: whole(error.get("code")).unwrap_or(0) as i32,
        message: error.get(message).and_then(RawValue::as_str).unwrap_or("").to_owned(),
        labels: labels
            .into_iter()
            .flat_map(|l| l.iter().filter_map(RawValue::as_str).map(str::to_owned))
            .collect(),
    }
}

fn read_batch<'r>(reply: &'r Document, batch: &str, documents: &mut Vec<Document>) -> (i64, &'r str) {
    let Some(cursor) = reply.get("cursor").and_then(RawValue::as_document) else { return (0, "") };
    if let Some(batch) = cursor.get(batch).and_then(RawValue::as_array) {
        documents.extend(batch.iter().filter_map(RawValue::as_document).map(RawDocument::to_document));
    }
    let namespace = cursor.get("ns").and_then(RawValue::as_str).unwrap_or("");
    (whole(cursor.get("id")).unwrap_or(0), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_patches_every_mark() {
        let mut template =
            Template::new("d", doc! {"find": "c", "filter": {"_id": Template::MARK, "n": Template::MARK}});
        let body = |bytes: &[u8]| format!("{:?}", RawDocument::parse(&bytes[BODY_AT..]).unwrap());
        assert_eq!(body(template.with(7)).matches("Int32(7)").count(), 2);
        assert_eq!(body(template.with(8)).matches("Int32(8)").count(), 2);
    }

    #[test]
    fn write_errors_in_an_ok_reply_are_faults() {
        for (reply, code) in [
            (doc! {"ok": 1.0, "n": 1}, None),
            (doc! {"ok": 0.0, "code": 59, "errmsg": "no"}, Some(59)),
            (doc! {"ok": 1.0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "dup"}]}, Some(11000)),
            (doc! {"ok": 1.0, "writeConcernError": {"code": 64, "errmsg": "late"}}, Some(64)),
        ] {
            assert_eq!(check_reply(reply.as_raw()).err().and_then(|fault| fault.code()), code);
        }
    }
}
