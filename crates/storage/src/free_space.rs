//! The free-space reserve: writes are refused while the disk has less than this, reads go on.
//!
//! The reserve is what deletions and checkpoints work with when they have to make room. The reading is cached for
//! 100 ms, because it costs a system call, unless the reserve is near: many writers write more within that time than it has.

use crate::disk::Disk;
use crate::environment::Environment;
use kilim_error::{Result, StorageError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const READING_VALID: Duration = Duration::from_millis(100);

/// A reading of less than so many reserves is not cached.
const NEAR: u64 = 4;

/// The reserve is this part of the file system, within bounds: a small disk must be usable, and a large one has no
/// use for more than a checkpoint can need at once.
const RESERVE_PART: u64 = 50;
const RESERVE_BYTES_MIN: u64 = 16 << 20;
const RESERVE_BYTES_MAX: u64 = 512 << 20;

/// The reserve that a disk of this size gets.
pub(crate) fn default_reserve_bytes(disk: &dyn Disk) -> u64 {
    (total_bytes(disk) / RESERVE_PART).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
}

fn total_bytes(disk: &dyn Disk) -> u64 {
    disk.space().map_or(u64::MAX, |space| space.total_bytes)
}

pub(crate) struct FreeSpace {
    probe: Option<Box<dyn Fn() -> Option<u64> + Send + Sync>>,
    reserve_bytes: u64,
    /// Of the whole file system, if it says.
    total_bytes: u64,
    environment: Environment,
    started: Instant,
    /// Milliseconds since `started` up to which `free_bytes` holds.
    valid_until_ms: AtomicU64,
    free_bytes: AtomicU64,
}

impl FreeSpace {
    /// Without a reserve given, it follows the size of the file system.
    pub(crate) fn of_disk(disk: Arc<dyn Disk>, reserve_bytes: Option<u64>) -> FreeSpace {
        let reserve_bytes = reserve_bytes.unwrap_or_else(|| default_reserve_bytes(&*disk));
        let environment = disk.environment().clone();
        let total_bytes = total_bytes(&*disk);
        let probe = move || disk.space().map(|space| space.free_bytes);
        FreeSpace { total_bytes, ..FreeSpace::probed_by(Some(Box::new(probe)), reserve_bytes, environment) }
    }

    /// For a store that lives in memory.
    pub(crate) fn unbounded() -> FreeSpace {
        FreeSpace::probed_by(None, 0, Environment::default())
    }

    pub(crate) fn probed_by(
        probe: Option<Box<dyn Fn() -> Option<u64> + Send + Sync>>,
        reserve_bytes: u64,
        environment: Environment,
    ) -> FreeSpace {
        FreeSpace {
            probe,
            reserve_bytes,
            total_bytes: u64::MAX,
            started: environment.now(),
            environment,
            valid_until_ms: AtomicU64::new(0),
            free_bytes: AtomicU64::new(u64::MAX),
        }
    }

    /// The size of the file system.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// For writes that free something: the reserve is there for them, but for its last quarter.
    pub(crate) fn check_little(&self) -> Result<()> {
        self.check_against(self.reserve_bytes / 4)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.check_against(self.reserve_bytes)
    }

    fn check_against(&self, reserve_bytes: u64) -> Result<()> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let now_ms = self.environment.since(self.started).as_millis() as u64 + 1;
        if now_ms > self.valid_until_ms.load(Ordering::Relaxed) {
            // A file system that cannot say is taken to have room: refusing every write would be worse.
            let free_bytes = probe().unwrap_or(u64::MAX);
            self.free_bytes.store(free_bytes, Ordering::Relaxed);
            if free_bytes >= NEAR.saturating_mul(self.reserve_bytes) {
                self.valid_until_ms.store(now_ms + READING_VALID.as_millis() as u64, Ordering::Relaxed);
            }
        }
        let free_bytes = self.free_bytes.load(Ordering::Relaxed);
        if free_bytes < reserve_bytes {
            return Err(StorageError::OutOfSpace { free_bytes, reserve_bytes }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_below_the_reserve_and_resume_above() {
        let free = Arc::new(AtomicU64::new(10));
        let seen = free.clone();
        let guard = FreeSpace::probed_by(
            Some(Box::new(move || Some(seen.load(Ordering::Relaxed)))),
            100,
            Environment::default(),
        );
        assert!(guard.check().is_err());
        free.store(100, Ordering::Relaxed);
        assert!(guard.check().is_ok());
        free.store(99, Ordering::Relaxed);
        assert!(guard.check().is_err(), "near the reserve each look is a new one");
        free.store(1000, Ordering::Relaxed);
        assert!(guard.check().is_ok());
        free.store(99, Ordering::Relaxed);
        assert!(guard.check().is_ok(), "far from it one look does for a while");
        std::thread::sleep(READING_VALID + Duration::from_millis(20));
        assert!(guard.check().is_err());
    }
}
