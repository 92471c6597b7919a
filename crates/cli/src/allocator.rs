//! Where the program's memory comes from.

use std::ffi::{c_int, c_long};

// A document database allocates in small pieces from many threads, which this allocator is made for.
#[global_allocator]
static ALLOCATOR: kilim_memory::Counting<mimalloc::MiMalloc> = kilim_memory::Counting(mimalloc::MiMalloc);

/// `mi_option_purge_delay` of `mimalloc.h`.
const PURGE_DELAY: c_int = 15;

/// How long freed memory is kept for the next allocation. Under load the rows in memory go with each checkpoint, every few
/// seconds; after mimalloc's own second the next ones would have to be faulted in again, page by page.
const PURGE_DELAY_MS: c_long = 10_000;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_collect(force: bool);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Gives memory back to the system as soon as it is freed, while the process holds much of what it may. It otherwise is
/// kept for a while, so that the process would take more than it holds.
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
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: the call reads a number.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "mimalloc's own choice");
        give_back_at_once(true);
        assert_eq!(delay(), 0);
        give_back_at_once(false);
        assert_eq!(delay(), PURGE_DELAY_MS);
    }
}
