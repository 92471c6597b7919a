//! Whether measurements may move from one bucket to another.
//!
//! An insert joins buckets. A statement that changes or deletes goes from bucket to bucket and would miss measurements that
//! move from one it has yet to visit into one that it has passed. So such a statement holds measurements where they are, and
//! inserts meanwhile go on without joining.

use std::sync::Arc;
use std::time::Duration;

use kilim_error::Result;
use parking_lot::{Condvar, Mutex};

/// How often a statement that waits looks whether it was killed.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct Moves {
    counts: Mutex<Counts>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    /// Writers that have moved measurements and not handed that in yet.
    moving: usize,
    /// Statements that need measurements where they are.
    held: usize,
}

/// Measurements move until this is dropped: when the writer's batch is handed in.
pub(crate) struct Moving(Arc<Moves>);

/// Measurements stay where they are until this is dropped.
pub(crate) struct Still(Arc<Moves>);

impl Moves {
    /// Begins to move measurements; none where they must stay.
    pub fn begin(self: &Arc<Moves>) -> Option<Moving> {
        let mut counts = self.counts.lock();
        if counts.held > 0 {
            return None;
        }
        counts.moving += 1;
        Some(Moving(self.clone()))
    }

    /// Holds measurements where they are, once all moves are handed in. The caller holds nothing that a writer waits for.
    pub fn hold(self: &Arc<Moves>, interrupt: impl Fn() -> Result<()>) -> Result<Still> {
        let mut counts = self.counts.lock();
        counts.held += 1;
        let still = Still(self.clone());
        while counts.moving > 0 {
            self.moved.wait_for(&mut counts, LOOK);
            if let Err(error) = interrupt() {
                drop(counts);
                return Err(error);
            }
        }
        drop(counts);
        Ok(still)
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.counts.lock().moving -= 1;
        self.0.moved.notify_all();
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.0.counts.lock().held -= 1;
    }
}

#[cfg(test)]
mod tests {
    use kilim_error::{Error, ErrorCode};

    use super::*;

    #[test]
    fn nothing_moves_while_measurements_are_held() {
        let moves = Arc::new(Moves::default());
        let still = moves.hold(|| Ok(())).unwrap();
        let again = moves.hold(|| Ok(())).unwrap();
        drop(still);
        assert!(moves.begin().is_none());
        drop(again);
        assert!(moves.begin().is_some());
    }

    #[test]
    fn who_holds_measurements_waits_for_moves_and_can_be_killed() {
        let moves = Arc::new(Moves::default());
        let moving = moves.begin().unwrap();
        let killed = || Err(Error::user(ErrorCode::Interrupted, "killed"));
        assert!(moves.hold(killed).is_err());
        assert!(moves.begin().is_some());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| moves.hold(|| Ok(())).map(drop));
            drop(moving);
            assert!(waiting.join().unwrap().is_ok());
        });
    }
}
