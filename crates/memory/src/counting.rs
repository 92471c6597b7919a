//! An allocator that counts.
//!
//! An allocation is counted before it is made: an operation waits for room there if a large one finds none. A small one
//! then only costs a few instructions in front of the inner allocator's.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::Ordering;

use crate::counts::{self, OPERATION, PROCESS, TOLD_BYTES, UNTOLD};
use crate::{Limits, room};

/// Another allocator, counted.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counting<A>(pub A);

#[inline]
fn count(bytes: isize) {
    // Threads allocate until their very end, when there may be nothing left to count with.
    let _ = OPERATION.try_with(|held| held.set(held.get().wrapping_add(bytes)));
    let _ = UNTOLD.try_with(|untold| {
        let all = untold.get() + bytes;
        if (-TOLD_BYTES..TOLD_BYTES).contains(&all) {
            untold.set(all);
        } else {
            untold.set(0);
            tell_or_wait(all);
        }
    });
}

/// Tells the process. Where it has grown in small pieces, the operation waits here.
#[cold]
fn tell_or_wait(bytes: isize) {
    if tell(bytes) {
        room::wait(0);
    }
}

/// Counts an allocation that is about to be made, and waits for room for it.
fn claim(size: usize) {
    let bytes = size as isize;
    let _ = OPERATION.try_with(|held| held.set(held.get().wrapping_add(bytes)));
    let untold = UNTOLD.try_with(|untold| untold.replace(0)).unwrap_or(0);
    if tell(untold + bytes) {
        room::wait(size);
    }
}

/// Tells the process; whether more was taken and it now holds more than it may.
fn tell(bytes: isize) -> bool {
    let held = PROCESS.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    let (held, max) = (usize::try_from(held).unwrap_or(0), Limits::get().process_bytes);
    room::note(held, max);
    if bytes < 0 {
        room::freed();
    }
    bytes > 0 && held > max
}

const fn is_large(size: usize) -> bool {
    size >= TOLD_BYTES as usize
}

/// Makes a large allocation, which takes the place of `before` bytes.
#[cold]
fn claimed(size: usize, before: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    // Both may be there for a moment, when the contents move.
    claim(size);
    let place = allocate();
    count(-((if place.is_null() { size } else { before }) as isize));
    place
}

/// Makes an allocation. A small one that fails stays counted: hardly any program goes on after that.
#[inline]
fn counted(size: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    if is_large(size) {
        return claimed(size, 0, allocate);
    }
    count(size as isize);
    allocate()
}

// SAFETY: every call goes to the inner allocator unchanged; counting touches numbers and waits, and allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the inner allocator's.
        counted(layout.size(), || unsafe { self.0.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        counted(layout.size(), || unsafe { self.0.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the place came from the inner allocator, with this layout.
        unsafe { self.0.dealloc(place, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the place came from the inner allocator, with this layout.
        let allocate = || unsafe { self.0.realloc(place, layout, size) };
        if is_large(size) {
            return claimed(size, layout.size(), allocate);
        }
        count(size as isize - layout.size() as isize);
        allocate()
    }
}

/// An operation begins on this thread; [`end`](crate::end) ends it.
pub fn begin() {
    counts::begin();
    room::begin();
}

/// Does work whose memory belongs to all operations: it fills a cache, or commits what several have written. It does not
/// wait for room, since other operations wait for it.
pub fn shared<T>(work: impl FnOnce() -> T) -> T {
    let before = OPERATION.get();
    let made = room::without_waiting(work);
    OPERATION.set(before);
    made
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;
    use crate::counts::{operation_bytes, process_bytes};

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
