//! The connection: bytes out, bytes in, a command for each.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, Writer, doc};
use kilim_wire::{Flags, Header, Message, Sequence, write_op_msg};

use crate::{Cursor, Fault, check_reply};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any ordinary command takes: a server silent for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A connection.
pub struct Client {
    stream: TcpStream,
    out: Vec<u8>,
    frame: Vec<u8>,
    request_id: i32,
}

impl Client {
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Client> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(SILENCE_MAX))?;
                    return Ok(Client { stream, out: Vec::new(), frame: Vec::new(), request_id: 0 });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// How long a reply may take; `None` for commands that wait for work to end.
    pub fn wait_at_most(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }

    /// The server's address.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// What the server says of itself.
    pub fn hello(&mut self) -> Result<Document, Fault> {
        self.run("admin", doc! {"hello": 1})
    }

    /// Runs a command; an error in the reply, also a write error or a write concern error, is a fault.
    pub fn run(&mut self, database: &str, command: Document) -> Result<Document, Fault> {
        let reply = self.reply(database, command.as_raw())?;
        check_reply(reply.as_raw())?;
        Ok(reply)
    }

    /// The reply to a command, whether it succeeded or not. `$db` in the command goes before `database`.
    pub fn reply(&mut self, database: &str, command: RawDocument<'_>) -> io::Result<Document> {
        self.reply_to(database, command, &[])
    }

    /// The same for a command with documents beside it, such as an insert's.
    pub fn reply_to_many(
        &mut self,
        database: &str,
        command: RawDocument<'_>,
        name: &str,
        documents: Vec<RawDocument<'_>>,
    ) -> io::Result<Document> {
        self.reply_to(database, command, &[Sequence { name, documents }])
    }

    fn reply_to(
        &mut self,
        database: &str,
        command: RawDocument<'_>,
        sequences: &[Sequence<'_>],
    ) -> io::Result<Document> {
        let mut body = Writer::with_capacity(command.as_bytes().len() + 64);
        body.append_elements(command.elements());
        if command.get("$db").is_none() {
            body.append("$db", RawValue::String(database));
        }
        let body = body.finish();
        self.request_id = self.request_id.wrapping_add(1);
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        write_op_msg(&mut out, self.request_id, 0, Flags::NONE, body.as_raw(), sequences);
        let reply = self.exchange(&out).map(RawDocument::to_document);
        self.out = out;
        reply
    }

    /// The documents that a command answers with as a cursor, across batches.
    pub fn documents(&mut self, database: &str, command: Document) -> Result<Cursor<'_>, Fault> {
        Cursor::open(self, database, command)
    }

    /// All of [`Client::documents`] at once.
    pub fn all(&mut self, database: &str, command: Document) -> Result<Vec<Document>, Fault> {
        self.documents(database, command)?.collect()
    }

    /// Sends a whole message, as [`message`] makes it, and gives the reply's body.
    pub fn exchange(&mut self, message: &[u8]) -> io::Result<RawDocument<'_>> {
        self.stream.write_all(message)?;
        let mut head = [0; Header::BYTES];
        self.stream.read_exact(&mut head)?;
        let header = Header::parse(&head).map_err(|_| malformed("the reply has no header"))?;
        self.frame.clear();
        self.frame.extend_from_slice(&head);
        self.frame.resize(header.length, 0);
        self.stream.read_exact(&mut self.frame[Header::BYTES..])?;
        let asked = message.get(4..8).and_then(|id| id.try_into().ok()).map(i32::from_le_bytes);
        if asked != Some(header.response_to) {
            return Err(malformed("a reply to another question"));
        }
        match Message::parse(&self.frame) {
            Ok((_, Message::Msg(message))) => Ok(message.body),
            _ => Err(malformed("the reply is no OP_MSG")),
        }
    }
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A command, which names its `$db`, as a message that can be sent many times.
pub fn message(command: &Document) -> Vec<u8> {
    let mut message = Vec::with_capacity(command.as_bytes().len() + 64);
    write_op_msg(&mut message, 1, 0, Flags::NONE, command.as_raw(), &[]);
    message
}
