//! An allocator that counts.
//!
//! A thread counts for itself and adds to the process's count now and then, so that counting costs a few instructions and
//! threads do not fight for one cache line. The process's count is wrong by [`NOTED_BYTES`] per thread at most.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// How much a thread counts before it tells the process.
const NOTED_BYTES: isize = 64 * 1024;

static PROCESS: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// What the operation of this thread holds. Negative where it frees what others have allocated.
    static OPERATION: Cell<isize> = const { Cell::new(0) };
    /// What the process has yet to be told.
    static UNTOLD: Cell<isize> = const { Cell::new(0) };
    /// Tells the rest when the thread ends.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        PROCESS.fetch_add(UNTOLD.replace(0), Ordering::Relaxed);
    }
}

/// Another allocator, counted.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counting<A>(pub A);

#[inline]
fn count(bytes: isize) {
    // Threads allocate until their very end, when there may be nothing left to count with.
    let _ = OPERATION.try_with(|held| held.set(held.get().wrapping_add(bytes)));
    let _ = UNTOLD.try_with(|untold| {
        let all = untold.get() + bytes;
        untold.set(all);
        if all.abs() >= NOTED_BYTES {
            untold.set(0);
            PROCESS.fetch_add(all, Ordering::Relaxed);
        }
    });
}

// SAFETY: every call goes to the inner allocator unchanged; counting touches thread-local numbers and allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the inner allocator's.
        let place = unsafe { self.0.alloc(layout) };
        if !place.is_null() {
            count(layout.size() as isize);
        }
        place
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let place = unsafe { self.0.alloc_zeroed(layout) };
        if !place.is_null() {
            count(layout.size() as isize);
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the place came from the inner allocator, with this layout.
        unsafe { self.0.dealloc(place, layout) };
        count(-(layout.size() as isize));
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the place came from the inner allocator, with this layout.
        let moved = unsafe { self.0.realloc(place, layout, size) };
        if !moved.is_null() {
            count(size as isize - layout.size() as isize);
        }
        moved
    }
}

/// An operation begins on this thread.
pub fn begin() {
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

/// Does work whose memory belongs to all operations: it fills a cache, or commits what several have written.
pub fn shared<T>(work: impl FnOnce() -> T) -> T {
    let before = OPERATION.get();
    let made = work();
    OPERATION.set(before);
    made
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting<System> = Counting(System);

    #[test]
    fn an_operation_holds_what_it_has_not_freed() {
        begin();
        let first = vec![1u8; 1 << 20];
        let mut second: Vec<u8> = Vec::with_capacity(1 << 10);
        assert!(operation_bytes() >= (1 << 20) + (1 << 10));
        second.reserve_exact(1 << 19);
        assert!(operation_bytes() >= (1 << 20) + (1 << 19));
        drop(first);
        drop(second);
        assert!(operation_bytes() < 1 << 16, "{}", operation_bytes());
        let cached = shared(|| vec![0u8; 1 << 20]);
        assert!(operation_bytes() < 1 << 16, "{}", operation_bytes());
        drop(cached);
        assert_eq!(operation_bytes(), 0, "what others have allocated is no debt");
    }

    #[test]
    fn the_process_is_told_what_threads_hold_also_when_they_end() {
        let before = process_bytes();
        let made: Vec<Vec<u8>> = (0..100)
            .map(|_| {
                std::thread::spawn(|| {
                    begin();
                    vec![1u8; 50_000]
                })
                .join()
                .unwrap()
            })
            .collect();
        let told = process_bytes().saturating_sub(before);
        assert!(told > 4_000_000, "{told} of {}", made.len() * 50_000);
    }
}
