//! What a pattern did and how it is doing, as listPatterns and `$patternStats` tell it.

use kilim_bson::{Document, doc};
use kilim_error::Result;

use crate::engine::Engine;
use crate::patterns::{Pattern, PatternState};

impl Engine {
    /// A pattern as `$patternStats` shows it.
    pub fn pattern_stats(&self, pattern: &Pattern) -> Result<Document> {
        let pending = self.pending_of(pattern)?;
        let mut stats = doc! {
            "name": &*pattern.declaration.name,
            "kind": pattern.declaration.kind_name,
            "ns": pattern.target.to_string(),
            "state": pattern.shown_state(),
            "counters": pattern.counters.to_document(pending),
            "lagMillis": pending.age_millis as i64,
        };
        self.append_progress(pattern, &mut stats)?;
        Ok(stats)
    }

    /// A pattern as listPatterns shows it.
    pub fn describe_pattern(&self, pattern: &Pattern) -> Result<Document> {
        let mut shown = doc! {
            "name": &*pattern.declaration.name,
            "kind": pattern.declaration.kind_name,
            "ns": pattern.target.to_string(),
            "spec": pattern.declaration.spec.clone(),
            "options": pattern.declaration.options.to_document(),
            "fields": pattern.fields(),
            "state": pattern.shown_state(),
            "counters": pattern.counters.to_document(self.pending_of(pattern)?),
        };
        if let PatternState::Failed(reason) = &pattern.state {
            shown.push("reason", reason);
        }
        if let Some(job) = self.catching_up(pattern) {
            shown.push("catchingUp", doc! {"jobId": job.id as i64, "state": job.state()});
        }
        self.append_progress(pattern, &mut shown)?;
        Ok(shown)
    }

    fn append_progress(&self, pattern: &Pattern, shown: &mut Document) -> Result<()> {
        if let Some((done, total)) = self.progress_of(pattern)? {
            shown.push("progress", doc! {"done": done as i64, "total": total as i64});
        }
        Ok(())
    }
}
