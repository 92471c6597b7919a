//! The connection: bytes out, bytes in, a command for each.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawDocument, RawValue, Writer, doc};
use kilim_tls::{ClientTls, Session};
use kilim_wire::{Flags, Header, Message, Sequence, write_op_msg};

use crate::{Cursor, Fault, Uri, check_reply};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Longer than any ordinary command takes: a server silent for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A connection.
pub struct Client {
    stream: TcpStream,
    /// What encrypts, where the connection string asks for it.
    session: Option<Session>,
    out: Vec<u8>,
    frame: Vec<u8>,
    request_id: i32,
}

impl Client {
    /// Connects without encryption and without a login.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Client> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(SILENCE_MAX))?;
                    let (out, frame) = (Vec::new(), Vec::new());
                    return Ok(Client { stream, session: None, out, frame, request_id: 0 });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to the server of a connection string, encrypts if that says so, and logs in if it names a user.
    pub fn open(uri: &Uri) -> Result<Client, Fault> {
        // A wrong file is told of before anybody is bothered.
        let tls = uri.tls.as_ref().map(ClientTls::read).transpose();
        let tls = tls.map_err(|error| Fault::Insecure(error.to_string()))?;
        let mut client = Client::connect(uri.address()).map_err(Fault::Lost)?;
        if let Some(tls) = tls {
            let session = tls.connect(&client.stream, &uri.host, Instant::now() + HANDSHAKE_MAX);
            client.session = Some(session.map_err(|error| Fault::Insecure(error.to_string()))?);
            client.stream.set_read_timeout(Some(SILENCE_MAX))?;
        }
        if let Some(login) = &uri.login {
            client.log_in(login)?;
        }
        Ok(client)
    }

    /// How long a reply may take; `None` for commands that wait for work to end.
    pub fn wait_at_most(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }

    /// The server's address.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Tells the server which program asks, for its log and its figures. The first thing to be said on a connection.
    pub fn introduce(&mut self, application: &str) -> Result<(), Fault> {
        let driver = doc! {"name": "kilim-client", "version": env!("CARGO_PKG_VERSION")};
        let os = doc! {"type": std::env::consts::OS};
        let client = doc! {"application": {"name": application}, "driver": driver, "os": os};
        self.run("admin", doc! {"hello": 1, "client": client}).map(drop)
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
        let mut stream = Encrypted { stream: &self.stream, session: self.session.as_ref() };
        stream.write_all(message)?;
        let mut head = [0; Header::BYTES];
        stream.read_exact(&mut head)?;
        let header = Header::parse(&head).map_err(|_| malformed("the reply has no header"))?;
        self.frame.clear();
        self.frame.extend_from_slice(&head);
        self.frame.resize(header.length, 0);
        stream.read_exact(&mut self.frame[Header::BYTES..])?;
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

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.close(&self.stream);
        }
    }
}

/// A connection's bytes, encrypted or not.
struct Encrypted<'c> {
    stream: &'c TcpStream,
    session: Option<&'c Session>,
}

impl Read for Encrypted<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.session {
            None => self.stream.read(out),
            Some(session) => session.read(self.stream, out),
        }
    }
}

impl Write for Encrypted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.session {
            None => self.stream.write(bytes),
            Some(session) => session.write(self.stream, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
