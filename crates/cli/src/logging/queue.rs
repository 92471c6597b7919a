//! Log lines on their way to standard error or a file, which must never hold up or end the server.
//!
//! Whoever logs puts a line into a queue and goes on; one thread writes. A pipe that nobody reads blocks that thread
//! alone. A line that finds the queue full, or that cannot be written (a closed pipe, a full disk), is dropped and
//! counted, and the count is told in the log once writing works again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilim_engine::server_log::{self, RecentLine};
use tracing_subscriber::fmt::MakeWriter;

/// Some ten thousand lines: enough for a burst, and little beside any cache.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// What getLog tells, as mongod does.
const RECENT_LINES_MAX: usize = 1024;
const RECENT_LINE_BYTES_MAX: usize = 10 * 1024;
/// A terminal or pipe that another program made non-blocking may be full for a moment. Longer than this, the line is lost.
const BUSY_MS_MAX: i32 = 1000;

thread_local! {
    /// Set in the writing thread while it logs how many lines were lost.
    static TELLING: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The queue's end that takes lines.
#[derive(Clone)]
pub(crate) struct LogQueue {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// A line has come.
    filled: Condvar,
    /// All lines are written or lost.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Line>,
    bytes: usize,
    /// The thread is writing a line that it has taken out.
    writing: bool,
    /// Lines that were lost and not yet told.
    lost: u64,
    /// The file is to be opened anew.
    reopen: bool,
    /// For getLog.
    recent: server_log::Recent,
    /// The server has begun to serve.
    is_ready: bool,
}

struct Line {
    text: Vec<u8>,
    /// How many lost lines this one tells of; 0 for an ordinary line.
    tells: u64,
}

impl State {
    /// Keeps a line for getLog, without colours.
    fn remember(&mut self, text: &[u8]) {
        let text = plain(&String::from_utf8_lossy(text));
        let is_warning =
            ["\"s\":\"W\"", "\"level\":\"WARN\"", " WARN "].iter().any(|mark| text.contains(mark));
        let is_start_warning = !self.is_ready && is_warning;
        self.recent.written += 1;
        self.recent.warnings_at_start += u64::from(is_start_warning);
        let lines = &mut self.recent.lines;
        if lines.len() >= RECENT_LINES_MAX {
            let oldest = lines.iter().position(|line| !line.is_start_warning).unwrap_or(0);
            lines.remove(oldest);
        }
        lines.push(RecentLine { text, is_start_warning });
    }
}

/// A line without what a terminal is told by, and not longer than a reply can hold a thousand of.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.trim_end();
    while let Some((before, behind)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = behind.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    let end = plain.char_indices().map(|(at, _)| at).find(|&at| at >= RECENT_LINE_BYTES_MAX);
    plain.truncate(end.unwrap_or(plain.len()));
    plain
}

impl LogQueue {
    /// A queue whose lines a thread of its own writes to standard error.
    pub(super) fn to_stderr() -> io::Result<LogQueue> {
        // Not through `std::io::Stderr`: its lock would be held as long as a write blocks.
        LogQueue::to(File::from(io::stderr().as_fd().try_clone_to_owned()?), None)
    }

    /// The same to a file, behind what is in it.
    pub(super) fn to_file(path: &Path) -> io::Result<LogQueue> {
        LogQueue::to(open(path)?, Some(path.to_owned()))
    }

    fn to(out: File, path: Option<PathBuf>) -> io::Result<LogQueue> {
        let queue = LogQueue {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                filled: Condvar::new(),
                emptied: Condvar::new(),
            }),
        };
        let shared = queue.shared.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.write_lines(out, path))?;
        Ok(queue)
    }

    /// Has the file opened anew before the next line.
    pub(crate) fn reopen(&self) {
        self.shared.lock().reopen = true;
    }

    /// Warnings are not of the start any more.
    pub(super) fn note_ready(&self) {
        self.shared.lock().is_ready = true;
    }

    /// The last lines that were logged, written or not.
    pub(super) fn recent(&self) -> server_log::Recent {
        self.shared.lock().recent.clone()
    }

    /// Waits until all lines are written, at most as long as given.
    pub(crate) fn flush(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        let mut state = self.shared.lock();
        while state.writing || !state.waiting.is_empty() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            let waited = self.shared.emptied.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Write for LogQueue {
    /// Takes a whole line: that is what the subscriber writes at once.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let tells = TELLING.get();
        let mut state = self.shared.lock();
        state.remember(text);
        if tells.is_none() && state.bytes + text.len() > WAITING_BYTES_MAX {
            state.lost += 1;
        } else {
            state.bytes += text.len();
            state.waiting.push_back(Line { text: text.to_vec(), tells: tells.unwrap_or(0) });
            self.shared.filled.notify_one();
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for LogQueue {
    type Writer = LogQueue;

    fn make_writer(&'w self) -> LogQueue {
        self.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_lines(&self, mut out: File, path: Option<PathBuf>) {
        // Whether the last line was cut off in its middle.
        let mut torn = false;
        loop {
            let mut state = self.lock();
            while state.waiting.is_empty() {
                state.writing = false;
                self.emptied.notify_all();
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(line) = state.waiting.pop_front() else { continue };
            state.bytes -= line.text.len();
            state.writing = true;
            let reopen = std::mem::take(&mut state.reopen);
            drop(state);
            if let Some(path) = path.as_deref().filter(|_| reopen) {
                match open(path) {
                    Ok(file) => (out, torn) = (file, false),
                    // It goes on in the old one.
                    Err(error) => tracing::error!(%error, "the log file cannot be opened anew"),
                }
            }
            let written = write_line(&mut out, &line.text, &mut torn);
            let mut state = self.lock();
            match written {
                Ok(()) if state.lost > 0 => {
                    let lost = std::mem::take(&mut state.lost);
                    drop(state);
                    // Through the subscriber, so that the line looks like the others. An error, so that no level hides it.
                    TELLING.set(Some(lost));
                    tracing::error!(lines = lost, "log lines were lost");
                    TELLING.set(None);
                }
                Ok(()) => {}
                Err(_) => state.lost += line.tells.max(1),
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn write_line(out: &mut File, text: &[u8], torn: &mut bool) -> io::Result<()> {
    if *torn {
        write_all(out, b"\n", &mut false)?;
        *torn = false;
    }
    write_all(out, text, torn)
}

/// `torn` is set where some bytes were written and others could not be.
fn write_all(out: &mut File, mut bytes: &[u8], torn: &mut bool) -> io::Result<()> {
    let length = bytes.len();
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(written) if written > 0 => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && has_room(out) => {}
            result => {
                *torn = bytes.len() < length;
                return Err(result.err().unwrap_or_else(|| ErrorKind::WriteZero.into()));
            }
        }
    }
    Ok(())
}

fn has_room(out: &File) -> bool {
    let mut asked = libc::pollfd { fd: out.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor, which is open as long as the file is.
    unsafe { libc::poll(&mut asked, 1, BUSY_MS_MAX) > 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_costs_lines_and_no_time() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut queue = LogQueue::to(File::from(OwnedFd::from(writer)), None).unwrap();
        let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        // SAFETY: asks about a descriptor that is open.
        let room = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_GETPIPE_SZ) } as usize / line.len();
        // One line more than the pipe takes. Once the thread has that in hand it writes no other, so what is lost from
        // then on is not told before somebody reads.
        for _ in 0..=room {
            queue.write_all(&line).unwrap();
        }
        while !queue.shared.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        for _ in room + 1..8 * 1024 {
            queue.write_all(&line).unwrap();
        }
        queue.flush(Duration::from_millis(1));
        let lost = {
            let state = queue.shared.lock();
            assert!(state.writing && state.bytes <= WAITING_BYTES_MAX);
            state.lost
        };
        assert!(lost > 3000, "{lost}");
        // Whoever reads at last gets what was kept, in whole lines.
        let mut kept = vec![0; (8 * 1024 - lost as usize) * line.len()];
        reader.read_exact(&mut kept).unwrap();
        assert!(kept.chunks(line.len()).all(|read| read == line));
        queue.flush(Duration::from_secs(20));
        assert_eq!(queue.shared.lock().waiting.len(), 0);
    }
}
