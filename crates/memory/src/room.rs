//! Operations wait for room before they take more memory.
//!
//! [`check`](crate::check) can end an operation only where it asks. Between two checks it may copy a hundred megabytes, and
//! many operations may do so at the same moment. So the allocator counts a large allocation before it is made, and asks
//! here where the process would hold more than it may. The operation then waits until others have freed enough. If all
//! of them waited, none would ever free anything: one operation at a time has the turn to go beyond the bound. It is ended
//! at its next check, unless memory has become free, and gives the turn to the next.
//!
//! The operation with the turn may itself wait for a lock that one of the others holds. So the turn goes to another after
//! [`TURN`], and an operation that has waited for [`PATIENCE`] goes on without, to be ended at its next check too.
//!
//! Nothing here allocates, since the allocator calls it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::counts::{PROCESS, operation_bytes, process_bytes};
use crate::{Limits, SPARED_BYTES};

/// How long an operation has the turn while others wait for it: far longer than the way to its next check takes.
const TURN: Duration = Duration::from_millis(500);

/// How long an operation waits for room.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a shortage is told of after an operation has met it.
const REMEMBERED: Duration = Duration::from_millis(1500);

#[derive(Debug)]
struct State {
    /// Since when an operation has the turn to go beyond the bound.
    turn: Option<Instant>,
    /// When an operation last found no room, and what it wanted.
    short: Option<(Instant, usize)>,
}

static STATE: Mutex<State> = Mutex::new(State { turn: None, short: None });
static FREED: Condvar = Condvar::new();
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Whether the process holds so much that freed memory should go back to the system at once.
static TIGHT: AtomicBool = AtomicBool::new(false);
static WHEN_TIGHT: OnceLock<fn(bool)> = OnceLock::new();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    No,
    /// It got the turn at this moment.
    WithTurn(Instant),
    /// It has waited long enough.
    WithoutTurn,
}

thread_local! {
    /// Operations that this thread runs, one within the other.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
    static BEYOND: Cell<Beyond> = const { Cell::new(Beyond::No) };
    static NEVER_WAITS: Cell<bool> = const { Cell::new(false) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn begin() {
    RUNNING.set(RUNNING.get() + 1);
}

/// The operation of this thread ends. What it made, such as its reply, may still be in memory.
pub fn end() {
    RUNNING.set(RUNNING.get().saturating_sub(1));
    come_back();
}

/// Operations that this thread runs from now on wait for no room, since many others wait for the thread.
pub fn never_wait() {
    NEVER_WAITS.set(true);
}

/// Does work that must not wait for room, since others wait for it.
pub(crate) fn without_waiting<T>(work: impl FnOnce() -> T) -> T {
    let running = RUNNING.replace(0);
    let made = work();
    RUNNING.set(running);
    made
}

/// Whether the operation of this thread went beyond the bound, and the process still is.
pub(crate) fn is_beyond() -> bool {
    if BEYOND.get() == Beyond::No {
        return false;
    }
    if process_bytes() > Limits::get().process_bytes {
        return true;
    }
    come_back();
    false
}

fn come_back() {
    if let Beyond::WithTurn(since) = BEYOND.replace(Beyond::No) {
        let mut state = state();
        // Another may have it by now.
        if state.turn == Some(since) {
            state.turn = None;
            FREED.notify_one();
        }
    }
}

/// Waits for room for an allocation of so many bytes, which the process's count contains already.
#[cold]
pub(crate) fn wait(bytes: usize) {
    // A thread that ends has no thread-local values any more.
    let waits = RUNNING.try_with(|running| running.get() > 0).unwrap_or(false);
    if !waits || NEVER_WAITS.get() || BEYOND.get() != Beyond::No || operation_bytes() <= SPARED_BYTES {
        return;
    }
    let max = Limits::get().process_bytes;
    let claim = isize::try_from(bytes).unwrap_or(isize::MAX);
    let deadline = Instant::now() + PATIENCE;
    let mut state = state();
    // Not counted while it waits: the others would find no room either.
    PROCESS.fetch_sub(claim, Ordering::Relaxed);
    WAITING.fetch_add(1, Ordering::Relaxed);
    state.short = Some((Instant::now(), operation_bytes()));
    loop {
        if process_bytes().saturating_add(bytes) <= max {
            break;
        }
        let now = Instant::now();
        if state.turn.is_none_or(|since| now.saturating_duration_since(since) >= TURN) {
            state.turn = Some(now);
            BEYOND.set(Beyond::WithTurn(now));
            break;
        }
        let left = deadline.saturating_duration_since(now);
        if left.is_zero() {
            BEYOND.set(Beyond::WithoutTurn);
            break;
        }
        // Memory that was freed between the look and the wait is seen a little later.
        let turn = left.min(Duration::from_millis(20));
        state = FREED.wait_timeout(state, turn).unwrap_or_else(PoisonError::into_inner).0;
    }
    WAITING.fetch_sub(1, Ordering::Relaxed);
    PROCESS.fetch_add(claim, Ordering::Relaxed);
    drop(state);
    if BEYOND.get() == Beyond::No {
        // There may be room for another one.
        FREED.notify_one();
    }
}

/// Memory was freed.
#[inline]
pub(crate) fn freed() {
    if WAITING.load(Ordering::Relaxed) > 0 {
        FREED.notify_one();
    }
}

/// Calls `told` with `true` when the process begins to hold more than half of what it may, and with `false` when it holds
/// clearly less again. Called by the allocator: `told` must not allocate. The first call of this function counts.
pub fn when_tight(told: fn(bool)) {
    let _ = WHEN_TIGHT.set(told);
}

/// Notes what the process holds now, of what it may.
#[inline]
pub(crate) fn note(held: usize, max: usize) {
    let half = max / 2;
    let was = TIGHT.load(Ordering::Relaxed);
    let is = if was { held > half - half / 4 } else { held > half };
    if was != is {
        turn(is);
    }
}

#[cold]
fn turn(tight: bool) {
    if TIGHT.swap(tight, Ordering::Relaxed) != tight
        && let Some(told) = WHEN_TIGHT.get()
    {
        told(tight);
    }
}

/// How much memory is missing: what the process holds beyond its bound, and what an operation has just found no room for.
pub fn shortage_bytes() -> usize {
    let excess = process_bytes().saturating_sub(Limits::get().process_bytes);
    let missing = match state().short {
        Some((at, bytes)) if at.elapsed() < REMEMBERED => bytes,
        _ => 0,
    };
    excess.max(missing)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::{Exceeded, check};

    const MEGABYTE: usize = 1 << 20;

    /// Operations that each take a large piece at the same moment, and ask afterwards as they are used to. Gives the most
    /// that they held together, and how many were ended. The process's count would not do: it contains for a moment what
    /// an operation is about to wait for.
    fn take_at_once(operations: usize, bytes: usize) -> (usize, usize) {
        let before = process_bytes();
        Limits { process_bytes: before + 3 * bytes, operation_bytes: usize::MAX }.set();
        let (barrier, held, most) = (Barrier::new(operations), AtomicUsize::new(0), AtomicUsize::new(0));
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..operations {
                scope.spawn(|| {
                    crate::begin();
                    barrier.wait();
                    let taken: Vec<u8> = Vec::with_capacity(bytes);
                    most.fetch_max(held.fetch_add(bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
                    // For as long as the others need to want some too.
                    std::thread::sleep(Duration::from_millis(20));
                    if check() == Err(Exceeded::Process) {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                    held.fetch_sub(bytes, Ordering::SeqCst);
                    drop(taken);
                    end();
                });
            }
        });
        Limits { process_bytes: usize::MAX, operation_bytes: usize::MAX }.set();
        (most.into_inner(), ended.into_inner())
    }

    #[test]
    fn what_is_taken_at_one_moment_stays_within_the_bound_but_for_one_turn() {
        let (most, ended) = take_at_once(30, 100 * MEGABYTE);
        assert!(most <= 401 * MEGABYTE, "{most}");
        assert!(ended <= 30);
        assert!(shortage_bytes() >= 100 * MEGABYTE, "those who can free memory are told what is missing");
    }

    #[test]
    fn an_operation_alone_goes_beyond_and_is_ended_at_its_next_check() {
        let before = process_bytes();
        crate::begin();
        Limits { process_bytes: before + MEGABYTE, operation_bytes: usize::MAX }.set();
        let taken: Vec<u8> = Vec::with_capacity(50 * MEGABYTE);
        assert_eq!(check(), Err(Exceeded::Process));
        drop(taken);
        let small: Vec<u8> = Vec::with_capacity(MEGABYTE / 2);
        assert_eq!(check(), Ok(()));
        drop(small);
        end();
        Limits { process_bytes: usize::MAX, operation_bytes: usize::MAX }.set();
    }
}
