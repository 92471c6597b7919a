//! A server of the binary's own, and runs of the binary that end by themselves.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use kilim_testkit::process::Process;
use kilim_testkit::subject::launch;
use kilim_testkit::{eventually, look_for};

pub struct Running {
    process: Process,
    pub address: String,
}

impl Running {
    pub fn start(arguments: &[&str]) -> Running {
        Running::of(&mut kilim(arguments))
    }

    /// A server whose command is set up, with a standard output that is piped.
    pub fn of(command: &mut Command) -> Running {
        let (process, address) = launch(command).unwrap();
        Running { process, address: address.to_string() }
    }

    /// A server that says nowhere where it is: the port was chosen before.
    pub fn silent(command: &mut Command, port: u16) -> Running {
        let process = Process::spawn(command).unwrap();
        let address = format!("127.0.0.1:{port}");
        eventually("it listens", || std::net::TcpStream::connect(&address).is_ok());
        Running { process, address }
    }

    pub fn send(&self, signal: i32) {
        // SAFETY: the process is our child and not yet waited for, so the id is its own.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// Closes the pipe that the log is written to.
    pub fn close_log(&mut self) {
        drop(self.process.child().stderr.take());
    }

    /// Reads the log up to the first line that has this text in it.
    pub fn read_log_until(&mut self, text: &str) {
        let log = self.process.child().stderr.as_mut().unwrap();
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&line).contains(text) {
            // Byte by byte: what lies behind the line stays in the pipe.
            assert_eq!(log.read(&mut byte).unwrap(), 1, "the log ends without {text:?}");
            match byte {
                [b'\n'] => line.clear(),
                [byte] => line.push(byte),
            }
        }
    }

    /// Sends a signal and waits for the end: the exit code.
    pub fn end_unheard(mut self, signal: i32) -> Option<i32> {
        self.send(signal);
        wait(self.process.child())
    }

    /// Sends a signal and waits for the end: the exit code and the log.
    pub fn end(mut self, signal: i32) -> (Option<i32>, String) {
        self.send(signal);
        let code = wait(self.process.child());
        (code, read(self.process.child().stderr.take()))
    }
}

/// The exit code of a process that ends by itself or was told to.
pub fn wait(child: &mut Child) -> Option<i32> {
    let Some(status) = look_for(Duration::from_secs(120), || child.try_wait().unwrap()) else {
        child.kill().unwrap();
        panic!("still running");
    };
    status.code()
}

pub fn read(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    pipe.unwrap().read_to_string(&mut text).unwrap();
    text
}

pub fn kilim(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilim"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, standard output and standard error of a run that ends by itself.
pub fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    told(kilim(arguments).spawn().unwrap())
}

/// The same with something on standard input.
pub fn output_with(input: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = kilim(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    told(child)
}

/// What a process tells until its end. It is read meanwhile, since a pipe that is full would hold the process up.
fn told(mut child: Child) -> (Option<i32>, String, String) {
    let (shown, message) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let shown = scope.spawn(|| read(shown));
        let message = scope.spawn(|| read(message));
        let code = wait(&mut child);
        (code, shown.join().unwrap(), message.join().unwrap())
    })
}
