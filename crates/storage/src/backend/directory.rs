//! The data directory before fjall opens it: locked, whole, and with a clean journal.
//!
//! fjall cannot open a store whose creation was interrupted, and it syncs the directory of its keyspaces
//! before it makes them. So creation is framed by a marker file, `creating`: it is on disk before the first
//! file of the store, and is removed only when all of them are. A start that finds the marker removes what
//! the interrupted one made and begins anew; nobody was told of any write in it. Without the marker nothing is
//! ever removed.
//!
//! Making a store takes fjall some eighty syncs, one after the other, of files that nobody needs yet. So the
//! empty store is made in memory where the system has a place for that, and copied: thirty syncs, of which the
//! first does most of the work. Without such a place it is made where it belongs.
//!
//! Both this and the repair of a torn journal (`journal.rs`) happen under fjall's own lock file, which is given
//! up just before fjall takes it. Whoever comes in between finds a store, or the marker, and does the same.
//!
//! Invariant: once `finish_creation` has returned, every file of the empty store survives a power loss.

use super::{journal, manifest};
use kilim_error::{Result, StorageError};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// On disk: the store in this directory is not complete.
const MARKER: &str = "creating";

// fjall's names, on disk.
const LOCK: &str = "lock";
const VERSION: &str = "version";
const KEYSPACES: &str = "keyspaces";
const FIRST_JOURNAL: &str = "0.jnl";

/// A file system in memory, on Linux.
const MEMORY: &str = "/dev/shm";

/// A store that is being closed gives its lock up a moment later.
const LOCK_TRIES: usize = 3;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A store, ready to be opened.
    Store,
    /// Nothing; `finish_creation` has to be called when a store has been made.
    Nothing,
}

/// Makes the directory ready for fjall.
pub(crate) fn prepare(dir: &Path) -> Result<Found> {
    make_directory(dir).map_err(|error| at(dir, &error))?;
    let _lock = lock(dir)?;
    let begun = dir.join(MARKER).try_exists().map_err(|error| at(dir, &error))?;
    let complete = dir.join(VERSION).try_exists().map_err(|error| at(dir, &error))?;
    if begun {
        tracing::info!(dir = %dir.display(), "the first start was interrupted and is repeated");
        remove_unfinished(dir).map_err(|error| at(dir, &error))?;
    } else if complete {
        manifest::check(dir)?;
        journal::cut_torn_tail(dir).map_err(|error| at(dir, &error))?;
        return Ok(Found::Store);
    } else {
        refuse_remains(dir)?;
        File::create(dir.join(MARKER)).map_err(|error| at(dir, &error))?;
    }
    sync_directory(dir).map_err(|error| at(dir, &error))?;
    Ok(Found::Nothing)
}

/// Has `make` make an empty store in memory and copies it. Does nothing if there is no place for that.
pub(crate) fn create_by_copy(dir: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let Some(scratch) = Scratch::new(Path::new(MEMORY)) else { return Ok(()) };
    if let Err(error) = make(&scratch.0) {
        tracing::debug!(%error, "the store is made where it belongs");
        return Ok(());
    }
    let copy = || {
        copy_file(&scratch.0, dir, VERSION)?;
        // Nothing was committed, so all of it is preallocated room.
        File::create(dir.join(FIRST_JOURNAL))?;
        let mut copied = copy_directory(&scratch.0.join(KEYSPACES), &dir.join(KEYSPACES))?;
        copied.extend([VERSION, FIRST_JOURNAL].map(|name| dir.join(name)));
        copied.iter().try_for_each(|path| File::open(path)?.sync_all())
    };
    copy().map_err(|error| at(dir, &error))
}

/// A directory that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Option<Scratch> {
        let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let path = parent.join(format!("kilim-{}-{nanos}", std::process::id()));
        // Fails if it exists, so it is nobody else's.
        DirBuilder::new().mode(0o700).create(&path).ok().map(|()| Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a scratch directory stays behind");
        }
    }
}

/// Copies a directory with all below; says what is there now, directories last.
fn copy_directory(from: &Path, to: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir(to)?;
    let mut copied = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copied.extend(copy_directory(&entry.path(), &place)?);
        } else {
            File::create(&place)?.write_all(&fs::read(entry.path())?)?;
            copied.push(place);
        }
    }
    copied.push(to.to_path_buf());
    Ok(copied)
}

fn copy_file(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    File::create(to.join(name))?.write_all(&fs::read(from.join(name))?)
}

/// Puts a store that fjall has just made on disk, and says so.
pub(crate) fn finish_creation(dir: &Path) -> Result<()> {
    let finish = || {
        sync_directory(&dir.join(KEYSPACES))?;
        fs::remove_file(dir.join(MARKER))?;
        sync_directory(dir)
    };
    finish().map_err(|error| at(dir, &error))
}

/// Makes the directory, if need be with those above it, all of them durable by name.
fn make_directory(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_directory(parent)?;
    match fs::create_dir(dir) {
        // Another process may start in the same place.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made?,
    }
    sync_directory(parent)
}

fn lock(dir: &Path) -> Result<File> {
    let open = File::options().read(true).write(true).create(true).truncate(false).open(dir.join(LOCK));
    let file = open.map_err(|error| at(dir, &error))?;
    let mut tries = 1;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(in_use().into()),
            Err(TryLockError::Error(error)) => return Err(at(dir, &error)),
        }
        tries += 1;
    }
}

pub(crate) fn in_use() -> StorageError {
    StorageError::Io("the data directory is in use by another process".into())
}

/// Removes what an interrupted creation can have made, the lock and the marker apart.
fn remove_unfinished(dir: &Path) -> io::Result<()> {
    for file in [VERSION, FIRST_JOURNAL] {
        ignore_absence(fs::remove_file(dir.join(file)))?;
    }
    ignore_absence(fs::remove_dir_all(dir.join(KEYSPACES)))
}

/// Parts of a store without the file that makes it one: something is lost, and nothing here is ours to remove.
fn refuse_remains(dir: &Path) -> Result<()> {
    for name in [KEYSPACES, FIRST_JOURNAL] {
        if dir.join(name).try_exists().map_err(|error| at(dir, &error))? {
            let what = format!("{} holds {name} but no file named {VERSION}", dir.display());
            return Err(StorageError::Corrupt(what).into());
        }
    }
    Ok(())
}

fn ignore_absence(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn at(dir: &Path, error: &io::Error) -> kilim_error::Error {
    StorageError::Io(format!("{}: {error}", dir.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options, Space, Store};

    fn options() -> Options {
        Options { cache_bytes: 16 << 20, free_space_reserve_bytes: 0, ..Options::default() }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_interrupted_creation_is_repeated() {
        type Interruption = (&'static str, fn(&Path));
        let interruptions: [Interruption; 5] = [
            ("at once", |dir| {
                for name in [VERSION, FIRST_JOURNAL] {
                    fs::remove_file(dir.join(name)).unwrap();
                }
                fs::remove_dir_all(dir.join(KEYSPACES)).unwrap();
            }),
            ("with a journal only", |dir| {
                fs::remove_file(dir.join(VERSION)).unwrap();
                fs::remove_dir_all(dir.join(KEYSPACES)).unwrap();
            }),
            ("before the version", |dir| fs::remove_file(dir.join(VERSION)).unwrap()),
            ("with a keyspace missing", |dir| fs::remove_dir_all(dir.join("keyspaces/2")).unwrap()),
            ("just before the end", |_| {}),
        ];
        for (when, interrupt) in interruptions {
            let dir = tempfile::tempdir().unwrap();
            let dir = &dir.path().join("a/b");
            Store::open(dir, options()).unwrap().close().unwrap();
            assert_eq!(names(dir), ["0.jnl", "keyspaces", "lock", "version"], "{when}");
            interrupt(dir);
            File::create(dir.join(MARKER)).unwrap();
            let mine = dir.join("notes.txt");
            fs::write(&mine, "mine").unwrap();

            let store = Store::open(dir, options()).unwrap_or_else(|error| panic!("{when}: {error}"));
            let mut transaction = store.begin();
            transaction.put(Space::Index, b"k".as_slice(), b"v".as_slice());
            transaction.commit(Durability::Durable).unwrap();
            store.close().unwrap();
            assert!(!dir.join(MARKER).exists(), "{when}");
            assert!(mine.exists(), "{when}: a file that is not the store's was removed");
            let store = Store::open(dir, options()).unwrap();
            assert!(store.snapshot().get(Space::Index, b"k").unwrap().is_some(), "{when}");
        }
    }

    #[test]
    fn a_scratch_directory_is_ones_own_and_goes_away() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(parent.path()).unwrap();
        fs::write(scratch.0.join("f"), "x").unwrap();
        let made = copy_directory(&scratch.0, &parent.path().join("copy")).unwrap();
        assert_eq!(made, [parent.path().join("copy/f"), parent.path().join("copy")]);
        drop(scratch);
        assert_eq!(names(parent.path()), ["copy"]);
        assert!(Scratch::new(&parent.path().join("absent")).is_none());
    }

    #[test]
    fn remains_without_the_marker_are_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        Store::open(dir.path(), options()).unwrap().close().unwrap();
        fs::remove_file(dir.path().join(VERSION)).unwrap();
        let before = names(dir.path());
        let Err(error) = Store::open(dir.path(), options()) else { panic!("opened remains") };
        assert!(error.to_string().contains("no file named version"), "{error}");
        assert_eq!(names(dir.path()), before);
    }

    #[test]
    fn a_creation_under_way_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(prepare(dir.path()).unwrap(), Found::Nothing);
        let _other = lock(dir.path()).unwrap();
        let error = prepare(dir.path()).unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
    }
}
