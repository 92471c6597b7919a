//! Bounds of the server, each with the reason for its number.

use std::time::Duration;

/// What a connection's input buffer starts with and returns to: most requests fit, and ten thousand
/// idle connections hold 40 MB.
pub(crate) const BUFFER_BYTES: usize = 4 * 1024;

/// Buffers larger than this are given back once the connection has been idle for [`IDLE`].
pub(crate) const BUFFER_BYTES_KEPT: usize = 64 * 1024;

/// A client that loads data in bulk pauses for less than this between messages.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// Virtual memory for a connection's stack; only touched pages count. Documents nest at most 200
/// deep, which costs well under half of it. Unoptimised code uses several times as much.
pub(crate) const STACK_BYTES: usize = if cfg!(debug_assertions) { 8 } else { 1 } * 1024 * 1024;

/// Waiting connections that the kernel queues while we start threads for earlier ones: a pool of a
/// thousand connections may arrive at once.
pub(crate) const BACKLOG: i32 = 4096;

/// After this long without a word the kernel asks whether the peer still lives, as on MongoDB.
pub(crate) const KEEP_ALIVE_SECONDS: i32 = 300;

/// File descriptors that the process needs beside its connections, mostly for storage.
pub(crate) const DESCRIPTORS_RESERVED: usize = 512;

/// How long the service may take to notice that it shall end.
pub(crate) const INTERRUPT: Duration = Duration::from_secs(2);

/// How often the service's housekeeping runs.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Messages and replies beyond this take a share of [`Limits::message_bytes_max`]; twenty thousand connections hold about
/// a gigabyte below it, if every one of them is busy.
pub(crate) const MESSAGE_BYTES_FREE: usize = BUFFER_BYTES_KEPT;

/// How long a message waits for its share before the connection is ended.
pub(crate) const MEMORY_PATIENCE: Duration = Duration::from_secs(30);

/// How long a reply waits for its share before it is sent without.
pub(crate) const REPLY_PATIENCE: Duration = Duration::from_millis(500);

/// A connection that holds a share while others wait for one, and has not moved a byte for so long, is cut.
pub(crate) const STALLED: Duration = Duration::from_secs(1);

/// Such a connection is also cut when it has moved fewer bytes than this since it began to hold its share, once some time
/// has passed: a slow line moves more.
pub(crate) const MOVED_BYTES_PER_SECOND: f64 = 64.0 * 1024.0;
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(5);

/// How much of a reply is handed to the kernel at once: between two parts it is seen that the client reads.
pub(crate) const WRITE_BYTES: usize = 256 * 1024;

/// How often running requests are looked at: whether their client is still there.
pub(crate) const WATCH: Duration = Duration::from_millis(100);

/// How long a client may take to do the handshake of TLS: a few round trips, on a line however slow.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a client that is to log in may take to say its first message whole.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);

/// How long one that has not logged in may be silent afterwards. Drivers watch servers over connections that never log in,
/// and say something every ten seconds unless told otherwise.
pub(crate) const STRANGER_SILENCE: Duration = Duration::from_secs(300);

/// A change stream that takes longer than this for a batch is served by its connection's own thread for a while
/// ([`AT_HOME`]): others wait for the room's thread.
pub(crate) const LONG_TURN: Duration = Duration::from_millis(2);
/// A round of the room's thread that takes longer than this sends whoever is left to be served home for a while. A thousand
/// streams that show one event take about a third of it.
pub(crate) const LONG_ROUND: Duration = Duration::from_millis(50);
pub(crate) const AT_HOME: Duration = Duration::from_secs(10);

/// How long a thread without a connection waits for the next one. Streams that are served at home now and then find the
/// threads of last time; a pool's connections that have ended leave no threads behind for long.
pub(crate) const FREE_FOR: Duration = Duration::from_secs(2);

/// Bounds that whoever starts the server may choose.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections beyond this are closed as soon as they are accepted.
    pub connections_max: usize,
    /// So many connections may be in their handshake or without a login, where clients are to log in: those who have are left
    /// room. For one more, the one of them that has been silent longest is closed.
    pub strangers_max: usize,
    /// How long a client may take to do the handshake of TLS.
    pub handshake: Duration,
    /// How long a client that is to log in may take for its first message.
    pub first_message: Duration,
    /// What large messages and replies of all connections may hold together. A message has at most 48 MB.
    pub message_bytes_max: usize,
    /// A client that takes no byte of a reply for so long is cut off. Generous, because a client may
    /// well think for minutes between two batches of an exhaust cursor.
    pub write_timeout: Duration,
    /// What running operations are given to finish when the server stops.
    pub stop_grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 20_000,
            strangers_max: 10_000,
            handshake: HANDSHAKE,
            first_message: FIRST_MESSAGE,
            message_bytes_max: 512 << 20,
            write_timeout: Duration::from_secs(300),
            stop_grace: Duration::from_secs(10),
        }
    }
}
