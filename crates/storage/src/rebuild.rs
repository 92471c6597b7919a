//! A new store from rows that come from elsewhere: an older format, or what could be read of a damaged store.
//!
//! The store is made beside the place where it belongs, under the name with `.unfinished` at its end, and takes its own
//! name when all of it is on disk. A run that was killed leaves the unfinished directory, which nothing opens by
//! mistake. It has a marker in it, by which the next run knows it and replaces it; a directory of that name without the
//! marker is somebody else's and stays.

use crate::backend::Backend;
use crate::backend::tree::{Memory, TreeBackend};
use crate::clock::CommitTime;
use crate::disk::directory::{self, Directory};
use crate::format;
use crate::space::Space;
use crate::store::{Options, Store};
use kilim_error::{Error, Result, StorageError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of `Meta` lie in one tree that exists, so they go in as batches.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// In a directory that is not finished. The dot lets it pass as none of a store's files.
const MARKER: &str = ".unfinished";

/// A store that is being filled.
pub struct Filling {
    store: Store,
}

impl Filling {
    /// Loads rows of one space with ascending keys; how many they are. `Records` begin with their commit times
    /// already.
    pub fn load(&self, space: Space, rows: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>) -> Result<u64> {
        let (mut count, mut failure) = (0, None);
        // The change log is not carried over, so nothing may say that it reaches back.
        let of_log = |key: &[u8]| space == Space::Meta && key.starts_with(&format::LOG_PREFIX);
        let rows = rows.filter(|row| !row.as_ref().is_ok_and(|(key, _)| of_log(key)));
        let mut rows = rows.map_while(|row| match row {
            Ok(row) => {
                count += 1;
                Some(row)
            }
            Err(error) => {
                failure = Some(error);
                None
            }
        });
        if space == Space::Meta {
            loop {
                let (mut batch, mut bytes) = (Vec::new(), 0);
                while bytes < BATCH_BYTES_MAX
                    && let Some((key, value)) = rows.next()
                {
                    bytes += key.len() + value.len() + 64;
                    batch.push((key, value));
                }
                if batch.is_empty() {
                    break;
                }
                self.store.ingest(space, batch.into_iter())?;
            }
        } else {
            self.store.ingest(space, rows)?;
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(count),
        }
    }

    /// The store, to look at what is there by now.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// Refuses a place for a new store that is taken.
pub fn check_out(out: &Path) -> Result<()> {
    let refuse = |what: String| Err(StorageError::Io(what).into());
    match std::fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => return refuse(format!("{}: the directory is not empty", out.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(out, &error)),
    }
    let unfinished = unfinished(out)?;
    if unfinished.exists() {
        if !unfinished.join(MARKER).is_file() {
            return refuse(format!(
                "{}: it is in the way, and nothing says that an earlier run left it; remove it and begin again",
                unfinished.display()
            ));
        }
        // Another process may be filling it at this moment.
        directory::lock(&unfinished)?;
    }
    Ok(())
}

/// Makes the directory that a store is made in, in place of one that an earlier run left.
pub(crate) fn begin(out: &Path) -> Result<PathBuf> {
    check_out(out)?;
    let unfinished = unfinished(out)?;
    if unfinished.exists() {
        let _lock = directory::lock(&unfinished)?;
        std::fs::remove_dir_all(&unfinished).map_err(|error| io(&unfinished, &error))?;
    }
    drop(directory::lock(&unfinished)?);
    let marker = unfinished.join(MARKER);
    std::fs::write(&marker, "").map_err(|error| io(&marker, &error))?;
    Ok(unfinished)
}

/// Makes a store in a directory that does not exist or is empty. `clock` is a commit time that all later ones must
/// follow. Nothing has the directory's name before everything is on disk.
pub fn rebuild<T>(
    out: &Path,
    options: Options,
    clock: CommitTime,
    fill: impl FnOnce(&Filling) -> Result<T>,
) -> Result<T> {
    let unfinished = begin(out)?;
    set_clock(&unfinished, clock)?;
    let filling = Filling { store: Store::open(&unfinished, options)? };
    let filled = fill(&filling).and_then(|filled| filling.store.close().map(|()| filled));
    let filled = match filled {
        Ok(filled) => filled,
        Err(error) => {
            // It was made here, and has nothing that is not elsewhere.
            if let Err(error) = std::fs::remove_dir_all(&unfinished) {
                tracing::warn!(%error, place = %unfinished.display(), "an unfinished directory cannot be removed");
            }
            return Err(error);
        }
    };
    put_in_place(&unfinished, out)?;
    Ok(filled)
}

/// Gives a finished directory its own name.
pub(crate) fn put_in_place(unfinished: &Path, out: &Path) -> Result<()> {
    let marker = unfinished.join(MARKER);
    std::fs::remove_file(&marker).map_err(|error| io(&marker, &error))?;
    std::fs::rename(unfinished, out).map_err(|error| io(out, &error))?;
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| io(parent, &error))
}

/// Makes an empty store whose newest commit has this time.
fn set_clock(dir: &Path, clock: CommitTime) -> Result<()> {
    let lock = directory::lock(dir)?;
    let memory = Memory { cache_bytes: 1 << 20, tables_bytes_max: 1 << 20 };
    let backend = TreeBackend::open(Arc::new(Directory::open(dir)?), memory, false, Some(lock))?;
    backend.apply(&mut std::iter::empty(), clock, true)
}

/// Where a directory is made before it has its name.
pub fn unfinished(out: &Path) -> Result<PathBuf> {
    let Some(name) = out.file_name() else {
        return Err(StorageError::Io(format!("{}: it is no name for a directory", out.display())).into());
    };
    let mut name = name.to_owned();
    name.push(".unfinished");
    Ok(out.with_file_name(name))
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    StorageError::Io(format!("{}: {error}", path.display())).into()
}
