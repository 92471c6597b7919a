//! Commit times: a hybrid clock of unix seconds and a counter, the same bits as a BSON timestamp.
//!
//! Invariant: commit times strictly grow, also when the wall clock steps back and over restarts, because each
//! is greater than the last one that the store has seen and that one is written with every batch.

use crate::environment::Environment;

/// Unix seconds in the upper 32 bits, a counter within the second in the lower.
pub type CommitTime = u64;

/// The wall clock's reading. The counter begins at 1, as MongoDB's timestamps do.
pub(crate) fn wall(environment: &Environment) -> CommitTime {
    (environment.since_epoch().as_secs() << 32) | 1
}

/// The next commit time after `last`.
pub(crate) fn next(environment: &Environment, last: CommitTime) -> CommitTime {
    wall(environment).max(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_time_ahead_of_the_wall_clock_still_grows() {
        let environment = Environment::default();
        let ahead = wall(&environment) + (3600 << 32);
        assert_eq!(next(&environment, ahead), ahead + 1);
        assert!(next(&environment, 0) >= 1 << 32);
    }
}
