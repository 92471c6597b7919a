//! A service without a database, and a client that sends whatever bytes it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_commands::{Reply, Request};
use kilim_error::{Error, ErrorCode};
use kilim_server::{Limits, Listener, Protection, Server, ServerTls, Service};
use kilim_wire::{Flags, Header, Message, Opcode, ReplyFlags, decompress, write_op_msg};

#[derive(Default, Clone)]
pub struct Fake {
    pub interrupted: Arc<AtomicBool>,
    pub clients: Arc<AtomicUsize>,
    pub ran: Arc<AtomicUsize>,
    /// How often it was told that a client is gone while its request runs.
    pub gone: Arc<AtomicUsize>,
    /// Whether clients are to log in, which they do by the command `login`.
    pub has_logins: bool,
}

/// Counts itself, so that a test sees whether it was dropped.
pub struct FakeClient {
    count: Arc<AtomicUsize>,
    subject: Option<String>,
    logged_in: bool,
}

impl Drop for FakeClient {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

fn reply(document: Document) -> Reply {
    Reply { document, exhaust_next: None, close_connection: false }
}

impl Service for Fake {
    type Client = FakeClient;

    fn connect(
        &self,
        _connection: u64,
        _peer: SocketAddr,
        _local: SocketAddr,
        subject: Option<String>,
    ) -> FakeClient {
        self.clients.fetch_add(1, Ordering::SeqCst);
        FakeClient { count: self.clients.clone(), subject, logged_in: false }
    }

    fn has_logins(&self) -> bool {
        self.has_logins
    }

    fn is_trusted(&self, client: &FakeClient) -> bool {
        !self.has_logins || client.logged_in
    }

    fn run(&self, client: &mut FakeClient, request: Request<'_>) -> Reply {
        self.ran.fetch_add(1, Ordering::SeqCst);
        let Some((name, value)) = request.body.iter().next() else { return reply(doc! {"ok": 0.0}) };
        let number = match value {
            RawValue::Int32(number) => number,
            _ => 0,
        };
        match name {
            "isMaster" | "hello" => {
                let database = request.body.get("$db").and_then(RawValue::as_str).unwrap_or("none");
                reply(doc! {"ok": 1.0, "legacy": (request.legacy_hello), "database": database})
            }
            "insert" => {
                let count: usize = request.sequences.iter().map(|(_, documents)| documents.len()).sum();
                reply(doc! {"ok": 1.0, "n": (count as i32)})
            }
            "stream" => Reply {
                document: doc! {"ok": 1.0, "left": number},
                exhaust_next: (request.exhaust_allowed && number > 0).then(|| doc! {"stream": (number - 1)}),
                close_connection: false,
            },
            "sleep" => {
                let until = Instant::now() + Duration::from_millis(number as u64);
                while Instant::now() < until && !self.interrupted.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                reply(doc! {"ok": 1.0, "slept": true})
            }
            "large" => reply(doc! {"ok": 1.0, "text": ("x".repeat(number as usize))}),
            "login" => {
                client.logged_in = true;
                reply(doc! {"ok": 1.0})
            }
            "subject" => reply(doc! {"ok": 1.0, "subject": (client.subject.as_deref().unwrap_or("none"))}),
            "panic" => panic!("as asked"),
            "close" => Reply { document: doc! {}, exhaust_next: None, close_connection: true },
            _ => reply(doc! {"ok": 1.0, "ran": name}),
        }
    }

    fn refuse(&self, error: &Error) -> Document {
        doc! {"ok": 0.0, "code": (error.code().0)}
    }

    fn client_is_gone(&self, _connection: u64) {
        self.gone.fetch_add(1, Ordering::SeqCst);
        self.interrupted.store(true, Ordering::SeqCst);
    }

    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
    }
}

pub fn limits() -> Limits {
    Limits { stop_grace: Duration::from_secs(5), ..Limits::default() }
}

pub fn start(limits: Limits) -> (Server<Fake>, Fake) {
    start_as(Fake::default(), limits, None)
}

pub fn start_as(fake: Fake, limits: Limits, tls: Option<Arc<ServerTls>>) -> (Server<Fake>, Fake) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Protection::default()).unwrap();
    (listener.with_tls(tls).serve(fake.clone(), limits).unwrap(), fake)
}

pub struct Peer(pub TcpStream);

/// A reply, unpacked and parsed.
#[derive(Debug)]
pub struct Received {
    pub request_id: i32,
    pub response_to: i32,
    pub compressed: Option<kilim_wire::Compressor>,
    pub flags: Flags,
    pub legacy: Option<ReplyFlags>,
    pub document: Document,
}

impl Received {
    pub fn int(&self, name: &str) -> Option<i32> {
        match self.document.get(name) {
            Some(RawValue::Int32(number)) => Some(number),
            _ => None,
        }
    }

    pub fn is_ok(&self) -> bool {
        matches!(self.document.get("ok"), Some(RawValue::Double(1.0)))
    }

    pub fn code(&self) -> ErrorCode {
        ErrorCode(self.int("code").expect("an error has a code"))
    }
}

impl Peer {
    pub fn connect<S: Service>(server: &Server<S>) -> Peer {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer(stream)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next reply, or `None` if the server ended the connection.
    pub fn receive(&mut self) -> Option<Received> {
        let mut frame = vec![0; Header::BYTES];
        if let Err(error) = self.0.read_exact(&mut frame) {
            let kind = error.kind();
            assert!(
                matches!(kind, std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset),
                "neither a reply nor an end: {error}"
            );
            return None;
        }
        let header = Header::parse(frame[..].try_into().unwrap()).unwrap();
        frame.resize(header.length, 0);
        self.0.read_exact(&mut frame[Header::BYTES..]).ok()?;
        let mut compressed = None;
        if header.opcode == Opcode::Compressed {
            let mut unpacked = Vec::new();
            compressed = Some(decompress(&frame, &mut unpacked).unwrap());
            frame = unpacked;
        }
        let (header, message) = Message::parse(&frame).unwrap();
        let (flags, legacy, document) = match message {
            Message::Msg(message) => (message.flags, None, message.body),
            Message::Reply(reply) => (Flags::NONE, Some(reply.flags), reply.documents[0]),
            Message::Query(_) => panic!("a server does not query"),
        };
        let (request_id, response_to) = (header.request_id, header.response_to);
        Some(Received {
            request_id,
            response_to,
            compressed,
            flags,
            legacy,
            document: document.to_document(),
        })
    }

    pub fn run(&mut self, command: &Document) -> Option<Received> {
        self.send(&message(77, Flags::NONE, command.as_raw()));
        self.receive()
    }

    /// Whether the connection still answers.
    pub fn is_alive(&mut self) -> bool {
        let frame = message(99, Flags::NONE, doc! {"ping": 1}.as_raw());
        self.0.write_all(&frame).is_ok()
            && self.receive().is_some_and(|reply| reply.is_ok() && reply.response_to == 99)
    }
}

pub fn message(id: i32, flags: Flags, body: RawDocument<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    write_op_msg(&mut frame, id, 0, flags, body, &[]);
    frame
}
