//! A small blocking client: one connection, one command at a time.
//!
//! It sends exactly the bytes it is given and hides nothing of the reply, which drivers do not offer.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_wire::{Flags, Header, Message, write_op_msg};

/// A reply this late means a hung server. Index builds and transaction waits stay far below.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Client {
    stream: TcpStream,
    request_id: i32,
    out: Vec<u8>,
    frame: Vec<u8>,
}

impl Client {
    pub fn connect(address: impl ToSocketAddrs) -> Result<Client> {
        let stream = TcpStream::connect(address).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Client { stream, request_id: 0, out: Vec::new(), frame: Vec::new() })
    }

    /// Sends a command to a database and returns the reply, whether it succeeded or not.
    pub fn reply(&mut self, database: &str, command: RawDocument<'_>) -> Result<Document> {
        let mut body = Writer::with_capacity(command.as_bytes().len() + 64);
        body.append_elements(command.elements());
        if command.get("$db").is_none() {
            body.append("$db", RawValue::String(database));
        }
        let body = body.finish();
        self.request_id += 1;
        self.out.clear();
        write_op_msg(&mut self.out, self.request_id, 0, Flags::NONE, body.as_raw(), &[]);
        self.stream.write_all(&self.out).context("the server closed the connection")?;
        self.read_reply()
    }

    /// As [`Client::reply`], but an error reply is an error.
    pub fn command(&mut self, database: &str, command: &Document) -> Result<Document> {
        let reply = self.reply(database, command.as_raw())?;
        if let Some(failure) = Failure::of(reply.as_raw()) {
            bail!("{} {}: {}", failure.code, failure.name, failure.message);
        }
        Ok(reply)
    }

    fn read_reply(&mut self) -> Result<Document> {
        let mut head = [0; Header::BYTES];
        self.stream.read_exact(&mut head).context("no reply")?;
        let header =
            Header::parse(&head).map_err(|refusal| anyhow::anyhow!("bad reply header: {refusal:?}"))?;
        self.frame.clear();
        self.frame.extend_from_slice(&head);
        self.frame.resize(header.length, 0);
        self.stream.read_exact(&mut self.frame[Header::BYTES..]).context("half a reply")?;
        match Message::parse(&self.frame) {
            Ok((header, Message::Msg(message))) if header.response_to == self.request_id => {
                Ok(message.body.to_document())
            }
            Ok((header, _)) => bail!("a reply to {} while {} was asked", header.response_to, self.request_id),
            Err(refusal) => bail!("malformed reply: {refusal:?}"),
        }
    }
}

/// What an error reply says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: i32,
    pub name: String,
    pub message: String,
    /// What a driver is to do about it: `errorLabels`.
    pub labels: Vec<String>,
}

impl Failure {
    /// The failure of a reply whose `ok` is not 1.
    pub fn of(reply: RawDocument<'_>) -> Option<Failure> {
        if reply.get("ok").and_then(integer) == Some(1) {
            return None;
        }
        let text = |field| reply.get(field).and_then(RawValue::as_str).unwrap_or_default().to_owned();
        let code = reply.get("code").and_then(integer).unwrap_or_default() as i32;
        let labels = reply.get("errorLabels").and_then(RawValue::as_array);
        let labels = labels.into_iter().flat_map(|labels| labels.iter()).filter_map(RawValue::as_str);
        let labels = labels.map(str::to_owned).collect();
        Some(Failure { code, name: text("codeName"), message: text("errmsg"), labels })
    }
}

/// A whole number of any type.
pub fn integer(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::Int32(value) => Some(i64::from(value)),
        RawValue::Int64(value) => Some(value),
        RawValue::Double(value) if value.fract() == 0.0 => Some(value as i64),
        _ => None,
    }
}
