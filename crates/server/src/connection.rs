//! One client: read a message, run it, write the reply, until somebody ends it.
//!
//! A request that has to wait for news does so without the thread, in the [`room`](crate::room).
//!
//! Buffers live as long as the connection, so a usual request costs one read, one write and no
//! allocation here. A fault in a message is answered or ends the connection as on MongoDB
//! ([`Refusal`]); a panic in a command becomes `InternalError` and the connection goes on.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kilim_bson::Document;
use kilim_commands::{Reply, Request, Suspended};
use kilim_error::{Error, ErrorCode};
use kilim_wire::{
    Compressor, Flags, Header, Message, OpMsg, Opcode, Refusal, ReplyFlags, compress, decompress,
    unpacked_bytes, write_op_msg, write_op_msg_head, write_op_reply,
};
use tracing::{debug, error, warn};

use crate::frames::{Frames, Next};
use crate::limits::{
    AT_HOME, BUFFER_BYTES_KEPT, IDLE, LONG_TURN, MEMORY_PATIENCE, MESSAGE_BYTES_FREE, MOVED_BYTES_PER_SECOND,
    REPLY_PATIENCE, SLOW_AFTER, STRANGER_SILENCE, WRITE_BYTES,
};
use crate::listener::Shared;
use crate::memory::{Memory, Share};
use crate::room::Errand;
use crate::service::Service;
use crate::stream::{Stream, begins_handshake};

/// What the rest of the server sees of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: Stream,
    pub(crate) address: SocketAddr,
    activity: AtomicU8,
    /// Bytes of the shared budget that a message being read or written holds.
    held: AtomicUsize,
    /// When the message began to hold them, and when a byte of it last moved, in milliseconds since `started`.
    held_since: AtomicU64,
    moved_at: AtomicU64,
    /// Bytes of the message that have moved.
    moved_bytes: AtomicU64,
    started: Instant,
    /// Set while the handshake is not done or nobody has logged in, where clients are to.
    stranger: AtomicBool,
    /// Set once the connection was cut to make room; its thread is about to end.
    dismissed: AtomicBool,
}

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const STREAMING: u8 = 2;

impl Peer {
    pub(crate) fn new(stream: Stream, address: SocketAddr, stranger: bool) -> Peer {
        Peer {
            stranger: AtomicBool::new(stranger),
            dismissed: AtomicBool::new(false),
            stream,
            address,
            activity: AtomicU8::new(WAITING),
            held: AtomicUsize::new(0),
            held_since: AtomicU64::new(0),
            moved_at: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// A request is being answered for which the end of the server may wait. A stream of replies is
    /// none: the monitor of a driver would hold the server up for as long as it likes.
    pub(crate) fn is_running(&self) -> bool {
        self.activity.load(Ordering::Relaxed) == RUNNING
    }

    fn set_activity(&self, activity: u8) {
        self.activity.store(activity, Ordering::Relaxed);
    }

    /// Whether a request is being worked on, streams of replies included.
    pub(crate) fn is_busy(&self) -> bool {
        self.activity.load(Ordering::Relaxed) != WAITING
    }

    /// Bytes that would be free if the connection were cut: those of a message of which no byte has moved for a while, or
    /// too few on the whole. A client that sends a byte now and then would otherwise hold its share for ever.
    pub(crate) fn is_stalled(&self, patience: Duration) -> Option<usize> {
        let held = self.held.load(Ordering::Relaxed);
        let now = self.started.elapsed();
        let since = |at: &AtomicU64| now.saturating_sub(Duration::from_millis(at.load(Ordering::Relaxed)));
        let held_for = since(&self.held_since);
        let due = (held_for.as_secs_f64() * MOVED_BYTES_PER_SECOND) as u64;
        let slow = held_for >= SLOW_AFTER && self.moved_bytes.load(Ordering::Relaxed) < due;
        (held > 0 && (slow || since(&self.moved_at) >= patience)).then_some(held)
    }

    /// A message that holds a share begins to move.
    fn holds(&self, bytes: usize) {
        self.note_time();
        self.moved_bytes.store(0, Ordering::Relaxed);
        self.held_since.store(self.moved_at.load(Ordering::Relaxed), Ordering::Relaxed);
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// The message is through. When it moved says nothing any more.
    fn holds_nothing(&self) {
        self.held.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_stranger(&self) -> bool {
        self.stranger.load(Ordering::Relaxed)
    }

    /// How long ago a stranger said something, or connected.
    pub(crate) fn silent_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.moved_at.load(Ordering::Relaxed)))
    }

    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::Relaxed)
    }

    /// Cuts the connection, which makes room for another.
    pub(crate) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Relaxed);
        // A connection that is gone already makes room, too.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Whether the client has closed its side.
    pub(crate) fn is_gone(&self) -> bool {
        self.stream.is_closed_by_peer()
    }

    /// Bytes of a message have moved. That is of interest where it holds a share, and where a stranger sends it; most
    /// messages need no look at the clock.
    fn moved(&self, bytes: usize) {
        if self.held.load(Ordering::Relaxed) > 0 || self.is_stranger() {
            self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.note_time();
        }
    }

    fn note_time(&self) {
        self.moved_at.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

pub(crate) struct Connection<S: Service> {
    pub(crate) id: u64,
    pub(crate) peer: Arc<Peer>,
    shared: Arc<Shared<S>>,
    client: S::Client,
    frames: Frames,
    /// The budget's bytes for the message at hand.
    share: Option<Share>,
    unpacked: Vec<u8>,
    replies: Replies,
    /// How long a client that has not logged in may take for its next message.
    patience: Duration,
    /// The request that waits for news; it lies at the front of what was read.
    suspended: Option<Header>,
    /// Until then its requests wait on its own thread.
    at_home_until: Option<Instant>,
}

/// Where replies are written, and how the request wants them.
#[derive(Default)]
struct Replies {
    out: Vec<u8>,
    packed: Vec<u8>,
    last_id: i32,
    /// The budget's bytes for the buffers.
    share: Option<Share>,
    /// Bytes written since they were last counted.
    sent: u64,
}

/// How to answer a request: in its own opcode, checksummed and compressed as it was.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    response_to: i32,
    legacy: bool,
    flags: Flags,
    compressor: Option<Compressor>,
}

impl Manner {
    fn of(header: &Header) -> Manner {
        let legacy = header.opcode != Opcode::Msg;
        Manner { response_to: header.request_id, legacy, flags: Flags::NONE, compressor: None }
    }

    /// Parses a message and notes on the way how to answer it, because one that cannot be parsed to
    /// the end may need an answer too.
    fn parse<'m>(
        &mut self,
        header: &Header,
        mut frame: &'m [u8],
        unpacked: &'m mut Vec<u8>,
    ) -> Result<Message<'m>, Refusal> {
        if header.response_to != 0 {
            return Err(Refusal::Close("a request that answers another message"));
        }
        let mut opcode = header.opcode;
        if opcode == Opcode::Compressed {
            let compressor = decompress(frame, unpacked)?;
            if compressor == Compressor::Noop {
                return Err(Refusal::Close("a compressor that was not offered"));
            }
            self.compressor = Some(compressor);
            frame = unpacked;
            let inner = frame.first_chunk().expect("an unpacked message begins with a header");
            opcode = Header::parse(inner)?.opcode;
            self.legacy = opcode != Opcode::Msg;
        }
        if opcode == Opcode::Msg {
            self.flags = OpMsg::parse_flags(frame)?;
        }
        Message::parse(frame).map(|(_, message)| message)
    }

    fn wants_reply(&self) -> bool {
        !self.flags.contains(Flags::MORE_TO_COME)
    }
}

enum After {
    GoOn,
    Close,
    /// The request has to wait for news.
    Wait,
}

/// What became of a request.
enum Ran {
    Reply(Manner, Reply),
    Refused(Manner, Refusal),
    Suspended,
    /// It is not for the room.
    NotHere,
}

/// Where a request is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the connection's own thread; whether it may leave for the room.
    Home { may_leave: bool },
    /// In the room, where only those are run that are quickly answered or wait.
    Room,
}

impl<S: Service> Connection<S> {
    pub(crate) fn new(id: u64, peer: Arc<Peer>, shared: Arc<Shared<S>>) -> Self {
        // A socket without a name is about to fail anyway; any address serves until then.
        let local = peer.stream.local_addr().unwrap_or(peer.address);
        let client = shared.service.connect(id, peer.address, local, peer.stream.subject());
        peer.stranger.store(!shared.service.is_trusted(&client), Ordering::Relaxed);
        Connection {
            id,
            peer,
            client,
            frames: Frames::new(),
            share: None,
            unpacked: Vec::new(),
            replies: Replies::default(),
            patience: shared.limits.first_message,
            suspended: None,
            at_home_until: None,
            shared,
        }
    }

    /// Serves until the connection ends. An error is one of the socket.
    pub(crate) fn serve(mut self) -> io::Result<()> {
        loop {
            match self.serve_next()? {
                After::GoOn => {}
                After::Close => return Ok(()),
                After::Wait => {
                    let room = self.shared.room.clone();
                    // None only where the room has closed.
                    let Some((back, errand)) = room.and_then(|room| room.host(self)) else { return Ok(()) };
                    self = back;
                    match self.run_errand(errand)? {
                        After::Close => return Ok(()),
                        After::GoOn | After::Wait => {}
                    }
                }
            }
        }
    }

    /// Reads a message and answers it.
    fn serve_next(&mut self) -> io::Result<After> {
        let header = match self.next()? {
            Next::Frame(header) => header,
            Next::Refused(_) | Next::Large(_) if begins_handshake(self.frames.received()) => {
                let why = "the client encrypts, and this server does not: it is started with --tls for that";
                warn!(connection = self.id, peer = %self.peer.address, why, "connection ended");
                return Ok(After::Close);
            }
            Next::Large(header) if self.peer.is_stranger() => {
                self.log_too_large(header.length);
                return Ok(After::Close);
            }
            Next::Large(header) => {
                return Ok(if self.make_room(&header) { After::GoOn } else { After::Close });
            }
            Next::End => return Ok(After::Close),
            Next::Refused(_) if self.frames.received().starts_with(b"GET ") => {
                (&self.peer.stream).write_all(TO_A_BROWSER.as_bytes())?;
                return Ok(After::Close);
            }
            Next::Refused(refusal) => {
                self.log_refusal(&refusal);
                return Ok(After::Close);
            }
        };
        // Read to its end: from here on the server is slow, not the client.
        self.peer.holds_nothing();
        if !self.make_room_to_unpack(&header) {
            return Ok(After::Close);
        }
        self.peer.set_activity(RUNNING);
        let after = match self.run(&header, Place::Home { may_leave: self.may_leave() }) {
            Ran::Reply(manner, reply) => self.reply(manner, reply)?,
            Ran::Refused(manner, refusal) => self.refuse(manner, refusal)?,
            Ran::Suspended => {
                self.suspended = Some(header);
                return Ok(After::Wait);
            }
            // Only where it is run in the room.
            Ran::NotHere => After::Close,
        };
        Ok(self.end_request(&header, after))
    }

    /// A request was answered.
    fn end_request(&mut self, header: &Header, after: After) -> After {
        self.peer.set_activity(WAITING);
        if self.shared.service.has_logins() {
            self.patience = STRANGER_SILENCE;
        }
        self.shared.service.note_traffic(header.length as u64, std::mem::take(&mut self.replies.sent));
        let large = header.length.max(self.unpacked.len()).max(self.replies.out.len());
        self.frames.consume(header);
        // Large buffers are for those who go on sending or asking for much.
        if large <= MESSAGE_BYTES_FREE && self.has_large_buffers() {
            self.give_back();
        }
        match self.shared.stopping.load(Ordering::Relaxed) {
            true => After::Close,
            false => after,
        }
    }

    /// Takes the share of a large message before it is read; whether there was one.
    fn make_room(&mut self, header: &Header) -> bool {
        let bytes = header.length.max(self.frames.bytes()) + self.unpacked.capacity();
        if !self.take_share(bytes) {
            return false;
        }
        // The buffers of the reply before would be free too if the connection were cut.
        let held = [&self.share, &self.replies.share].into_iter().flatten().map(Share::bytes).sum();
        self.peer.holds(held);
        self.frames.allow(header.length);
        true
    }

    /// Takes the share of a compressed message that will be large before it is unpacked; whether there was one.
    fn make_room_to_unpack(&mut self, header: &Header) -> bool {
        self.unpacked.clear();
        if header.opcode != Opcode::Compressed {
            return true;
        }
        let unpacked = unpacked_bytes(self.frames.front(header)).unwrap_or(0);
        let bytes = unpacked.max(self.unpacked.capacity());
        if bytes > MESSAGE_BYTES_FREE && self.peer.is_stranger() {
            self.log_too_large(unpacked);
            return false;
        }
        bytes <= MESSAGE_BYTES_FREE || self.take_share(self.frames.bytes() + bytes)
    }

    /// Makes the share of the message at hand so large; whether that was possible. A share that was large enough for the
    /// message before is kept as long as its buffers.
    fn take_share(&mut self, bytes: usize) -> bool {
        if self.share.as_ref().is_none_or(|share| share.bytes() < bytes) {
            // Given back first: nobody waits for more while holding some.
            self.share = None;
            self.share = self.shared.memory.take(bytes, Duration::ZERO).or_else(|| {
                self.replies.give_back();
                self.shared.memory.take(bytes, MEMORY_PATIENCE)
            });
        }
        if self.share.is_none() {
            warn!(
                connection = self.id,
                peer = %self.peer.address,
                bytes,
                "no memory is left for the message, connection ended"
            );
        }
        self.share.is_some()
    }

    fn run(&mut self, header: &Header, place: Place) -> Ran {
        let mut manner = Manner::of(header);
        let parsed = manner.parse(header, self.frames.front(header), &mut self.unpacked);
        let body;
        let request = match parsed {
            Ok(Message::Msg(message)) => Request {
                body: message.body,
                sequences: message.sequences.into_iter().map(|it| (it.name, it.documents)).collect(),
                exhaust_allowed: message.flags.contains(Flags::EXHAUST_ALLOWED) && manner.wants_reply(),
                legacy_hello: false,
            },
            Ok(Message::Query(query)) => {
                let mut command = query.command.to_document();
                command.push("$db", query.database);
                body = command;
                let sequences = Vec::new();
                Request { body: body.as_raw(), sequences, exhaust_allowed: false, legacy_hello: true }
            }
            Ok(Message::Reply(_)) => return Ran::Refused(manner, Refusal::Close("a reply from a client")),
            Err(refusal) => return Ran::Refused(manner, refusal),
        };
        let service = &self.shared.service;
        let may_suspend = match place {
            Place::Room if !service.waits_on(&self.client, request.body) => return Ran::NotHere,
            Place::Room => true,
            Place::Home { may_leave } => may_leave,
        };
        let reply = run(service, &mut self.client, request, may_suspend && manner.wants_reply());
        if service.has_logins() {
            // Before the client hears of its login: it may connect again at once.
            self.peer.stranger.store(!service.is_trusted(&self.client), Ordering::Relaxed);
        }
        match reply {
            Some(reply) => Ran::Reply(manner, reply),
            None => Ran::Suspended,
        }
    }

    /// Sends a reply, and those that follow it without being asked for.
    fn reply(&mut self, mut manner: Manner, mut reply: Reply) -> io::Result<After> {
        loop {
            if reply.close_connection {
                return Ok(After::Close);
            }
            if !manner.wants_reply() {
                return Ok(After::GoOn);
            }
            let next = reply.exhaust_next;
            let room = &mut Room { memory: &self.shared.memory, message: &mut self.share };
            self.replies.send(&self.peer, room, manner, reply.document, next.is_some())?;
            let Some(next) = next else { return Ok(After::GoOn) };
            if self.shared.stopping.load(Ordering::Relaxed) {
                return Ok(After::Close);
            }
            self.peer.set_activity(STREAMING);
            manner.response_to = self.replies.last_id;
            let request = Request {
                body: next.as_raw(),
                sequences: Vec::new(),
                exhaust_allowed: true,
                legacy_hello: false,
            };
            reply = match run(&self.shared.service, &mut self.client, request, false) {
                Some(reply) => reply,
                None => return Ok(After::Close),
            };
        }
    }

    fn refuse(&mut self, manner: Manner, refusal: Refusal) -> io::Result<After> {
        self.log_refusal(&refusal);
        match refusal {
            Refusal::Close(_) => return Ok(After::Close),
            Refusal::Ignore => {}
            Refusal::Answer(_) if !manner.wants_reply() => {}
            Refusal::Answer(error) => {
                let document = self.shared.service.refuse(&error);
                let room = &mut Room { memory: &self.shared.memory, message: &mut self.share };
                self.replies.send(&self.peer, room, manner, document, false)?;
            }
            Refusal::AnswerQueryFailure(error) => {
                let mut document = Document::new();
                document.push("$err", error.to_string());
                document.push("code", error.code().0);
                document.push("ok", 0.0);
                let room = &mut Room { memory: &self.shared.memory, message: &mut self.share };
                self.replies.send_legacy(&self.peer, room, manner, ReplyFlags::QUERY_FAILURE, document)?;
            }
        }
        Ok(After::GoOn)
    }

    /// A login needs no large message, and others' memory is not for those who have not logged in.
    fn log_too_large(&self, bytes: usize) {
        let (connection, peer) = (self.id, self.peer.address);
        warn!(connection, %peer, bytes, "a large message of a client that has not logged in, connection ended");
    }

    fn log_refusal(&self, refusal: &Refusal) {
        let (connection, peer) = (self.id, self.peer.address);
        match refusal {
            Refusal::Close(why) => warn!(connection, %peer, why, "malformed message, connection ended"),
            // The message itself may quote the client's data.
            Refusal::Answer(error) | Refusal::AnswerQueryFailure(error) => {
                debug!(connection, %peer, code = error.code().0, "malformed message, answered with an error");
            }
            Refusal::Ignore => debug!(connection, %peer, "message without meaning, ignored"),
        }
    }

    /// Waits for the next message. Large buffers of the message before are given back if it takes longer than a moment to
    /// arrive whole: a client that begins it and stops there would hold them for as long as it likes.
    fn next(&mut self) -> io::Result<Next> {
        if self.peer.is_stranger() {
            return self.next_of_stranger();
        }
        // Once a large message is being read, the buffers belong to it.
        if self.has_large_buffers() && !self.frames.is_in_large() {
            match self.next_within(IDLE) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                next => return next,
            }
            self.give_back();
        }
        self.frames.next(&mut Watched { peer: &self.peer, until: None })
    }

    /// Waits for the next message of a client that has not logged in, for as long as such a client is waited for.
    fn next_of_stranger(&mut self) -> io::Result<Next> {
        let next = self.next_within(self.patience);
        self.peer.note_time();
        next.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(io::ErrorKind::TimedOut, "nobody logs in")
            }
            _ => error,
        })
    }

    /// Waits so long for the next message.
    fn next_within(&mut self, patience: Duration) -> io::Result<Next> {
        self.peer.stream.set_read_timeout(Some(patience))?;
        let until = Some(Instant::now() + patience);
        let next = self.frames.next(&mut Watched { peer: &self.peer, until });
        self.peer.stream.set_read_timeout(None)?;
        next
    }

    fn has_large_buffers(&self) -> bool {
        self.frames.is_large() || self.unpacked.capacity() > BUFFER_BYTES_KEPT || self.replies.is_large()
    }

    fn give_back(&mut self) {
        self.frames.shrink();
        self.unpacked = Vec::new();
        // A large buffer that has much in it keeps its share.
        if !self.frames.is_large() {
            self.share = None;
        }
        self.replies.give_back();
    }
}

/// What happens in the room, on its thread: nothing here waits.
impl<S: Service> Connection<S> {
    /// Whether a request of it may wait in the room.
    fn may_leave(&self) -> bool {
        self.shared.room.is_some()
            && self.peer.stream.is_plain()
            && self.at_home_until.is_none_or(|until| Instant::now() >= until)
    }

    /// What its request waits for.
    pub(crate) fn suspended(&self) -> Option<&Suspended> {
        self.shared.service.suspended(&self.client)
    }

    /// Runs the request again whose wait is over. None if it waits on.
    pub(crate) fn resume(&mut self) -> Option<Turn> {
        let header = self.suspended.take()?;
        let begun = Instant::now();
        let ran = self.run(&header, Place::Room);
        self.turn(header, begun, ran)
    }

    /// Looks whether the client asks for more. None if it does not yet, or its request waits.
    pub(crate) fn read_on(&mut self) -> Option<Turn> {
        let header = match self.frames.next(&mut Ready(&self.peer)) {
            Ok(Next::Frame(header)) => header,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // Its own thread meets the same again.
            _ => return Some(Turn::GoHome(Errand::Serve)),
        };
        let is_packed = header.opcode == Opcode::Compressed;
        if is_packed && unpacked_bytes(self.frames.front(&header)).unwrap_or(0) > MESSAGE_BYTES_FREE {
            return Some(Turn::GoHome(Errand::Serve));
        }
        self.unpacked.clear();
        self.peer.set_activity(RUNNING);
        let begun = Instant::now();
        let ran = self.run(&header, Place::Room);
        self.turn(header, begun, ran)
    }

    fn turn(&mut self, header: Header, begun: Instant, ran: Ran) -> Option<Turn> {
        let (manner, reply) = match ran {
            Ran::Suspended => {
                self.suspended = Some(header);
                return None;
            }
            Ran::Refused(..) | Ran::NotHere => return Some(Turn::GoHome(Errand::Serve)),
            Ran::Reply(manner, reply) => (manner, reply),
        };
        let now = Instant::now();
        let is_long = now - begun > LONG_TURN;
        if is_long {
            self.at_home_until = Some(now + AT_HOME);
        }
        let is_plain = !manner.legacy && !reply.close_connection && reply.exhaust_next.is_none();
        if !is_plain || reply.document.as_bytes().len() > MESSAGE_BYTES_FREE || is_long {
            return Some(Turn::GoHome(Errand::Reply(header, manner, reply)));
        }
        match self.replies.send_now(&self.peer, manner, reply.document) {
            Ok(None) => {}
            Ok(Some(rest)) => return Some(Turn::GoHome(Errand::Rest(header, rest))),
            Err(_) => return Some(Turn::GoHome(Errand::Close)),
        }
        match self.end_request(&header, After::GoOn) {
            After::GoOn => Some(Turn::Answered),
            After::Wait | After::Close => Some(Turn::GoHome(Errand::Close)),
        }
    }

    /// Whether more was read than the request that was answered.
    pub(crate) fn has_read_more(&self) -> bool {
        !self.frames.received().is_empty()
    }

    /// Does on its own thread what the room left to it.
    fn run_errand(&mut self, errand: Errand) -> io::Result<After> {
        Ok(match errand {
            Errand::Serve => After::GoOn,
            Errand::Close => After::Close,
            Errand::Reply(header, manner, reply) => {
                let after = self.reply(manner, reply)?;
                self.end_request(&header, after)
            }
            Errand::Rest(header, rest) => {
                (&self.peer.stream).write_all(&rest)?;
                self.end_request(&header, After::GoOn)
            }
        })
    }
}

/// What became of a guest of the room.
pub(crate) enum Turn {
    Answered,
    /// Its own thread goes on with it.
    GoHome(Errand),
}

impl Replies {
    fn is_large(&self) -> bool {
        self.out.capacity() > BUFFER_BYTES_KEPT || self.packed.capacity() > BUFFER_BYTES_KEPT
    }

    fn give_back(&mut self) {
        (self.out, self.packed, self.share) = (Vec::new(), Vec::new(), None);
    }

    fn send(
        &mut self,
        peer: &Peer,
        room: &mut Room<'_>,
        manner: Manner,
        document: Document,
        more_to_come: bool,
    ) -> io::Result<()> {
        if manner.legacy {
            return self.send_legacy(peer, room, manner, ReplyFlags::AWAIT_CAPABLE, document);
        }
        let mut flags = Flags(manner.flags.0 & Flags::CHECKSUM_PRESENT.0);
        if more_to_come {
            flags = flags.with(Flags::MORE_TO_COME);
        }
        let id = self.next_id();
        self.out.clear();
        let bytes = document.as_bytes().len();
        if bytes > MESSAGE_BYTES_FREE && !self.has_room_to_pack(room, manner, bytes) {
            let behind = write_op_msg_head(&mut self.out, id, manner.response_to, flags, document.as_raw());
            return self.write_large(peer, room, document, behind);
        }
        write_op_msg(&mut self.out, id, manner.response_to, flags, document.as_raw(), &[]);
        // Not held besides while the client takes its time.
        drop(document);
        self.write(peer, room, manner)
    }

    /// Whether a large reply is to be compressed, and there is room for its copy and for what becomes of it. Where there
    /// is none it is sent as it is, which any reply may be.
    fn has_room_to_pack(&mut self, room: &Room<'_>, manner: Manner, bytes: usize) -> bool {
        if manner.compressor.is_none() {
            return false;
        }
        let bytes = 2 * bytes + MESSAGE_BYTES_FREE;
        if self.share.as_ref().is_none_or(|share| share.bytes() < bytes) {
            self.give_back();
            self.share = room.memory.take(bytes, Duration::ZERO);
        }
        self.share.is_some()
    }

    /// Writes a large reply without another copy of it, its first part together with the head, which is in `out`: a
    /// client that is woken by the head alone has nothing to read yet.
    fn write_large(
        &mut self,
        peer: &Peer,
        room: &mut Room<'_>,
        document: Document,
        behind: Option<[u8; 4]>,
    ) -> io::Result<()> {
        let (head, body) = (&self.out[..], document.as_bytes());
        self.sent += (head.len() + body.len() + behind.map_or(0, |behind| behind.len())) as u64;
        let _share = room.take(body.len());
        peer.holds(body.len());
        let first = &body[..body.len().min(WRITE_BYTES)];
        let written = write_some(&peer.stream, &[IoSlice::new(head), IoSlice::new(first)])?;
        peer.moved(written);
        let (head, body) = (&head[written.min(head.len())..], &body[written.saturating_sub(head.len())..]);
        let parts = std::iter::once(head).chain(body.chunks(WRITE_BYTES));
        for part in parts.chain(behind.as_ref().map(|behind| &behind[..])) {
            (&peer.stream).write_all(part)?;
            peer.moved(part.len());
        }
        peer.holds_nothing();
        Ok(())
    }

    fn send_legacy(
        &mut self,
        peer: &Peer,
        room: &mut Room<'_>,
        manner: Manner,
        flags: ReplyFlags,
        document: Document,
    ) -> io::Result<()> {
        let id = self.next_id();
        self.out.clear();
        write_op_reply(&mut self.out, id, manner.response_to, flags, document.as_raw());
        self.write(peer, room, manner)
    }

    fn write(&mut self, peer: &Peer, room: &mut Room<'_>, manner: Manner) -> io::Result<()> {
        // Kept with the buffers, whose capacity it counts. A large reply may be small when it is compressed.
        let (length, capacity) = {
            let length = self.pack(manner)?.len();
            (length, self.out.capacity() + self.packed.capacity())
        };
        self.sent += length as u64;
        let bytes = if manner.compressor.is_some() { &self.packed } else { &self.out };
        if capacity <= 2 * MESSAGE_BYTES_FREE {
            return (&peer.stream).write_all(bytes);
        }
        if self.share.as_ref().is_none_or(|share| share.bytes() < capacity) {
            self.share = None;
            self.share = Some(room.take(capacity));
        }
        peer.holds(capacity);
        for part in bytes.chunks(WRITE_BYTES) {
            (&peer.stream).write_all(part)?;
            peer.moved(part.len());
        }
        peer.holds_nothing();
        Ok(())
    }

    /// Sends a small reply as far as the client takes it at once. Gives the rest.
    fn send_now(&mut self, peer: &Peer, manner: Manner, document: Document) -> io::Result<Option<Vec<u8>>> {
        let flags = Flags(manner.flags.0 & Flags::CHECKSUM_PRESENT.0);
        let id = self.next_id();
        self.out.clear();
        write_op_msg(&mut self.out, id, manner.response_to, flags, document.as_raw(), &[]);
        let bytes = self.pack(manner)?;
        let (mut sent, all) = (0, bytes.len());
        while sent < all {
            match peer.stream.send_now(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let rest = (sent < all).then(|| bytes[sent..].to_vec());
        self.sent += all as u64;
        Ok(rest)
    }

    /// The bytes of the message in `out` as they go over the wire.
    fn pack(&mut self, manner: Manner) -> io::Result<&[u8]> {
        let Some(compressor) = manner.compressor else { return Ok(&self.out) };
        self.packed.clear();
        compress(&self.out, compressor, &mut self.packed)?;
        Ok(&self.packed)
    }

    fn next_id(&mut self) -> i32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }
}

/// Writes what the stream takes at once, and tells how much.
fn write_some(mut stream: &Stream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match stream.write_vectored(parts) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

/// Where a reply takes its share from.
struct Room<'c> {
    memory: &'c Arc<Memory>,
    /// The share of the message that is answered.
    message: &'c mut Option<Share>,
}

impl Room<'_> {
    /// Nobody waits for room while holding some: before a reply waits, its message gives its share back. The message is
    /// answered, and its buffer is used again or freed soon.
    fn take(&mut self, bytes: usize) -> Share {
        self.memory.take(bytes, Duration::ZERO).unwrap_or_else(|| {
            *self.message = None;
            self.memory.take_anyway(bytes, REPLY_PATIENCE)
        })
    }
}

/// A client's bytes, noted as they come.
struct Watched<'p> {
    peer: &'p Peer,
    /// From then on nothing is read and the error is [`io::ErrorKind::TimedOut`].
    until: Option<Instant>,
}

impl Read for Watched<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let count = (&self.peer.stream).read(out)?;
        self.peer.moved(count);
        Ok(count)
    }
}

/// What has arrived of a client's bytes.
struct Ready<'p>(&'p Peer);

impl Read for Ready<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.0.stream.read_now(out)?;
        self.0.moved(count);
        Ok(count)
    }
}

/// Runs a request so that a broken invariant costs one answer and not the server. None if it has to wait.
fn run<S: Service>(
    service: &S,
    client: &mut S::Client,
    request: Request<'_>,
    may_suspend: bool,
) -> Option<Reply> {
    // Unwind safe: what a client shares with others is behind locks that its panic gives back, and
    // a write set that did not reach the commit queue is dropped with its transaction.
    let ran = catch_unwind(AssertUnwindSafe(|| match may_suspend {
        true => service.run_or_suspend(client, request),
        false => Some(service.run(client, request)),
    }));
    ran.unwrap_or_else(|_| {
        error!("a command panicked; its client was told InternalError");
        let error = Error::user(ErrorCode::InternalError, "the server met a bug while it ran this command");
        Some(Reply { document: service.refuse(&error), exhaust_next: None, close_connection: false })
    })
}

const TO_A_BROWSER: &str = "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n\
    This is a Kilim database. Browsers cannot talk to it; MongoDB drivers and mongosh can, with \
    mongodb:// in place of http://.\n";
