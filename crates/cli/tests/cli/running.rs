//! A server of the binary's own, and runs of the binary that end by themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Running {
    child: Child,
    pub address: String,
}

impl Running {
    pub fn start(arguments: &[&str]) -> Running {
        Running::of(&mut kilim(arguments))
    }

    /// A server whose command is set up, with a standard output that is piped.
    pub fn of(command: &mut Command) -> Running {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line
            .strip_prefix("kilim is ready: mongodb://")
            .unwrap_or_else(|| panic!("not the ready line: {line:?}"))
            .trim_end()
            .to_string();
        Running { child, address }
    }

    /// A server that says nowhere where it is: the port was chosen before.
    pub fn silent(command: &mut Command, port: u16) -> Running {
        let running = Running { child: command.spawn().unwrap(), address: format!("127.0.0.1:{port}") };
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(&running.address).is_err() {
            assert!(Instant::now() < deadline, "it does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }

    pub fn send(&self, signal: i32) {
        // SAFETY: the process is our child and not yet waited for, so the id is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Closes the pipes that the server writes to.
    pub fn close_pipes(&mut self) {
        drop((self.child.stdout.take(), self.child.stderr.take()));
    }

    /// Sends a signal and waits for the end: the exit code.
    pub fn end_unheard(mut self, signal: i32) -> Option<i32> {
        self.send(signal);
        wait(&mut self.child)
    }

    /// Sends a signal and waits for the end: the exit code and the log.
    pub fn end(mut self, signal: i32) -> (Option<i32>, String) {
        self.send(signal);
        let code = wait(&mut self.child);
        (code, read(self.child.stderr.take()))
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn wait(child: &mut Child) -> Option<i32> {
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

pub fn read(pipe: Option<impl Read>) -> String {
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

pub fn kilim(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilim"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, standard output and standard error of a run that ends by itself.
pub fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = kilim(arguments).spawn().unwrap();
    let code = wait(&mut child);
    (code, read(child.stdout.take()), read(child.stderr.take()))
}

/// The same with something on standard input.
pub fn output_with(input: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = kilim(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let code = wait(&mut child);
    (code, read(child.stdout.take()), read(child.stderr.take()))
}
