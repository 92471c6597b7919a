//! What a connection speaks over.
//!
//! The one place that knows what carries the bytes: sockets without encryption today. A stream that encrypts becomes a
//! further variant, and nothing else in this crate changes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::limits::KEEP_ALIVE_SECONDS;

/// Read and written through shared references: the thread of a connection does both, and others may cut it.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
}

impl Stream {
    /// A stream without encryption. A write that moves no byte for so long fails.
    pub(crate) fn plain(socket: TcpStream, write_timeout: Duration) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(write_timeout))?;
        keep_alive(&socket)?;
        Ok(Stream::Plain(socket))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket().local_addr()
    }

    /// How long a read waits for bytes; without a limit, for ever.
    pub(crate) fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket().set_read_timeout(patience)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket().shutdown(how)
    }

    /// Whether the peer has closed its side, unread bytes or not.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        let mut asked = libc::pollfd { fd: self.socket().as_raw_fd(), events: READ_CLOSED, revents: 0 };
        // SAFETY: the descriptor is open as long as the stream, and the struct outlives the call.
        let answered = unsafe { libc::poll(&mut asked, 1, 0) };
        answered > 0 && asked.revents & (READ_CLOSED | libc::POLLHUP | libc::POLLERR) != 0
    }
}

impl Read for &Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => (&*socket).read(out),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => (&*socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => (&*socket).flush(),
        }
    }
}

/// What the kernel reports once the peer has closed its side, unread bytes or not.
#[cfg(target_os = "linux")]
const READ_CLOSED: libc::c_short = libc::POLLRDHUP;
#[cfg(not(target_os = "linux"))]
const READ_CLOSED: libc::c_short = libc::POLLHUP;

/// Lets the kernel find out that a peer is gone which did not say so; its thread would wait forever.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let set = |level: i32, option: i32, value: i32| {
        // SAFETY: the descriptor is open, and the option is read from an int that outlives the call.
        let result = unsafe {
            let length = size_of_val(&value) as libc::socklen_t;
            libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), length)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    #[cfg(target_os = "linux")]
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEP_ALIVE_SECONDS)?;
    #[cfg(target_os = "macos")]
    set(libc::IPPROTO_TCP, libc::TCP_KEEPALIVE, KEEP_ALIVE_SECONDS)?;
    Ok(())
}
