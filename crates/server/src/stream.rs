//! What a connection speaks over: a socket, encrypted once its handshake is done. The one place that knows which of both.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kilim_tls::{ServerTls, Session};

use crate::limits::KEEP_ALIVE_SECONDS;

/// Read and written through shared references: the thread of a connection does both, and others may cut it.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    /// Set by [`Stream::secure`] where the client encrypts.
    session: OnceLock<Session>,
}

impl Stream {
    /// A write that moves no byte for so long fails.
    pub(crate) fn new(socket: TcpStream, write_timeout: Duration) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(write_timeout))?;
        keep_alive(&socket)?;
        Ok(Stream { socket, session: OnceLock::new() })
    }

    /// Does the handshake if the client begins one, until the deadline at most. A client that does not is refused where
    /// it must.
    pub(crate) fn secure(&self, tls: &ServerTls, deadline: Instant) -> io::Result<()> {
        // The client has its time to say the first byte, and nothing else is read before that.
        let left = deadline.saturating_duration_since(Instant::now());
        self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let session = match self.peeked()? {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(first) if kilim_tls::begins_handshake(&first) => {
                Some(tls.accept(&self.socket, deadline).inspect_err(|_| self.let_read())?)
            }
            Some(_) if tls.plain_allowed() => None,
            Some(_) => {
                self.let_read();
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the client does not encrypt, and must: in its connection string tls=true is missing",
                ));
            }
        };
        self.socket.set_read_timeout(None)?;
        if let Some(session) = session {
            // Called once.
            let _ = self.session.set(session);
        }
        Ok(())
    }

    /// Lets the client read why it is refused: closing a socket that has unread bytes would take that from it.
    fn let_read(&self) {
        let deadline = Instant::now() + LAST_WORD;
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.socket.set_read_timeout(Some(LAST_WORD));
        let mut ignored = [0; 1024];
        while Instant::now() < deadline && (&self.socket).read(&mut ignored).is_ok_and(|count| count > 0) {}
    }

    /// The first bytes, which stay to be read; `None` if the client ends before.
    fn peeked(&self) -> io::Result<Option<[u8; 6]>> {
        let mut first = [0; 6];
        let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
        loop {
            // SAFETY: the descriptor is open as long as the stream, and the buffer has as many bytes as are said.
            let count =
                unsafe { libc::recv(self.socket.as_raw_fd(), first.as_mut_ptr().cast(), first.len(), flags) };
            match usize::try_from(count) {
                Ok(count) => return Ok((count == first.len()).then_some(first)),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The subject of the client's certificate, which was verified; `None` if it showed none.
    pub(crate) fn subject(&self) -> Option<String> {
        Some(self.session.get()?.peer()?.subject)
    }

    /// Tells the client that nothing follows, where the protocol has a word for it.
    pub(crate) fn close(&self) {
        if let Some(session) = self.session.get() {
            // Nobody waits for a client that does not read the last word.
            let _ = self.socket.set_write_timeout(Some(LAST_WORD));
            session.close(&self.socket);
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// How long a read waits for bytes; without a limit, for ever.
    pub(crate) fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(patience)
    }

    /// Whether bytes go over the socket as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.session.get().is_none()
    }

    /// Reads what has arrived on a plain stream, without waiting.
    pub(crate) fn read_now(&self, out: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the descriptor is open as long as the stream, and the buffer has as many bytes as are said.
        let count = unsafe {
            libc::recv(self.socket.as_raw_fd(), out.as_mut_ptr().cast(), out.len(), libc::MSG_DONTWAIT)
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Writes to a plain stream what it takes without waiting, and tells how much.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the descriptor is open as long as the stream, and the buffer has as many bytes as are said.
        let count =
            unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), SEND_NOW) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    pub(crate) fn set_write_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(patience)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Whether the peer has closed its side, unread bytes or not.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        let mut asked = libc::pollfd { fd: self.socket.as_raw_fd(), events: READ_CLOSED, revents: 0 };
        // SAFETY: the descriptor is open as long as the stream, and the struct outlives the call.
        let answered = unsafe { libc::poll(&mut asked, 1, 0) };
        answered > 0 && asked.revents & (READ_CLOSED | libc::POLLHUP | libc::POLLERR) != 0
    }
}

/// Whether bytes that were read are the beginning of a handshake.
pub(crate) fn begins_handshake(received: &[u8]) -> bool {
    received.first_chunk().is_some_and(kilim_tls::begins_handshake)
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Read for &Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.session.get() {
            None => (&self.socket).read(out),
            Some(session) => session.read(&self.socket, out),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.session.get() {
            None => (&self.socket).write(bytes),
            Some(session) => session.write(&self.socket, bytes),
        }
    }

    /// Encrypted, the parts are written one at a time.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.session.get() {
            None => (&self.socket).write_vectored(parts),
            Some(session) => match parts.iter().find(|part| !part.is_empty()) {
                Some(part) => session.write(&self.socket, part),
                None => Ok(0),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long the end of a connection may take to be told.
const LAST_WORD: Duration = Duration::from_millis(500);

/// The signal of a broken pipe is ignored by the runtime where the kernel has no flag for it.
#[cfg(target_os = "linux")]
const SEND_NOW: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const SEND_NOW: libc::c_int = libc::MSG_DONTWAIT;

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
