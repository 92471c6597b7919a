//! The `kilim` binary, run as a user runs it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::Process;

const READY_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Server {
    process: Process,
    address: String,
}

#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// In memory if there is none.
    pub data: Option<PathBuf>,
    pub test_commands: bool,
    pub extra: Vec<String>,
}

impl Server {
    /// Starts the binary on a free port and waits for the line that says how to connect.
    pub fn start(binary: &Path, options: &ServerOptions) -> Result<Server> {
        let mut command = Command::new(binary);
        command.args(["serve", "--port", "0"]);
        match &options.data {
            Some(directory) => command.arg("--data").arg(directory),
            None => command.arg("--ephemeral"),
        };
        if options.test_commands {
            command.arg("--test-commands");
        }
        command.args(&options.extra).stdin(Stdio::null()).stdout(Stdio::piped());
        // Its log belongs to whoever asks for it by KILIM_LOG; in a test run it is noise.
        if std::env::var_os("KILIM_LOG").is_none() {
            command.stderr(Stdio::null());
        }
        let mut process = Process::spawn(&mut command)?;
        let output = process.child().stdout.take().context("the server's output is piped")?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output);
            let mut line = String::new();
            // A failed read and an ended server look the same to the one who waits: no ready line.
            let _ = lines.read_line(&mut line);
            let _ = sender.send(line);
            // Keep reading, so that the server never writes into a closed pipe.
            let _ = lines.read_to_end(&mut Vec::new());
        });
        let line = receiver.recv_timeout(READY_TIMEOUT).unwrap_or_default();
        let Some(address) = address_in(&line) else {
            bail!("{} did not say that it is ready, but {line:?}", binary.display());
        };
        Ok(Server { process, address })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// A clean stop.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.process.terminate()
    }

    /// Kill -9.
    pub fn kill(mut self) {
        self.process.kill();
    }
}

/// The `host:port` behind `mongodb://`.
fn address_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("mongodb://")?;
    let end =
        rest.find(|character: char| character.is_whitespace() || character == '/').unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches(['.', ',']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::address_in;

    #[test]
    fn the_ready_line_holds_the_address() {
        for line in [
            "ready: mongodb://127.0.0.1:4711\n",
            "mongodb://127.0.0.1:4711/?replicaSet=k, go",
            "at mongodb://127.0.0.1:4711.",
        ] {
            assert_eq!(address_in(line).as_deref(), Some("127.0.0.1:4711"), "{line}");
        }
        assert_eq!(address_in("cannot bind"), None);
    }
}
