//! One client: read a message, run it, write the reply, until somebody ends it.
//!
//! A request that has to wait for news does so without the thread, in the room (`room.rs`).
//!
//! Buffers live as long as the connection, so a usual request costs one read, one write and no
//! allocation here. A fault in a message is answered or ends the connection as on MongoDB
//! ([`Refusal`]); a panic in a command becomes `InternalError` and the connection goes on.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kilim_bson::Document;
use kilim_commands::{Reply, Request, Suspended};
use kilim_error::{Error, ErrorCode};
use kilim_wire::{Flags, Header, Message, Opcode, Refusal, ReplyFlags, unpacked_bytes};
use tracing::{debug, error, warn};

use crate::frames::{Frames, Next};
use crate::limits::{
    AT_HOME, BUFFER_BYTES_KEPT, IDLE, LONG_TURN, MEMORY_PATIENCE, MESSAGE_BYTES_FREE, STRANGER_SILENCE,
};
use crate::memory::Share;
use crate::peer::{Peer, RUNNING, Ready, STREAMING, WAITING, Watched};
use crate::replies::{Manner, Replies, Shares};
use crate::service::Service;
use crate::shared::Shared;
use crate::stream::begins_handshake;

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
    /// Whether there is a room to wait in.
    has_room: bool,
    /// Until then its requests wait on its own thread.
    at_home_until: Option<Instant>,
    /// In the room: there may be bytes of the client that were not read.
    has_input: bool,
}

/// Why a connection's thread serves it no longer.
pub(crate) enum Served {
    Ended,
    /// Its request waits for news.
    Waits,
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
    pub(crate) fn new(id: u64, peer: Arc<Peer>, shared: Arc<Shared<S>>, has_room: bool) -> Self {
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
            has_room,
            at_home_until: None,
            has_input: false,
            shared,
        }
    }

    /// Serves until the connection ends or its request has to wait. An error is one of the socket.
    pub(crate) fn serve(&mut self, errand: Errand) -> io::Result<Served> {
        let mut after = self.run_errand(errand)?;
        loop {
            after = match after {
                After::GoOn => self.serve_next()?,
                After::Close => return Ok(Served::Ended),
                After::Wait => return Ok(Served::Waits),
            };
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
        self.give_back_before(&header);
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
            Place::Room if manner.wants_reply() && service.waits_on(&self.client, &request) => true,
            Place::Room => return Ran::NotHere,
            Place::Home { may_leave } => may_leave && manner.wants_reply(),
        };
        let reply = run(service, &mut self.client, request, may_suspend);
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
            let shares = &mut Shares { memory: &self.shared.memory, message: &mut self.share };
            self.replies.send(&self.peer, shares, manner, reply.document, next.is_some())?;
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
                let shares = &mut Shares { memory: &self.shared.memory, message: &mut self.share };
                self.replies.send(&self.peer, shares, manner, document, false)?;
            }
            Refusal::AnswerQueryFailure(error) => {
                let mut document = Document::new();
                document.push("$err", error.to_string());
                document.push("code", error.code().0);
                document.push("ok", 0.0);
                let shares = &mut Shares { memory: &self.shared.memory, message: &mut self.share };
                self.replies.send_legacy(&self.peer, shares, manner, ReplyFlags::QUERY_FAILURE, document)?;
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

    /// Gives large buffers back before a small request, which may wait for long.
    fn give_back_before(&mut self, header: &Header) {
        if header.length <= MESSAGE_BYTES_FREE && self.has_large_buffers() {
            self.give_back();
        }
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
        self.has_room
            && self.peer.stream.is_plain()
            && self.at_home_until.is_none_or(|until| Instant::now() >= until)
    }

    /// What its request waits for.
    pub(crate) fn suspended(&self) -> Option<&Suspended> {
        self.shared.service.suspended(&self.client)
    }

    /// Runs the request again whose wait is over.
    pub(crate) fn resume(&mut self) -> Turn {
        let Some(header) = self.suspended.take() else { return Turn::Idle };
        let begun = Instant::now();
        let ran = self.run(&header, Place::Room);
        self.turn(header, begun, ran)
    }

    /// Runs the next request, if it has arrived.
    pub(crate) fn read_on(&mut self) -> Turn {
        let header = match self.frames.next(&mut Ready { peer: &self.peer, has_input: &mut self.has_input }) {
            Ok(Next::Frame(header)) => header,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Idle,
            // Its own thread meets the same again.
            _ => return Turn::GoHome(Errand::Serve),
        };
        self.give_back_before(&header);
        let is_packed = header.opcode == Opcode::Compressed;
        if is_packed && unpacked_bytes(self.frames.front(&header)).unwrap_or(0) > MESSAGE_BYTES_FREE {
            return Turn::GoHome(Errand::Serve);
        }
        self.unpacked.clear();
        self.peer.set_activity(RUNNING);
        let begun = Instant::now();
        let ran = self.run(&header, Place::Room);
        self.turn(header, begun, ran)
    }

    fn turn(&mut self, header: Header, begun: Instant, ran: Ran) -> Turn {
        let now = Instant::now();
        let is_long = now - begun > LONG_TURN;
        if is_long {
            self.at_home_until = Some(now + AT_HOME);
        }
        let (manner, reply) = match ran {
            // Its own thread runs it again, and waits with it.
            Ran::Suspended if is_long => return Turn::GoHome(Errand::Serve),
            Ran::Suspended => {
                self.suspended = Some(header);
                return Turn::Waits;
            }
            Ran::Refused(..) | Ran::NotHere => return Turn::GoHome(Errand::Serve),
            Ran::Reply(manner, reply) => (manner, reply),
        };
        // A stranger is waited for at home only, and not for ever.
        let is_plain = !manner.legacy
            && !reply.close_connection
            && reply.exhaust_next.is_none()
            && !self.peer.is_stranger();
        if !is_plain || reply.document.as_bytes().len() > MESSAGE_BYTES_FREE || is_long {
            return Turn::GoHome(Errand::Reply(header, manner, reply));
        }
        match self.replies.send_now(&self.peer, manner, reply.document) {
            Ok(None) => {}
            Ok(Some(rest)) => return Turn::GoHome(Errand::Rest(header, rest)),
            Err(_) => return Turn::GoHome(Errand::Close),
        }
        match self.end_request(&header, After::GoOn) {
            After::GoOn => Turn::Answered,
            After::Wait | After::Close => Turn::GoHome(Errand::Close),
        }
    }

    /// Leaves the room because it is overcrowded, with whatever is to be done.
    pub(crate) fn leave(&mut self) -> Turn {
        self.suspended = None;
        self.at_home_until = Some(Instant::now() + AT_HOME);
        Turn::GoHome(Errand::Serve)
    }

    /// The client has sent something, or closed its side.
    pub(crate) fn note_input(&mut self) {
        self.has_input = true;
    }

    /// Whether there may be another request to run.
    pub(crate) fn may_have_more(&self) -> bool {
        self.has_input || !self.frames.received().is_empty()
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

/// What a connection's thread is to do first when it has its connection back.
pub(crate) enum Errand {
    /// Go on reading.
    Serve,
    /// Send a reply.
    Reply(Header, Manner, Reply),
    /// Send the rest of one.
    Rest(Header, Vec<u8>),
    Close,
}

/// What became of a guest of the room.
pub(crate) enum Turn {
    /// No request has arrived.
    Idle,
    /// Its request waits.
    Waits,
    Answered,
    /// Its own thread goes on with it.
    GoHome(Errand),
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
