//! What the rest of the server sees of a connection: its stream, whether it works or waits, what it holds.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::limits::{MOVED_BYTES_PER_SECOND, SLOW_AFTER};
use crate::stream::Stream;

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
    pub(crate) stranger: AtomicBool,
    /// Set once the connection was cut to make room; its thread is about to end.
    dismissed: AtomicBool,
}

pub(crate) const WAITING: u8 = 0;
pub(crate) const RUNNING: u8 = 1;
pub(crate) const STREAMING: u8 = 2;

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

    pub(crate) fn set_activity(&self, activity: u8) {
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
    pub(crate) fn holds(&self, bytes: usize) {
        self.note_time();
        self.moved_bytes.store(0, Ordering::Relaxed);
        self.held_since.store(self.moved_at.load(Ordering::Relaxed), Ordering::Relaxed);
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// The message is through. When it moved says nothing any more.
    pub(crate) fn holds_nothing(&self) {
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
    pub(crate) fn moved(&self, bytes: usize) {
        if self.held.load(Ordering::Relaxed) > 0 || self.is_stranger() {
            self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.note_time();
        }
    }

    pub(crate) fn note_time(&self) {
        self.moved_at.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// A client's bytes, noted as they come.
pub(crate) struct Watched<'p> {
    pub(crate) peer: &'p Peer,
    /// From then on nothing is read and the error is [`io::ErrorKind::TimedOut`].
    pub(crate) until: Option<Instant>,
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
pub(crate) struct Ready<'c> {
    pub(crate) peer: &'c Peer,
    pub(crate) has_input: &'c mut bool,
}

impl Read for Ready<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.peer.stream.read_now(out);
        // The kernel tells of more only once everything was taken. The end of the stream, too, is read only by asking again.
        *self.has_input = !matches!(&read, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.peer.moved(*read.as_ref().unwrap_or(&0));
        read
    }
}
