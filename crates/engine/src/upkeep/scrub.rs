//! Scrubbing: a sample of what patterns maintain is verified regularly.
//!
//! A pattern that was declared with `scrub` is checked as often as it says. If documents are wrong, the pattern becomes
//! suspect and this is logged; a person decides on the repair. A pass runs in a thread of its own, one at a time, and ends
//! with the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_error::Result;
use kilim_storage::Durability;

use super::definitions::put_id;
use super::verify::Part;
use crate::engine::Engine;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState};

const HOUR_MILLIS: i64 = 3_600_000;

impl Pattern {
    /// Whether a scrub of it is due at this time.
    fn is_due(&self, now_millis: i64) -> bool {
        let Some(scrub) = self.declaration.options.scrub else { return false };
        let since = self.counters.looked_at.load(Ordering::Relaxed);
        self.state == PatternState::Active
            && now_millis.saturating_sub(since) >= i64::from(scrub.every_hours) * HOUR_MILLIS
    }
}

impl Engine {
    /// Begins a pass if a pattern is due. Returns at once.
    pub(crate) fn scrub_if_due(&self) {
        let now = self.now_millis();
        if !self.scrubbing.is_enabled() || self.due_for_scrub(now).is_empty() {
            return;
        }
        if !self.scrubbing.begin() {
            return;
        }
        let begun = self.spawn_job(move |engine| {
            let operation = engine.operations.start(0);
            // A pattern that could not be checked stays due.
            if let Err(error) = engine.scrub(&operation, now) {
                tracing::warn!(%error, "patterns could not be scrubbed");
            }
            engine.scrubbing.end();
        });
        if !begun {
            self.scrubbing.end();
        }
    }

    fn due_for_scrub(&self, now_millis: i64) -> Vec<Arc<Pattern>> {
        let registry = self.patterns();
        registry.iter().filter(|pattern| pattern.is_due(now_millis)).cloned().collect()
    }

    /// Checks the patterns that are due at a time, in milliseconds since 1970. Gives how many documents were wrong.
    pub fn scrub(&self, operation: &Arc<Operation>, now_millis: i64) -> Result<u64> {
        let mut wrong = 0;
        for pattern in self.due_for_scrub(now_millis) {
            let Some(scrub) = pattern.declaration.options.scrub else { continue };
            let part = Part { filter: None, sample: Some(scrub.sample) };
            let found = self.verify_pattern(operation, &pattern, part, 0)?;
            self.note_looked(&pattern, now_millis)?;
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
        Ok(wrong)
    }

    /// Stores when a pattern was checked, so that a server that is restarted often still scrubs when it is due.
    fn note_looked(&self, pattern: &Pattern, now_millis: i64) -> Result<()> {
        pattern.counters.looked_at.store(now_millis, Ordering::Relaxed);
        // While `ids` is held, no pattern is renamed or dropped.
        let _ids = self.ids.lock();
        if let Some(current) = self.patterns().by_id(pattern.id) {
            let mut transaction = self.store.begin();
            put_id(&mut transaction, current);
            transaction.commit(Durability::Relaxed)?;
        }
        Ok(())
    }
}
