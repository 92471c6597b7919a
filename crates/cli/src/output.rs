//! Standard output and standard error, which may be closed, full, or gone with their reader.
//!
//! `println!` panics where a write fails. Here a failed write to standard output is an error like any other: it ends the
//! command, and `main` tells a reader that went away (`| head -1`), which is no failure, from a disk that is full, which
//! is one. What cannot be written to standard error is dropped, since there is nobody left to tell.
//!
//! Names and texts of others may hold control characters, which a terminal would obey. What is written here shows them
//! as `\\u001b`, which JSON reads as the same text. A newline within a name is shown by [`one_line`].
//!
//! A program that is started without a standard output (`>&-`) has one when `main` begins: Rust opens `/dev/null` in its
//! place. What is written there is lost and no error tells, so it is looked for earlier ([`LOOK`]).

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program was started without a standard output.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: the call reads a flag of a descriptor, which need not be open.
    IS_MISSING.store(unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0, Ordering::Relaxed);
}

/// Has [`look`] called before Rust's runtime begins.
#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = look;

/// Writes a line to standard output; an `io::Result`.
macro_rules! say {
    () => { $crate::output::write(format_args!("\n")) };
    ($($arguments:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($arguments)*))) };
}

/// Writes text to standard output as it is; an `io::Result`.
macro_rules! show {
    ($($arguments:tt)*) => { $crate::output::write(format_args!($($arguments)*)) };
}

/// Writes a line to standard error, if anybody listens.
macro_rules! complain {
    ($($arguments:tt)*) => { $crate::output::write_to_stderr(format_args!("{}\n", format_args!($($arguments)*))) };
}

pub(crate) use {complain, say, show};

/// Standard output, for `write!` and for whatever takes a writer.
pub(crate) fn stdout() -> Output {
    Output
}

pub(crate) fn write(text: fmt::Arguments<'_>) -> io::Result<()> {
    stdout().write_all(shown(&text.to_string()).as_bytes())
}

pub(crate) fn write_to_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(shown(&text.to_string()).as_bytes());
}

/// A name of a collection, a user or the like, which must not begin a line of its own.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\t']) {
        true => shown(&text.replace('\n', "\\n").replace('\t', "\\t")).into_owned().into(),
        false => shown(text),
    }
}

/// A text whose control characters, but for newlines and tabs, are shown.
fn shown(text: &str) -> Cow<'_, str> {
    let is_control = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    if !text.contains(is_control) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match is_control(char) {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(char))),
            false => shown.push(char),
        }
    }
    shown.into()
}

pub(crate) struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if IS_MISSING.load(Ordering::Relaxed) {
            return Err(unwritable(io::Error::from_raw_os_error(libc::EBADF)));
        }
        io::stdout().write(bytes).map_err(unwritable)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(unwritable)
    }
}

/// Tells a failed write to standard output from one to a file or a connection.
#[derive(Debug)]
struct Unwritable(io::Error);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl std::error::Error for Unwritable {}

/// The kind stays what it was: `write_all` tries again where a signal came between.
fn unwritable(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Unwritable(error))
}

/// Whether an error is that the reader of standard output went away.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|reason| reason.downcast_ref::<io::Error>()).any(|reason| {
        reason.kind() == io::ErrorKind::BrokenPipe
            && reason.get_ref().is_some_and(|inner| inner.is::<Unwritable>())
    })
}

/// Ends as programs end whose reader went away: without a word, by SIGPIPE. Rust ignores that signal, and rightly:
/// the other end of a connection may go away too, and that deserves a message.
pub(crate) fn end_with_the_reader() -> ! {
    // SAFETY: the default action is always valid, and raising a signal touches no memory of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
    // The signal is blocked: the exit code that a shell would show.
    std::process::exit(128 + libc::SIGPIPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_names_stay_on_their_line() {
        assert_eq!(shown("a\x1b[2J\r\u{9b}1m\x7f\n\tü"), "a\\u001b[2J\\u000d\\u009b1m\\u007f\n\tü");
        assert_eq!(one_line("a\nshop.fake\t9\x1b"), "a\\nshop.fake\\t9\\u001b");
        assert!(matches!(one_line("orders"), Cow::Borrowed("orders")));
    }
}
