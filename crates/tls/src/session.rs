//! An encrypted conversation over a socket that its owner keeps.
//!
//! Reading and writing go through shared references, as with sockets: one thread does both, so the lock is never waited
//! for. Others cut the socket, which needs no lock.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::Connection;

use crate::certificate::Certificate;
use crate::files::said;

/// A conversation whose handshake is done.
pub struct Session {
    connection: Mutex<Connection>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Does the handshake, until the deadline at most. The socket's read timeout is another one afterwards.
    pub(crate) fn begin(
        mut connection: Connection,
        mut socket: &TcpStream,
        deadline: Instant,
    ) -> io::Result<Session> {
        while connection.is_handshaking() || connection.wants_write() {
            if connection.wants_write() {
                flush(&mut connection, socket)?;
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long"));
            }
            socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match connection.read_tls(&mut socket) {
                Ok(0) => {
                    let why = "the other side ends the handshake before it is done";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
                Ok(_) => process(&mut connection, socket)?,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Session { connection: Mutex::new(connection) })
    }

    /// 0 is the end, whether the other side said so or just closed: messages tell their own length.
    pub fn read(&self, mut socket: &TcpStream, out: &mut [u8]) -> io::Result<usize> {
        let mut connection = self.connection.lock();
        loop {
            match connection.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            // A new key, say, that the other side asked for.
            flush(&mut connection, socket)?;
            if connection.read_tls(&mut socket)? == 0 {
                return Ok(0);
            }
            process(&mut connection, socket)?;
        }
    }

    pub fn write(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut connection = self.connection.lock();
        let count = connection.writer().write(bytes)?;
        flush(&mut connection, socket)?;
        Ok(count)
    }

    /// Tells the other side that nothing follows.
    pub fn close(&self, socket: &TcpStream) {
        let mut connection = self.connection.lock();
        connection.send_close_notify();
        // Nobody may be there to hear it.
        let _ = flush(&mut connection, socket);
    }

    /// What the other side's certificate says; `None` if it has none. It was verified, unless everything is accepted.
    pub fn peer(&self) -> Option<Certificate> {
        let connection = self.connection.lock();
        let certificate = connection.peer_certificates()?.first()?;
        Certificate::parse(certificate).ok()
    }
}

/// Sends all that is to be sent. An interruption by a signal is not told: a caller would write the same bytes again.
fn flush(connection: &mut Connection, mut socket: &TcpStream) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut socket) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Looks at what has arrived. Where that is wrong, the other side is told so.
fn process(connection: &mut Connection, socket: &TcpStream) -> io::Result<()> {
    if let Err(error) = connection.process_new_packets() {
        let _ = flush(connection, socket);
        return Err(io::Error::new(io::ErrorKind::InvalidData, said(&error)));
    }
    Ok(())
}
