//! The binary as a user starts and ends it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Running {
    child: Child,
    address: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut child = kilim(arguments).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line
            .strip_prefix("kilim is ready: mongodb://")
            .unwrap_or_else(|| panic!("not the ready line: {line:?}"))
            .trim_end()
            .to_string();
        Running { child, address }
    }

    /// Sends a signal and waits for the end: the exit code and the log.
    fn end(mut self, signal: i32) -> (Option<i32>, String) {
        // SAFETY: the process is our child and not yet waited for, so the id is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        let code = wait(&mut self.child);
        (code, read(self.child.stderr.take()))
    }
}

fn wait(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("still running");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    pipe.unwrap().read_to_string(&mut text).unwrap();
    text
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kilim(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilim"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, standard output and standard error of a run that ends by itself.
fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = kilim(arguments).spawn().unwrap();
    let code = wait(&mut child);
    (code, read(child.stdout.take()), read(child.stderr.take()))
}

#[test]
fn the_ready_line_names_where_to_connect_and_both_signals_end_in_order() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let server = Running::start(&["serve", "--ephemeral", "--port", "0", "--log-format", "json"]);
        let client = TcpStream::connect(&server.address).unwrap();
        let (code, log) = server.end(signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{log}");
        assert!(log.contains("stopped"), "{log}");
        drop(client);
    }
}

#[test]
fn a_taken_port_ends_with_advice() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let port = server.address.rsplit(':').next().unwrap();
    let (code, _, message) = output(&["serve", "--ephemeral", "--port", port]);
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("port {port}")) && message.contains("--port 0"), "{message}");
}

#[test]
fn a_data_directory_has_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let server = Running::start(&["serve", "--data", data, "--port", "0"]);
    let (code, _, message) = output(&["serve", "--data", data, "--port", "0"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(data) && message.contains("another process"), "{message}");
    let (code, log) = server.end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    // And it is free again.
    let (code, log) = Running::start(&["serve", "--data", data, "--port", "0"]).end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    for (arguments, expected) in [
        (&["serve", "--bind", "0.0.0.0", "--ephemeral", "--port", "0"][..], "--insecure"),
        (&["serve", "--ephemeral", "--data", "x"], "--data"),
        (&["serve", "--ephemeral", "--durability", "relaxed"], "--durability"),
        (&["serve", "--cache-bytes", "5 parsecs"], "parsecs"),
        (&["serve", "--port", "70000"], "70000"),
        (&["sevre"], "serve"),
    ] {
        let (code, _, message) = output(arguments);
        assert!(code.is_some_and(|code| code != 0), "{arguments:?}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn help_shows_examples_and_the_version_is_told() {
    let (code, version, _) = output(&["--version"]);
    assert_eq!((code, version.trim()), (Some(0), concat!("kilim ", env!("CARGO_PKG_VERSION"))));
    for arguments in [&["--help"][..], &["serve", "--help"]] {
        let (code, help, _) = output(arguments);
        assert_eq!(code, Some(0));
        assert!(help.contains("Examples:") && help.contains("kilim serve --ephemeral --port 0"), "{help}");
    }
}
