//! A server under test, Kilim or mongod, with one life after another on the same directory.
//!
//! Runs kill it, restart it, preload things into it and read its CPU time; whatever holds for one server
//! is then asked of the other through the same functions. The port stays the same over all lives, so
//! that clients find the server again (and because a replica set remembers it).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{RawValue, doc};

use crate::link::Link;
use crate::oracle::free_port;
use crate::process::Process;

/// A server that is not ready after this has failed to start.
const START_MAX: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Kilim,
    Mongod,
}

/// How a server is started, again and again.
#[derive(Debug, Clone)]
pub struct Subject {
    pub kind: Kind,
    pub binary: PathBuf,
    pub data: PathBuf,
    pub port: u16,
    /// Set for the server only, `LD_PRELOAD` among them.
    pub environment: Vec<(String, String)>,
    pub arguments: Vec<String>,
    /// Where the server's own log goes.
    pub log: PathBuf,
}

/// One life of a server. Dropped, it is killed.
pub struct Running {
    process: Process,
    pub address: SocketAddr,
    /// From the start of the process until it took commands.
    pub ready_after: Duration,
}

impl Subject {
    pub fn new(kind: Kind, binary: &Path, data: &Path) -> Result<Subject> {
        let mut log = data.to_path_buf().into_os_string();
        log.push(".log");
        Ok(Subject {
            kind,
            binary: binary.to_path_buf(),
            data: data.to_path_buf(),
            port: free_port()?,
            environment: Vec::new(),
            arguments: Vec::new(),
            log: log.into(),
        })
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
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.binary);
        match self.kind {
            Kind::Kilim => {
                command.arg("serve").arg("--data").arg(&self.data);
                command.args(["--port", &self.port.to_string()]);
                command.stdout(Stdio::piped());
            }
            Kind::Mongod => {
                command.arg("--dbpath").arg(&self.data);
                command.args([
                    "--port",
                    &self.port.to_string(),
                    "--bind_ip",
                    "127.0.0.1",
                    "--replSet",
                    "rs0",
                ]);
                command.args(["--setParameter", "diagnosticDataCollectionEnabled=false"]);
                command.stdout(log.try_clone()?);
            }
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null()).stderr(log);
        let began = Instant::now();
        let process = Process::spawn(&mut command)?;
        let mut running = Running { process, address: self.address(), ready_after: Duration::ZERO };
        let ready = match self.kind {
            Kind::Kilim => wait_for_line(&mut running),
            Kind::Mongod => self.wait_for_primary(&mut running, began),
        };
        ready.with_context(|| {
            format!("{} did not start, see {}", self.binary.display(), self.log.display())
        })?;
        running.ready_after = began.elapsed();
        Ok(running)
    }

    /// mongod takes commands first, and writes once the set of one has elected it.
    fn wait_for_primary(&self, running: &mut Running, began: Instant) -> Result<()> {
        let mut initiated = false;
        loop {
            if let Some(status) = running.process.has_ended() {
                bail!("ended with {status}");
            }
            ensure!(began.elapsed() < START_MAX, "not ready after {START_MAX:?}");
            if let Ok(mut link) = Link::connect(running.address)
                && let Ok(hello) = link.run("admin", doc! {"hello": 1})
            {
                if hello.get("isWritablePrimary").and_then(RawValue::as_bool) == Some(true) {
                    return Ok(());
                }
                let configured = hello.get("setName").is_some();
                if !configured && !initiated {
                    let host = running.address.to_string();
                    let config = doc! {"_id": "rs0", "members": [{"_id": 0, "host": host}]};
                    // Refused while the configuration of an earlier life is still being read.
                    initiated = link.run("admin", doc! {"replSetInitiate": config}).is_ok();
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Kilim says in one line where it listens, when it does.
fn wait_for_line(running: &mut Running) -> Result<()> {
    let output = running.process.child().stdout.take().context("standard output is piped")?;
    let mut reader = BufReader::new(output);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            bail!("ended with {}", running.process.child().wait()?);
        }
        if line.contains("mongodb://") {
            break;
        }
    }
    // Somebody has to read on, or a server that says more would block.
    std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
    Ok(())
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.process.id()
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
