//! Waiting for what another thread or process is about to do.

use std::time::{Duration, Instant};

/// Long enough for a busy machine, so that only what never happens fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks: short at first, because most things are about to happen.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// Returns once `holds` does.
///
/// # Panics
///
/// If it does not within a minute.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    if look_for(PATIENCE, || holds().then_some(())).is_none() {
        panic!("{what}: not within {PATIENCE:?}");
    }
}

/// Looks again and again until there is something, and gives up after `limit`.
pub fn look_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    let mut pause = PAUSE_MIN;
    loop {
        // The time before the look: one look is made behind the deadline, however long the others took.
        let late = Instant::now() >= deadline;
        match look() {
            None if !late => std::thread::sleep(pause),
            found => return found,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
