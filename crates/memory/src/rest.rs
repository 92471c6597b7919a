//! What a thread gives back before it sleeps for long.
//!
//! A thread that has answered a request holds what the next one would need: free blocks of the allocator, and the part of its
//! stack that deep calls have touched. A thousand threads that wait for changes hold a thousand times as much, for nothing.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A thread that is woken now and then gives back no more often than this: it would take the same again each time.
const PAUSE: Duration = Duration::from_secs(30);

static GIVE_BACK: OnceLock<fn()> = OnceLock::new();

thread_local! {
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Has `give_back` called where a thread is about to rest: it returns what the allocator keeps for the thread. Without it
/// [`rest`] does nothing.
pub fn when_resting(give_back: fn()) {
    // Who comes second finds the same allocator.
    let _ = GIVE_BACK.set(give_back);
}

/// Gives back what the thread does not need while it sleeps. Called by threads that have slept a while already.
pub fn rest() {
    let Some(give_back) = GIVE_BACK.get() else { return };
    if LAST.get().is_some_and(|last| last.elapsed() < PAUSE) {
        return;
    }
    LAST.set(Some(Instant::now()));
    give_back();
    give_back_stack();
}

/// Returns the pages of the stack below the frame at hand. What was there is dead.
#[cfg(target_os = "linux")]
#[inline(never)]
fn give_back_stack() {
    const PAGE: usize = 4096;
    let here = 0u8;
    let here = (&raw const here).addr();
    let Some(lowest) = lowest_of_stack() else { return };
    // A page is left for the frame of the call below.
    let end = (here & !(PAGE - 1)).saturating_sub(PAGE);
    if lowest < end {
        // SAFETY: the range is whole pages of this thread's own stack, below all frames but that of the call itself, for which a
        // page is left. They read as zeros afterwards, and nobody reads what is below the stack's end.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(lowest), end - lowest, libc::MADV_DONTNEED) };
    }
}

#[cfg(not(target_os = "linux"))]
fn give_back_stack() {}

/// The first address of the thread's stack behind its guard.
#[cfg(target_os = "linux")]
fn lowest_of_stack() -> Option<usize> {
    // SAFETY: the attributes are initialised by the first call before they are read, and given back once.
    unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let (mut lowest, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
        let known = libc::pthread_attr_getstack(&attributes, &mut lowest, &mut size) == 0
            && libc::pthread_attr_getguardsize(&attributes, &mut guard) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        known.then(|| lowest.addr() + guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of this thread's stack that are in memory.
    #[cfg(target_os = "linux")]
    fn resident() -> usize {
        const PAGE: usize = 4096;
        let lowest = lowest_of_stack().unwrap().next_multiple_of(PAGE);
        let here = 0u8;
        let pages = ((&raw const here).addr() - lowest) / PAGE;
        let mut found = vec![0u8; pages];
        // SAFETY: the range is part of the stack's mapping, and the answer has a byte for each page of it.
        let asked = unsafe {
            libc::mincore(std::ptr::without_provenance_mut(lowest), pages * PAGE, found.as_mut_ptr().cast())
        };
        assert_eq!(asked, 0);
        found.iter().filter(|page| **page & 1 == 1).count()
    }

    #[inline(never)]
    fn deep(depth: usize) -> usize {
        let room = std::hint::black_box([depth; 512]);
        if depth == 0 { 0 } else { deep(depth - 1) + std::hint::black_box(room)[depth] }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_rests_gives_its_stack_back_and_goes_on() {
        let run = || {
            let kept: Vec<usize> = (0..100).collect();
            let sum = deep(60);
            assert!(resident() >= 50, "{}", resident());
            when_resting(|| {});
            rest();
            assert!(resident() < 20, "{}", resident());
            assert_eq!(deep(60), sum);
            assert_eq!(kept.iter().sum::<usize>(), 4950);
            // Not again so soon.
            rest();
            assert!(resident() >= 50, "{}", resident());
        };
        std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    }
}
