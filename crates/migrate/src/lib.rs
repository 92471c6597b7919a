//! Directories of format version 1, made with the LSM tree of the crate fjall, become directories of today's format.
//!
//! The old directory is opened as the Kilim of its time opened it: a torn end of its journal is cut off, and fjall
//! replays the rest. Then each keyspace is read in key order and loaded into a new store. Keys and values are the same
//! in both formats, but for two keys in `meta`: the format's version, which has its own place now, and the newest
//! commit's time, which becomes the time that the new store's clock goes on from.
//!
//! This crate is the only one that knows fjall.
//!
//! Invariant: the new directory has its name only once it holds everything.

mod journal;

use std::path::Path;

use fjall::{Database, KeyspaceCreateOptions, Readable};
use kilim_error::{Error, Result, StorageError};
use kilim_storage::rebuild::{self, Filling};
use kilim_storage::{CommitTime, Options, Space};

/// On disk in the old format: what the value of its version begins with, and the version that is read.
const MAGIC: &[u8; 8] = b"kilim\0db";
const VERSION: u32 = 1;

/// On disk in the old format, in `meta`.
const VERSION_KEY: &[u8] = b"\0v";
const COMMIT_TIME_KEY: &[u8] = b"\0t";

/// On disk: the names of the old format's keyspaces. A fourth one, `changes`, held what nothing reads any more.
const KEYSPACES: [(Space, &str); 3] =
    [(Space::Meta, "meta"), (Space::Records, "records"), (Space::Index, "index")];

/// What was carried over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Rows by space: `meta`, `records`, `index`.
    pub rows: [u64; KEYSPACES.len()],
    pub commit_time: CommitTime,
}

/// Whether a directory has the format that this crate reads.
pub fn is_old(dir: &Path) -> bool {
    dir.join("version").is_file() && dir.join("keyspaces").is_dir() && !dir.join("kilim.db").exists()
}

/// Makes a new directory of an old one, which no server may use meanwhile. The old one keeps its data.
pub fn migrate(old: &Path, out: &Path) -> Result<Migrated> {
    if !is_old(old) {
        let what = format!("{}: it is no directory of an earlier Kilim", old.display());
        return Err(StorageError::Io(what).into());
    }
    rebuild::check_out(out)?;
    check_unused(old)?;
    journal::cut_torn_tail(old).map_err(|error| io(old, &error))?;
    let database = Database::builder(old).open().map_err(|error| broken(old, &error))?;
    let keyspace = |name: &str| {
        if !database.keyspace_exists(name) {
            return Err(broken(old, &format!("the keyspace {name} is missing")));
        }
        database.keyspace(name, KeyspaceCreateOptions::default).map_err(|error| broken(old, &error))
    };
    let snapshot = database.snapshot();
    let meta = keyspace("meta")?;
    let value_of = |key: &[u8]| snapshot.get(&meta, key).map_err(|error| broken(old, &error));
    check_version(old, value_of(VERSION_KEY)?.as_deref())?;
    let commit_time = match value_of(COMMIT_TIME_KEY)? {
        Some(bytes) => u64::from_le_bytes(
            (*bytes).try_into().map_err(|_| broken(old, &"the last commit time is not 8 bytes"))?,
        ),
        None => 0,
    };
    rebuild::rebuild(out, Options::default(), commit_time, |filling: &Filling| {
        let mut migrated = Migrated { commit_time, ..Migrated::default() };
        for (space, name) in KEYSPACES {
            let rows = snapshot.iter(&keyspace(name)?).map(|row| match row.into_inner() {
                Ok((key, value)) => Ok((key.to_vec(), value.to_vec())),
                Err(error) => Err(broken(old, &error)),
            });
            let is_own = |key: &[u8]| space == Space::Meta && (key == VERSION_KEY || key == COMMIT_TIME_KEY);
            let rows = rows.filter(|row| row.as_ref().map_or(true, |(key, _)| !is_own(key)));
            migrated.rows[space as usize] = filling.load(space, rows)?;
        }
        Ok(migrated)
    })
}

/// Refuses while another process has the old directory open, before anything in it is touched.
fn check_unused(old: &Path) -> Result<()> {
    // Opened as it is: an old directory has one.
    let lock = match std::fs::File::open(old.join("lock")) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(old, &error)),
    };
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => {
            let what = format!("{}: the data directory is in use by another process", old.display());
            Err(StorageError::Io(what).into())
        }
        Err(std::fs::TryLockError::Error(error)) => Err(io(old, &error)),
    }
}

fn check_version(old: &Path, stored: Option<&[u8]>) -> Result<()> {
    let version = stored
        .and_then(|stored| stored.strip_prefix(MAGIC))
        .and_then(|rest| rest.try_into().ok())
        .map(u32::from_le_bytes);
    match version {
        Some(VERSION) => Ok(()),
        Some(other) => Err(broken(old, &format!("it has the unknown format version {other}"))),
        None => Err(broken(old, &"it was not made by Kilim")),
    }
}

fn io(dir: &Path, error: &std::io::Error) -> Error {
    StorageError::Io(format!("{}: {error}", dir.display())).into()
}

fn broken(dir: &Path, why: &dyn std::fmt::Display) -> Error {
    StorageError::Corrupt(format!("{}: {why}", dir.display())).into()
}
