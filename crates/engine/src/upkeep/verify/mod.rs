//! Verification: what a pattern maintains, computed again from its sources and compared.
//!
//! Everything is read as of one snapshot. A write and what it means for patterns are one commit, so whatever differs
//! there is wrong, however busy the collections are meanwhile. Repair makes each wrong document anew by the same
//! work as any write, as of the newest commit.

mod check;
mod groups;

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_storage::CommitTime;

use self::check::Check;
use super::states::{self, not_ready};
use crate::engine::Engine;
use crate::operation::Operation;
use crate::patterns::{Job, JobKind, Pattern, PatternState};

/// What a check found.
#[derive(Debug, Default)]
pub struct Verification {
    /// Documents that were compared.
    pub checked: u64,
    /// Those that were not as they should be.
    pub wrong: u64,
    /// `{_id, path, stored, expected}` of the first of them. What is missing has no value; an empty path means the
    /// document as a whole.
    pub examples: Vec<Document>,
    /// The commit that everything was read as of.
    pub as_of: CommitTime,
}

impl Engine {
    /// Compares what a pattern maintains with what its sources say. A whole check moves the pattern between active
    /// and suspect.
    pub fn verify_pattern(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        part: impl Into<Part>,
        limit: usize,
    ) -> Result<Verification> {
        let part = part.into();
        let _listed = self.list_check(operation, pattern);
        let whole = part.is_whole();
        if whole && pattern.state == PatternState::Unverified {
            return self.try_pattern(operation, pattern, limit);
        }
        let found = Check::new(self, operation, pattern, limit, Repair::Nothing)?.run(part)?;
        pattern.counters.drift.add(found.wrong);
        match found.wrong {
            0 if whole => {
                self.move_pattern(operation, pattern.id, &[PatternState::Suspect], PatternState::Active)?
            }
            0 => false,
            _ => self.move_pattern(operation, pattern.id, &[PatternState::Active], PatternState::Suspect)?,
        };
        Ok(found)
    }

    /// Puts a pattern whose definition was inserted in force, if its data is true. It is maintained while that is
    /// found out, so that no write falls between the check and its result.
    fn try_pattern(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        limit: usize,
    ) -> Result<Verification> {
        let pattern = self.restart_pattern_as(operation, pattern, PatternState::OnTrial)?;
        let found = Check::new(self, operation, &pattern, limit, Repair::Nothing)
            .and_then(|check| check.run(Part::default()));
        let is_true = found.as_ref().is_ok_and(|found| found.wrong == 0);
        let state = if is_true { PatternState::Active } else { PatternState::Unverified };
        // Also where the check was interrupted, by whose leave this goes on.
        let running = self.operations.start(0);
        self.set_pattern_state(&running, &pattern, state)?;
        found
    }

    /// The same, and makes anew what is wrong. A pattern that failed is taken up again.
    pub fn repair_pattern(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        part: impl Into<Part>,
        limit: usize,
    ) -> Result<Verification> {
        let part = part.into();
        let _listed = self.list_check(operation, pattern);
        let whole = part.is_whole();
        self.take_up_pending(pattern);
        let partly = "is not filled yet: repair all of it, without a filter or a sample";
        let pattern = match &pattern.state {
            PatternState::Paused => {
                return Err(not_ready(pattern, "is paused: resumePattern fills what it missed"));
            }
            PatternState::Failed(_) | PatternState::Unverified if !whole => {
                return Err(not_ready(pattern, partly));
            }
            PatternState::Failed(_) => self.resume_pattern(operation, pattern)?,
            PatternState::Unverified => self.restart_pattern(operation, pattern)?,
            _ => pattern.clone(),
        };
        let fills = |job: &Arc<Job>| job.kind == JobKind::Fill && job.pattern.id == pattern.id;
        let is_filled_by_job = self.jobs.lock().iter().any(fills);
        if !whole || is_filled_by_job || pattern.state == PatternState::Active {
            let found = Check::new(self, operation, &pattern, limit, Repair::All)?.run(part)?;
            pattern.counters.drift.add(found.wrong);
            return Ok(found);
        }
        let before = pattern.state.clone();
        let checked = self.check_filled(operation, &pattern, limit);
        let (found, state) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                let running = self.operations.start(0);
                let reason = PatternState::Failed(error.to_string());
                self.move_pattern(&running, pattern.id, &[PatternState::Building], reason)?;
                return Err(error);
            }
        };
        pattern.counters.drift.add(found.wrong);
        self.move_pattern(operation, pattern.id, &[before], state)?;
        Ok(found)
    }

    /// Shows a check among the jobs, with how far it is, until the result is dropped.
    fn list_check(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Listed<'_> {
        let id = u64::from(self.next_index_id().0);
        let job = Arc::new(Job::new(id, JobKind::Verify, pattern.clone()));
        job.run_by(operation);
        self.jobs.lock().push(job.clone());
        Listed { engine: self, job }
    }

    /// Goes on filling a pattern where it stopped.
    fn resume_pattern(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<Arc<Pattern>> {
        let failed = pattern.state.clone();
        if !self.move_pattern(operation, pattern.id, &[failed], PatternState::Building)? {
            return Err(not_ready(pattern, "was changed meanwhile"));
        }
        let current = self.patterns();
        let pattern = states::current(&current, pattern)?;
        let job = self.enlist(pattern);
        job.run_by(operation);
        let result = self.fill(operation, &job, false);
        self.finish_job(&job, result.clone());
        result.map(|()| pattern.clone())
    }

    /// Checks all of a pattern, repairs what is wrong, and looks again where something was: what was found, and the
    /// state that follows.
    pub(super) fn check_filled(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        limit: usize,
    ) -> Result<(Verification, PatternState)> {
        let repair = match pattern.state {
            PatternState::Verifying => Repair::Filling,
            _ => Repair::All,
        };
        let found = Check::new(self, operation, pattern, limit, repair)?.run(Part::default())?;
        let left = match found.wrong {
            0 => 0,
            _ => Check::new(self, operation, pattern, 0, Repair::Nothing)?.run(Part::default())?.wrong,
        };
        if left > 0 {
            tracing::warn!(
                pattern = &*pattern.declaration.name,
                left,
                "documents stay wrong after their repair"
            );
        }
        Ok((found, if left == 0 { PatternState::Active } else { PatternState::Suspect }))
    }
}

/// A check on the list of jobs.
struct Listed<'e> {
    engine: &'e Engine,
    job: Arc<Job>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.engine.jobs.lock().retain(|other| !Arc::ptr_eq(other, &self.job));
    }
}

/// What a check puts right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    Nothing,
    /// What a new pattern lacks. Documents of a rollup collection that belong to no group stay where a user has a part in
    /// them.
    Filling,
    All,
}

/// Which documents are looked at.
#[derive(Debug, Clone, Default)]
pub struct Part {
    pub filter: Option<Arc<Filter>>,
    /// This share of them, chosen at random.
    pub sample: Option<f64>,
}

impl From<Option<Arc<Filter>>> for Part {
    fn from(filter: Option<Arc<Filter>>) -> Part {
        Part { filter, sample: None }
    }
}

impl Part {
    fn is_whole(&self) -> bool {
        self.filter.is_none() && self.sample.is_none()
    }
}
