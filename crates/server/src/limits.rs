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

/// Bounds that whoever starts the server may choose.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections beyond this are closed as soon as they are accepted.
    pub connections_max: usize,
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
            write_timeout: Duration::from_secs(300),
            stop_grace: Duration::from_secs(10),
        }
    }
}
