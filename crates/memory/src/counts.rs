//! The counts: what each thread's operation holds, and what the process has allocated.
//!
//! A thread counts for itself and adds to the process's count now and then, so that counting costs a few instructions and
//! threads do not fight for one cache line. The process's count is wrong by [`TOLD_BYTES`] per thread at most.

use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// How much a thread counts before it tells the process.
pub(crate) const TOLD_BYTES: isize = 64 * 1024;

pub(crate) static PROCESS: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// What the operation of this thread holds. Negative where it frees what others have allocated.
    pub(crate) static OPERATION: Cell<isize> = const { Cell::new(0) };
    /// What the process has yet to be told.
    pub(crate) static UNTOLD: Cell<isize> = const { Cell::new(0) };
    /// Tells the rest when the thread ends.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        PROCESS.fetch_add(UNTOLD.replace(0), Ordering::Relaxed);
    }
}

/// An operation begins on this thread: it holds nothing.
pub(crate) fn begin() {
    END.with(|_| ());
    OPERATION.set(0);
}

/// What the operation of this thread holds.
#[inline]
pub fn operation_bytes() -> usize {
    usize::try_from(OPERATION.get()).unwrap_or(0)
}

/// Says what the operation holds: a cursor that is read on brings along what it held before, and a batch of writes that
/// was handed over takes along what it was made of.
pub fn set_operation_bytes(bytes: usize) {
    OPERATION.set(isize::try_from(bytes).unwrap_or(isize::MAX));
}

/// What the process has allocated, to within what threads have yet to tell.
#[inline]
pub fn process_bytes() -> usize {
    usize::try_from(PROCESS.load(Ordering::Relaxed)).unwrap_or(0)
}
