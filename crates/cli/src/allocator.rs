//! Where the program's memory comes from.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long, c_void};

use mimalloc::MiMalloc;

// A document database allocates in small pieces from many threads, which this allocator is made for.
#[global_allocator]
static ALLOCATOR: kilim_memory::Counting<Plain> = kilim_memory::Counting(Plain);

/// mimalloc, asked for an alignment only where its blocks do not have it anyway. Whenever it is asked and has no free block
/// at hand, it makes a larger one, unless the size is a power of two.
struct Plain;

/// What every block of mimalloc is aligned to.
const ALIGNED: usize = 8;

// SAFETY: blocks of both ways come from one allocator, which frees and moves either; those of the plain way are aligned to
// `ALIGNED`, and only layouts for which that is enough go there.
unsafe impl GlobalAlloc for Plain {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size may be asked for; the caller keeps the contract of `alloc`.
        unsafe {
            match layout.align() <= ALIGNED {
                true => mi_malloc(layout.size()).cast(),
                false => MiMalloc.alloc(layout),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size may be asked for; the caller keeps the contract of `alloc_zeroed`.
        unsafe {
            match layout.align() <= ALIGNED {
                true => mi_zalloc(layout.size()).cast(),
                false => MiMalloc.alloc_zeroed(layout),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the place came from mimalloc.
        unsafe { MiMalloc.dealloc(place, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the place came from mimalloc.
        unsafe {
            match layout.align() <= ALIGNED {
                true => mi_realloc(place.cast(), size).cast(),
                false => MiMalloc.realloc(place, layout, size),
            }
        }
    }
}

/// `mi_option_purge_delay` of `mimalloc.h`.
const PURGE_DELAY: c_int = 15;

/// How long freed memory is kept for the next allocation; mimalloc's own choice.
const PURGE_DELAY_MS: c_long = 1000;

unsafe extern "C" {
    fn mi_malloc(size: usize) -> *mut c_void;
    fn mi_zalloc(size: usize) -> *mut c_void;
    fn mi_realloc(place: *mut c_void, size: usize) -> *mut c_void;
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_collect(force: bool);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Gives memory back to the system as soon as it is freed, while the process holds much of what it may. It otherwise is
/// kept for a second, so that the process would take more than it holds.
pub fn give_back_at_once(at_once: bool) {
    // SAFETY: the first call stores a number, which mimalloc reads when it frees. The second gives back what was freed
    // before; any thread may call it that is not within mimalloc itself, and the counting around it is not.
    unsafe {
        mi_option_set(PURGE_DELAY, if at_once { 0 } else { PURGE_DELAY_MS });
        if at_once {
            mi_collect(true);
        }
    }
}

/// Gives back what is kept for the next allocation of this thread.
pub fn give_back_of_thread() {
    // SAFETY: any thread may call it that is not within mimalloc itself, and the counting around it is not.
    unsafe { mi_collect(true) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_and_alignment_are_aligned_and_keep_their_contents() {
        for size in (1..200).chain([1000, 1500, 5000, 100_000, 3_000_000]) {
            for align in [1, 2, 4, 8, 16, 64, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the layout is not empty, and each block is freed once, with the layout that it has by then.
                unsafe {
                    let zeroed = Plain.alloc_zeroed(layout);
                    let place = Plain.alloc(layout);
                    assert!(
                        zeroed.addr().is_multiple_of(align) && place.addr().is_multiple_of(align),
                        "{layout:?}"
                    );
                    assert!(std::slice::from_raw_parts(zeroed, size).iter().all(|byte| *byte == 0));
                    place.write_bytes(7, size);
                    let larger = Plain.realloc(place, layout, size * 2);
                    assert!(larger.addr().is_multiple_of(align), "{layout:?}");
                    assert!(std::slice::from_raw_parts(larger, size).iter().all(|byte| *byte == 7));
                    Plain.dealloc(larger, Layout::from_size_align(size * 2, align).unwrap());
                    Plain.dealloc(zeroed, layout);
                }
            }
        }
    }

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: the call reads a number.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), PURGE_DELAY_MS);
        give_back_at_once(true);
        assert_eq!(delay(), 0);
        give_back_at_once(false);
        assert_eq!(delay(), PURGE_DELAY_MS);
    }
}
