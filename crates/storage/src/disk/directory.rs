//! A disk that is a directory of the operating system.
//!
//! Every name is joined to the directory's path; a handle of the directory itself is kept open, for
//! `sync_directory`. Files are made readable and writable by their owner alone, since they hold documents.
//!
//! Invariant: a call returns success only if the operating system has done all of it. The one exception is
//! `punch`, which a file system may not know; the bytes are then merely not given back.

use std::fs::{self, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kilim_error::{Result, StorageError};

use super::{Disk, File, FileSystemSpace};
use crate::environment::Environment;

const OWNER_ONLY: u32 = 0o600;
const OWNER_ONLY_DIRECTORY: u32 = 0o700;

/// The file that is locked while a store is open.
const LOCK: &str = "lock";

/// A store that is being closed gives its lock up a moment later.
const LOCK_TRIES: usize = 3;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// A directory that is locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    /// None on a file system that takes no writes.
    _file: Option<fs::File>,
    /// The directory itself, because somebody may remove the file. None where directories cannot be locked.
    _directory: Option<fs::File>,
}

/// Makes the directory if need be, and locks it. A file system that takes no writes is enough for whoever only reads.
pub(crate) fn lock(path: &Path) -> Result<DirectoryLock> {
    make(path).map_err(|error| at(path, &error))?;
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY);
    let file = match options.open(path.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => None,
        opened => Some(opened.map_err(|error| at(&path.join(LOCK), &error))?),
    };
    if let Some(file) = &file {
        lock_file(file, path)?.map_err(|error| at(&path.join(LOCK), &error))?;
    }
    let directory = fs::File::open(path).map_err(|error| at(path, &error))?;
    // Not every file system locks directories.
    let directory = lock_file(&directory, path)?.is_ok().then_some(directory);
    Ok(DirectoryLock { _file: file, _directory: directory })
}

/// Locks a file; an error if another process has it, an inner one if it cannot be locked at all.
fn lock_file(file: &fs::File, path: &Path) -> Result<io::Result<()>> {
    for tries in 1.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                let what = format!("{}: the data directory is in use by another process", path.display());
                return Err(StorageError::Io(what).into());
            }
            Err(TryLockError::Error(error)) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

/// Makes the directory, if need be with those above it, all of them durable by name.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make(parent)?;
    match fs::DirBuilder::new().mode(OWNER_ONLY_DIRECTORY).create(path) {
        // Another process may start in the same place.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    fs::File::open(parent)?.sync_all()
}

fn at(path: &Path, error: &io::Error) -> kilim_error::Error {
    StorageError::Io(format!("{}: {error}", path.display())).into()
}

pub(crate) struct Directory {
    path: PathBuf,
    handle: fs::File,
    environment: Environment,
}

impl Directory {
    /// Opens a directory that exists.
    pub(crate) fn open(path: &Path) -> Result<Directory> {
        Directory::open_in(path, Environment::default())
    }

    /// Opens a directory that exists, for a store with an environment of its own.
    pub(crate) fn open_in(path: &Path, environment: Environment) -> Result<Directory> {
        let handle = fs::File::open(path).map_err(|error| at(path, &error))?;
        if !handle.metadata().map_err(|error| at(path, &error))?.is_dir() {
            return Err(at(path, &io::Error::from(io::ErrorKind::NotADirectory)));
        }
        Ok(Directory { path: path.to_owned(), handle, environment })
    }
}

impl Disk for Directory {
    fn environment(&self) -> &Environment {
        &self.environment
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is none of ours; it is listed all the same, so that nobody takes the
            // directory for an empty one.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(DirectoryFile::of(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(OWNER_ONLY);
        Ok(Arc::new(DirectoryFile::of(options.open(self.path.join(name))?)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn space(&self) -> Option<FileSystemSpace> {
        let path = std::ffi::CString::new(self.path.as_os_str().as_bytes()).ok()?;
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends in a zero byte and lives through the call; the call writes a whole statvfs to
        // the place it is given, which has the size of one.
        let status = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
        if status != 0 {
            return None;
        }
        // SAFETY: the call succeeded, so it filled the structure.
        let found = unsafe { found.assume_init() };
        // What an ordinary user can still take, which is less than what is free where root keeps a reserve.
        Some(FileSystemSpace {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

struct DirectoryFile {
    file: fs::File,
    /// The same file for writes past the operating system's memory, opened for the first of them; none where that cannot be
    /// done.
    direct: OnceLock<Option<fs::File>>,
    /// The file system takes no such writes after all.
    refuses_direct: AtomicBool,
}

impl DirectoryFile {
    fn of(file: fs::File) -> DirectoryFile {
        DirectoryFile { file, direct: OnceLock::new(), refuses_direct: AtomicBool::new(false) }
    }

    fn direct(&self) -> Option<&fs::File> {
        let open = || {
            // By its descriptor: its name may be another one by now.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok()
        };
        self.direct.get_or_init(open).as_ref().filter(|_| !self.refuses_direct.load(Ordering::Relaxed))
    }
}

impl File for DirectoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<()> {
        let Some(direct) = self.direct() else { return self.write_at(blocks, offset) };
        match direct.write_all_at(blocks, offset) {
            // So a file system answers that wants another alignment, or knows no such writes. Written again, it is the same.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.refuses_direct.store(true, Ordering::Relaxed);
                self.write_at(blocks, offset)
            }
            written => written,
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (Ok(offset), Ok(len)) = (libc::off_t::try_from(offset), libc::off_t::try_from(len)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        loop {
            // SAFETY: the descriptor belongs to the file that `self` keeps open; no memory is passed.
            if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, len) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => return Ok(()),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        // The unit of st_blocks is 512 bytes, whatever the file system's blocks are.
        Ok(self.file.metadata()?.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, Directory) {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        (place, directory)
    }

    #[test]
    fn a_file_is_its_owners_alone_and_its_name_is_taken_once() {
        let (place, directory) = directory();
        directory.create("a").unwrap();
        let mode = fs::metadata(place.path().join("a")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(directory.create("a").err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(directory.open("b").err().unwrap().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_directory_that_is_made_is_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let made = place.path().join("above/data");
        let _lock = lock(&made).unwrap();
        for path in [made.clone(), place.path().join("above")] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_directory_stays_locked_although_somebody_removes_the_file() {
        let place = tempfile::tempdir().unwrap();
        let held = lock(place.path()).unwrap();
        assert!(lock(place.path()).is_err());
        fs::remove_file(place.path().join(LOCK)).unwrap();
        let refused = lock(place.path()).unwrap_err().to_string();
        assert!(refused.contains("in use by another process"), "{refused}");
        drop(held);
        assert!(lock(place.path()).is_ok());
    }

    #[test]
    fn blocks_and_bytes_may_be_written_in_turn() {
        #[repr(align(4096))]
        struct Blocks([u8; 8192]);
        let (_place, directory) = directory();
        let file = directory.create("a").unwrap();
        let mut expected = vec![0; 64 << 10];
        file.write_at(&expected, 0).unwrap();
        for (at, fill) in (1u8..=40).enumerate() {
            let offset = (at * 3 % 14) * 4096;
            file.write_blocks(&Blocks([fill; 8192]).0, offset as u64).unwrap();
            expected[offset..offset + 8192].fill(fill);
            file.write_at(&[fill ^ 0xFF; 100], offset as u64 + 4000).unwrap();
            expected[offset + 4000..offset + 4100].fill(fill ^ 0xFF);
            if at % 3 == 0 {
                file.sync().unwrap();
            }
            let mut found = vec![0; expected.len()];
            file.read_at(&mut found, 0).unwrap();
            assert!(found == expected);
        }
        // Memory that is not aligned, as a file system may refuse it.
        let unaligned = vec![7; 4097];
        file.write_blocks(&unaligned[1..], 0).unwrap();
        let mut found = vec![0; 4096];
        file.read_at(&mut found, 0).unwrap();
        assert_eq!(found, &unaligned[1..]);
    }

    #[test]
    fn bytes_are_read_back_and_reading_past_the_end_is_an_error() {
        let (_place, directory) = directory();
        let file = directory.create("a").unwrap();
        file.write_at(b"kilim", 4096).unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 4101);
        let mut buffer = [0; 5];
        directory.open("a").unwrap().read_at(&mut buffer, 4096).unwrap();
        assert_eq!(&buffer, b"kilim");
        assert_eq!(file.read_at(&mut buffer, 4097).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_punched_range_reads_as_zeros_or_as_before_and_keeps_the_length() {
        let (_place, directory) = directory();
        let file = directory.create("a").unwrap();
        file.write_at(&[7; 65536], 0).unwrap();
        file.sync().unwrap();
        let before = file.allocated_bytes().unwrap();
        file.punch(4096, 32768).unwrap();
        assert_eq!(file.len().unwrap(), 65536);
        assert!(file.allocated_bytes().unwrap() <= before);
        let mut byte = [0; 1];
        file.read_at(&mut byte, 0).unwrap();
        assert_eq!(byte, [7]);
    }

    #[test]
    fn names_are_listed_renamed_and_removed() {
        let (place, directory) = directory();
        directory.create("a").unwrap();
        directory.rename("a", "b").unwrap();
        directory.sync_directory().unwrap();
        assert_eq!(directory.list().unwrap(), ["b"]);
        directory.remove("b").unwrap();
        assert!(directory.list().unwrap().is_empty());
        assert_eq!(directory.name(), place.path().display().to_string());
        assert!(directory.space().unwrap().total_bytes > 0);
    }

    #[test]
    fn a_file_is_no_directory() {
        let (place, directory) = directory();
        directory.create("a").unwrap();
        assert!(Directory::open(&place.path().join("a")).is_err());
    }
}
