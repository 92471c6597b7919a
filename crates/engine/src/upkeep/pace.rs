//! How work in the background goes over many documents beside other writers.
//!
//! While others commit, it rests between its batches for as long as it works. They want the processor too, and a thread that
//! never sleeps keeps it from them for milliseconds at a time. While nobody else commits, it does not rest.

use std::time::Instant;

use kilim_error::Result;

use crate::engine::Engine;
use crate::limits;
use crate::operation::Operation;

pub(crate) struct Pace {
    /// When it last rested or looked, and how many commits there were by then.
    since: Instant,
    commits: u64,
    /// When others were last seen to commit.
    others: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(engine: &Engine) -> Pace {
        Pace { since: engine.environment().now(), commits: engine.store.commits(), others: None }
    }

    /// Called after each batch, with the number of commits that were its own.
    pub(crate) fn give_way(&mut self, engine: &Engine, operation: &Operation, own: u64) -> Result<()> {
        let (environment, store) = (engine.environment(), &engine.store);
        let now = environment.now();
        if store.commits() > self.commits + own {
            self.others = Some(now);
        }
        let is_recent = |seen: Instant| now.saturating_duration_since(seen) < limits::PACE_ALERT;
        if self.others.is_some_and(is_recent) {
            let worked = now.saturating_duration_since(self.since);
            operation.rest(worked.min(limits::PACE_REST_MAX))?;
        }
        (self.since, self.commits) = (environment.now(), store.commits());
        Ok(())
    }
}
