//! How much memory there is, how much of it the process holds, and how much the operation at hand.
//!
//! Stages, sorts and expressions bound what each of them holds. Nothing there bounds their sum: a hundred stages of one
//! pipeline, a thousand clients at once, cursors that nobody reads from. So a server counts every allocation
//! ([`Counting`]). Each thread counts what it allocates and frees; [`operation_bytes`] is the difference since the
//! operation began. What goes into structures that all operations share is not the operation's ([`shared`]).
//!
//! Whoever can end an operation asks [`check`] now and then. Beyond [`Limits::operation_bytes`] the operation is too large.
//! Where the process would hold more than [`Limits::process_bytes`], an operation that holds more than a small amount waits
//! before it takes more, and is ended at its next check if no memory becomes free ([`room`]).
//!
//! A program that does not install [`Counting`] counts nothing, and is not bounded here.

mod available;
mod counting;
mod counts;
mod rest;
mod room;

pub use available::available_bytes;
pub use counting::{Counting, begin, shared};
pub use counts::{operation_bytes, process_bytes, set_operation_bytes};
pub use rest::{rest, when_resting};
pub use room::{end, never_wait, shortage_bytes, when_tight};

use std::sync::atomic::{AtomicUsize, Ordering};

/// What an operation may hold although the process holds too much: enough for those that repair the situation, and for
/// ordinary small reads and writes.
pub const SPARED_BYTES: usize = 1 << 20;

/// The bounds that [`check`] keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For all that the process has allocated.
    pub process_bytes: usize,
    /// For one operation.
    pub operation_bytes: usize,
}

/// Which bound an operation meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    Operation,
    Process,
}

static PROCESS_BYTES_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
static OPERATION_BYTES_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The largest operation on a large machine: ten stages at their bound of 100 MB.
const OPERATION_BYTES_MAX_DEFAULT: usize = 1 << 30;

/// The smallest bound for an operation: one stage at its bound of 100 MB, and what goes with it.
const OPERATION_BYTES_MAX_LEAST: usize = 192 << 20;

impl Limits {
    /// Bounds for a process that may take so many bytes, so many of which are a cache. A third of what the cache leaves is
    /// kept for what is not counted: stacks, the kernel's buffers, holes in the heap.
    pub fn for_memory(available: u64, cache: u64) -> Limits {
        let process = cache.saturating_add(available.saturating_sub(cache) / 3 * 2);
        let process_bytes = usize::try_from(process).unwrap_or(usize::MAX);
        let operation_bytes =
            (process_bytes / 2).clamp(OPERATION_BYTES_MAX_LEAST, OPERATION_BYTES_MAX_DEFAULT);
        Limits { process_bytes, operation_bytes }
    }

    /// Makes them the process's bounds.
    pub fn set(self) {
        PROCESS_BYTES_MAX.store(self.process_bytes, Ordering::Relaxed);
        OPERATION_BYTES_MAX.store(self.operation_bytes, Ordering::Relaxed);
    }

    pub fn get() -> Limits {
        Limits {
            process_bytes: PROCESS_BYTES_MAX.load(Ordering::Relaxed),
            operation_bytes: OPERATION_BYTES_MAX.load(Ordering::Relaxed),
        }
    }
}

/// Whether the operation of this thread holds too much.
#[inline]
pub fn check() -> Result<(), Exceeded> {
    let held = operation_bytes();
    if held <= SPARED_BYTES {
        return Ok(());
    }
    let limits = Limits::get();
    if held > limits.operation_bytes {
        return Err(Exceeded::Operation);
    }
    match room::is_beyond() {
        true => Err(Exceeded::Process),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_the_memory_and_the_cache() {
        let (gigabyte, quarter) = (1 << 30, 1 << 28);
        let limits = Limits::for_memory(gigabyte, quarter);
        assert_eq!(limits.process_bytes >> 20, 768);
        assert_eq!(limits.operation_bytes >> 20, 384);
        let large = Limits::for_memory(64 << 30, 16 << 30);
        assert_eq!(large.operation_bytes, OPERATION_BYTES_MAX_DEFAULT);
        let small = Limits::for_memory(100 << 20, 64 << 20);
        assert_eq!(small.operation_bytes, OPERATION_BYTES_MAX_LEAST);
        let odd = Limits::for_memory(1 << 20, 64 << 20);
        assert_eq!(odd.process_bytes, 64 << 20);
    }
}
