//! Scrubbing: a look at a sample of what patterns maintain, now and then.
//!
//! A pattern that was declared with `scrub` is checked as often as it says. What is wrong makes it suspect and is
//! logged; repair is left to somebody who has seen it. A pass runs in a thread of its own, one at a time, and ends with
//! the engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kilim_error::Result;
use parking_lot::Mutex;

use super::verify::Part;
use super::{Pattern, PatternId, PatternState};
use crate::engine::Engine;
use crate::metrics::Counter;
use crate::operation::Operation;

/// When patterns were looked at, and what came of it.
#[derive(Debug)]
pub struct Scrubbing {
    enabled: AtomicBool,
    running: AtomicBool,
    /// When each was looked at last, or seen for the first time.
    seen: Mutex<HashMap<PatternId, Instant>>,
    /// Checks made, and documents found wrong.
    pub checks: Counter,
    pub wrong: Counter,
}

impl Default for Scrubbing {
    fn default() -> Scrubbing {
        Scrubbing {
            enabled: AtomicBool::new(true),
            running: AtomicBool::new(false),
            seen: Mutex::default(),
            checks: Counter::default(),
            wrong: Counter::default(),
        }
    }
}

impl Scrubbing {
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether so much time has passed since a pattern was looked at. One that was never seen begins to count now.
    fn is_due(&self, pattern: &Pattern, now: Instant) -> bool {
        let Some(scrub) = pattern.declaration.options.scrub else { return false };
        if pattern.state != PatternState::Active {
            return false;
        }
        let since = *self.seen.lock().entry(pattern.id).or_insert(now);
        now.saturating_duration_since(since) >= Duration::from_secs(u64::from(scrub.every_hours) * 3600)
    }
}

impl Engine {
    /// Begins a pass if a pattern is due. Returns at once.
    pub(crate) fn scrub_if_due(&self, now: Instant) {
        if !self.scrubbing.is_enabled() || self.due_for_scrub(now).is_empty() {
            return;
        }
        if self.scrubbing.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let begun = self.spawn_job(move |engine| {
            let operation = engine.operations.start(0);
            // What could not be looked at stays due.
            if let Err(error) = engine.scrub(&operation, now) {
                tracing::warn!(%error, "patterns could not be scrubbed");
            }
            engine.scrubbing.running.store(false, Ordering::Release);
        });
        if !begun {
            self.scrubbing.running.store(false, Ordering::Release);
        }
    }

    fn due_for_scrub(&self, now: Instant) -> Vec<Arc<Pattern>> {
        let registry = self.patterns();
        registry.iter().filter(|pattern| self.scrubbing.is_due(pattern, now)).cloned().collect()
    }

    /// Looks at the patterns that are due at a moment; how many documents were wrong.
    pub fn scrub(&self, operation: &Arc<Operation>, now: Instant) -> Result<u64> {
        let mut wrong = 0;
        for pattern in self.due_for_scrub(now) {
            let Some(scrub) = pattern.declaration.options.scrub else { continue };
            let part = Part { filter: None, sample: Some(scrub.sample) };
            let found = self.verify_part(operation, &pattern, part, 0)?;
            self.scrubbing.seen.lock().insert(pattern.id, now);
            self.scrubbing.checks.add(1);
            self.scrubbing.wrong.add(found.wrong);
            if found.wrong > 0 {
                tracing::warn!(
                    pattern = &*pattern.declaration.name,
                    ns = %pattern.target,
                    checked = found.checked,
                    wrong = found.wrong,
                    "a pattern is suspect: verifyPattern shows what is wrong, repairPattern puts it right"
                );
            }
            wrong += found.wrong;
        }
        self.scrubbing.seen.lock().retain(|id, _| self.patterns().by_id(*id).is_some());
        Ok(wrong)
    }
}
