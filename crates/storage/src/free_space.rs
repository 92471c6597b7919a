//! The free-space reserve: writes are refused while the disk has less than this, reads go on.
//!
//! The backend never recovers from a write that meets a full disk, so the store stops before. The reading is
//! cached for 100 ms, because it costs a system call; what can be written within that time has to fit the
//! reserve.

use kilim_error::{Result, StorageError};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const READING_VALID: Duration = Duration::from_millis(100);

pub(crate) struct FreeSpace {
    probe: Option<Box<dyn Fn() -> Option<u64> + Send + Sync>>,
    reserve_bytes: u64,
    started: Instant,
    /// Milliseconds since `started` up to which `free_bytes` holds.
    valid_until_ms: AtomicU64,
    free_bytes: AtomicU64,
}

impl FreeSpace {
    pub(crate) fn of_directory(dir: &Path, reserve_bytes: u64) -> FreeSpace {
        let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).ok();
        FreeSpace::probed_by(
            path.map(|path| -> Box<dyn Fn() -> Option<u64> + Send + Sync> {
                Box::new(move || free_bytes_at(&path))
            }),
            reserve_bytes,
        )
    }

    /// For a store that lives in memory.
    pub(crate) fn unbounded() -> FreeSpace {
        FreeSpace::probed_by(None, 0)
    }

    pub(crate) fn probed_by(
        probe: Option<Box<dyn Fn() -> Option<u64> + Send + Sync>>,
        reserve_bytes: u64,
    ) -> FreeSpace {
        FreeSpace {
            probe,
            reserve_bytes,
            started: Instant::now(),
            valid_until_ms: AtomicU64::new(0),
            free_bytes: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let now_ms = self.started.elapsed().as_millis() as u64 + 1;
        if now_ms > self.valid_until_ms.load(Ordering::Relaxed) {
            // A file system that cannot say is taken to have room: refusing every write would be worse.
            self.free_bytes.store(probe().unwrap_or(u64::MAX), Ordering::Relaxed);
            self.valid_until_ms.store(now_ms + READING_VALID.as_millis() as u64, Ordering::Relaxed);
        }
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        if free_bytes < self.reserve_bytes {
            return Err(StorageError::OutOfSpace { free_bytes, reserve_bytes: self.reserve_bytes }.into());
        }
        Ok(())
    }
}

fn free_bytes_at(path: &std::ffi::CStr) -> Option<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends in NUL, and `stat` is read only after the call says that it was filled.
    let stat = unsafe {
        if libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn writes_are_refused_below_the_reserve_and_resume_above() {
        let free = Arc::new(AtomicU64::new(10));
        let seen = free.clone();
        let guard = FreeSpace::probed_by(Some(Box::new(move || Some(seen.load(Ordering::Relaxed)))), 100);
        assert!(guard.check().is_err());
        free.store(100, Ordering::Relaxed);
        std::thread::sleep(READING_VALID + Duration::from_millis(20));
        assert!(guard.check().is_ok());
    }

    #[test]
    fn a_directory_has_some_free_space() {
        assert!(FreeSpace::of_directory(Path::new("/"), 1).check().is_ok());
        assert!(FreeSpace::of_directory(Path::new("/"), u64::MAX).check().is_err());
    }
}
