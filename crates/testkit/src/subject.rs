//! A server under test, Kilim or mongod, with one life after another on the same directory.
//!
//! Every test, run and benchmark starts its servers here. Runs kill one, restart it, preload things into it and read its
//! CPU time; whatever holds for one server is then asked of the other through the same functions. A subject with a
//! directory of its own keeps its port over all lives, so that clients find the server again (and because a replica set
//! remembers it).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{RawValue, doc};
use tempfile::TempDir;

use crate::link::Link;
use crate::process::Process;

/// A server that is not ready after this has failed to start.
const START_MAX: Duration = Duration::from_secs(120);

/// The smallest cache that the server takes, and checkpoints after every few writes: what is read comes from trees as
/// often as from tables in memory, and what is kept above the trees is dropped again soon.
const TINY: [&str; 4] = ["--cache-bytes", "8MB", "--checkpoint-bytes", "16KB"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Kilim,
    Mongod,
}

/// Where a server of one life has its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    Memory,
    /// A temporary directory, with [the smallest of caches](TINY).
    Disk,
}

impl Storage {
    pub const ALL: [Storage; 2] = [Storage::Memory, Storage::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Storage::Memory => "memory",
            Storage::Disk => "disk",
        }
    }
}

impl std::str::FromStr for Storage {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Storage> {
        let found = Storage::ALL.into_iter().find(|storage| storage.name() == name);
        found.with_context(|| format!("a storage is memory or disk, not {name:?}"))
    }
}

/// How a server is started, again and again.
#[derive(Debug, Clone)]
pub struct Subject {
    pub kind: Kind,
    pub binary: PathBuf,
    pub data: PathBuf,
    /// Kilim keeps its data in memory and leaves `data` alone.
    pub in_memory: bool,
    /// 0 for any that is free: for a server with one life.
    pub port: u16,
    /// Set for the server only, `LD_PRELOAD` among them.
    pub environment: Vec<(String, String)>,
    pub arguments: Vec<String>,
    /// Where the server's own log goes; nowhere without one, unless `KILIM_LOG` is set.
    pub log: Option<PathBuf>,
    /// mongod acknowledges majority writes before its journal is flushed, which happens every 100 ms only.
    pub hasty_majority: bool,
    /// Removed with the last subject and the last life that use it.
    scratch: Option<Arc<TempDir>>,
}

/// One life of a server. Dropped, it is killed.
pub struct Running {
    process: Process,
    pub address: SocketAddr,
    /// From the start of the process until it took commands.
    pub ready_after: Duration,
    /// Removed after the process, which is dropped first.
    _scratch: Option<Arc<TempDir>>,
}

impl Subject {
    /// A server with many lives on one directory.
    pub fn new(kind: Kind, binary: &Path, data: &Path) -> Result<Subject> {
        Ok(Subject {
            kind,
            binary: binary.to_path_buf(),
            data: data.to_path_buf(),
            in_memory: false,
            port: free_port()?,
            environment: Vec::new(),
            arguments: Vec::new(),
            log: Some(log_beside(data)),
            hasty_majority: false,
            scratch: None,
        })
    }

    /// A server for one life, in a directory that ends with it: on tmpfs where there is one, because such a server is
    /// asked for behaviour, not for durability.
    pub fn temporary(kind: Kind, binary: &Path) -> Result<Subject> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let scratch = tempfile::Builder::new().prefix("kilim-test-").tempdir_in(parent)?;
        let mut subject = Subject::new(kind, binary, &scratch.path().join("data"))?;
        if kind == Kind::Kilim {
            (subject.port, subject.log) = (0, None);
        }
        subject.scratch = Some(Arc::new(scratch));
        Ok(subject)
    }

    /// A Kilim for specs, scripts and generated commands, with the commands that exist for tests and with a change log.
    pub fn for_tests(binary: &Path, storage: Storage) -> Result<Subject> {
        let mut subject = Subject::temporary(Kind::Kilim, binary)?;
        subject.arguments.extend(["--test-commands".to_owned()]);
        match storage {
            Storage::Memory => subject.in_memory = true,
            Storage::Disk => subject.arguments.extend(TINY.map(str::to_owned)),
        }
        Ok(subject)
    }

    /// The same server on another directory.
    pub fn moved_to(mut self, data: &Path) -> Subject {
        (self.data, self.log) = (data.to_path_buf(), Some(log_beside(data)));
        self
    }

    pub fn with_environment(mut self, environment: Vec<(String, String)>) -> Subject {
        self.environment = environment;
        self
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Starts a life and waits until the server takes writes.
    pub fn start(&self) -> Result<Running> {
        fs::create_dir_all(&self.data)?;
        let log = match &self.log {
            Some(log) => Some(File::options().create(true).append(true).open(log)?),
            None => None,
        };
        let port = self.port.to_string();
        let mut command = Command::new(&self.binary);
        match self.kind {
            Kind::Kilim => {
                command.args(["serve", "--port", &port]);
                match self.in_memory {
                    true => command.arg("--ephemeral"),
                    false => command.arg("--data").arg(&self.data),
                };
                command.stdout(Stdio::piped());
            }
            Kind::Mongod => {
                command.arg("--dbpath").arg(&self.data);
                command.args(["--port", &port, "--bind_ip", "127.0.0.1", "--replSet", "rs0"]);
                command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
                command.stdout(match &log {
                    Some(log) => log.try_clone()?.into(),
                    None => Stdio::null(),
                });
            }
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null());
        match log {
            Some(log) => drop(command.stderr(log)),
            None if std::env::var_os("KILIM_LOG").is_some() => {}
            None => drop(command.stderr(Stdio::null())),
        }
        let began = Instant::now();
        let ready = match self.kind {
            Kind::Kilim => launch(&mut command),
            Kind::Mongod => self.launch_mongod(&mut command, began),
        };
        let (process, address) = ready.with_context(|| match &self.log {
            Some(log) => format!("{} did not start, see {}", self.binary.display(), log.display()),
            None => format!("{} did not start", self.binary.display()),
        })?;
        Ok(Running { process, address, ready_after: began.elapsed(), _scratch: self.scratch.clone() })
    }

    /// mongod takes commands first, and writes once the set of one has elected it.
    fn launch_mongod(&self, command: &mut Command, began: Instant) -> Result<(Process, SocketAddr)> {
        let mut process = Process::spawn(command)?;
        let address = self.address();
        let mut initiated = false;
        loop {
            if let Some(status) = process.has_ended() {
                bail!("ended with {status}");
            }
            ensure!(began.elapsed() < START_MAX, "not ready after {START_MAX:?}");
            if let Ok(mut link) = Link::connect(address)
                && let Ok(hello) = link.run("admin", doc! {"hello": 1})
            {
                if hello.get("isWritablePrimary").and_then(RawValue::as_bool) == Some(true) {
                    return Ok((process, address));
                }
                let configured = hello.get("setName").is_some();
                if !configured && !initiated {
                    let host = address.to_string();
                    let mut config = doc! {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": host}]};
                    if self.hasty_majority {
                        config.push("writeConcernMajorityJournalDefault", false);
                    }
                    // Refused while the configuration of an earlier life is still being read.
                    initiated = link.run("admin", doc! {"replSetInitiate": config}).is_ok();
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs a `kilim serve` whose standard output is piped, and waits for the line that says where it listens.
pub fn launch(command: &mut Command) -> Result<(Process, SocketAddr)> {
    let mut process = Process::spawn(command)?;
    let output = process.child().stdout.take().context("standard output is piped")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(output);
        let mut line = String::new();
        // A failed read and an ended server look the same to the receiver: no ready line.
        let _ = lines.read_line(&mut line);
        let _ = sender.send(line);
        // Somebody has to read on, or a server that says more would block.
        let _ = io::copy(&mut lines, &mut io::sink());
    });
    let line = receiver.recv_timeout(START_MAX).unwrap_or_default();
    match address_in(&line) {
        Some(address) => Ok((process, address)),
        None => match process.has_ended() {
            Some(status) => bail!("ended with {status}"),
            None => bail!("did not say that it is ready, but {line:?}"),
        },
    }
}

/// What follows `mongodb://`.
fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.split_once("kilim is ready: mongodb://")?;
    address.trim_end().parse().ok()
}

fn log_beside(data: &Path) -> PathBuf {
    let mut log = data.as_os_str().to_owned();
    log.push(".log");
    log.into()
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// For drivers.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    pub fn connect(&self) -> io::Result<Link> {
        Link::connect(self.address)
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// SIGTERM, and waits for a clean end.
    pub fn stop(mut self) -> Result<()> {
        let status = self.process.terminate()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended().is_some()
    }

    /// User and system time of all threads so far: `utime` + `stime` of `/proc/PID/stat`, read from the
    /// process's clock because that counts nanoseconds instead of ticks of ten milliseconds.
    pub fn cpu(&self) -> Result<Duration> {
        let mut clock = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both calls only write to the places given, which live on this stack.
        let failed = unsafe {
            libc::clock_getcpuclockid(self.process.id() as i32, &mut clock) != 0
                || libc::clock_gettime(clock, &mut time) != 0
        };
        ensure!(!failed, "the CPU clock of process {} cannot be read", self.process.id());
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// Memory that the process occupies now.
    pub fn resident_bytes(&self) -> Result<u64> {
        let mut status = String::new();
        File::open(format!("/proc/{}/status", self.process.id()))?.read_to_string(&mut status)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib * 1024)
    }
}

/// What a directory occupies on disk, in allocated blocks.
pub fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut total = 0;
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // Servers remove files while we look.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                open.push(entry.path());
            } else {
                total += metadata.blocks() * 512;
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::address_in;

    #[test]
    fn the_ready_line_holds_the_address() {
        let address = address_in("kilim is ready: mongodb://127.0.0.1:4711\n");
        assert_eq!(address, "127.0.0.1:4711".parse().ok());
        assert_eq!(address_in("cannot bind"), None);
    }
}
