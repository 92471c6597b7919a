//! Verification: what a pattern maintains, computed again from its sources and compared.
//!
//! Everything is read as of one snapshot. A write and what maintenance makes of it are one commit, so a difference in the
//! snapshot is an error, even while writers are busy. Repair evaluates each wrong document again, like a write, as of the
//! newest commit.

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
    /// `{_id, path, stored, expected}` of the first of them. A value that is missing is left out. An empty path stands for the
    /// whole document.
    pub examples: Vec<Document>,
    /// The commit that everything was read as of.
    pub as_of: CommitTime,
}

impl Engine {
    /// Compares what a pattern maintains with what follows from its sources. A check of all documents moves the pattern between
    /// active and suspect.
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
        self.expect_unchanged(pattern)?;
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

    /// What documents break of the rules of a pattern that is not declared yet; none where it has no rules.
    pub fn try_rules(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        limit: usize,
    ) -> Result<Option<Verification>> {
        match pattern.kind().rules() {
            Some(_) => {
                Check::new(self, operation, pattern, limit, Repair::Nothing)?.run(Part::default()).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Puts a pattern whose definition was inserted in force, if its data is right. The pattern is maintained during the check,
    /// so that writes meanwhile do not make it wrong.
    fn try_pattern(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        limit: usize,
    ) -> Result<Verification> {
        let pattern = self.restart_pattern_as(operation, pattern, PatternState::OnTrial)?;
        let found = Check::new(self, operation, &pattern, limit, Repair::Nothing)
            .and_then(|check| check.run(Part::default()));
        let found = match found {
            Ok(found) if found.wrong == 0 => self.complete_notes(operation, &pattern).map(|()| found),
            found => found,
        };
        let is_true = found.as_ref().is_ok_and(|found| found.wrong == 0) && self.is_unchanged(&pattern);
        let state = if is_true { PatternState::Active } else { PatternState::Unverified };
        // The check's operation may have been killed, so the state is set by another one.
        let running = self.operations.start(0);
        self.set_pattern_state(&running, &pattern, state)?;
        found
    }

    /// Verifies a pattern and repairs what is wrong. The filling of a failed pattern goes on.
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
            self.expect_unchanged(&pattern)?;
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
        self.expect_unchanged(&pattern)?;
        pattern.counters.drift.add(found.wrong);
        self.move_pattern(operation, pattern.id, &[before], state)?;
        Ok(found)
    }

    /// Refuses to answer if a check may have seen other collections than the pattern's: see [`Engine::is_unchanged`].
    fn expect_unchanged(&self, pattern: &Pattern) -> Result<()> {
        match self.is_unchanged(pattern) {
            true => Ok(()),
            false => Err(not_ready(pattern, "was modified or renamed during the check: look again")),
        }
    }

    /// Lists a check among the jobs, with its progress, until the returned value is dropped.
    fn list_check(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Listed<'_> {
        let id = u64::from(self.next_index_id().0);
        let job = Arc::new(Job::new(id, JobKind::Verify, pattern.clone(), self.environment()));
        job.run_by(operation);
        self.jobs.lock().push(job.clone());
        Listed { engine: self, job }
    }

    /// Goes on with the filling of a failed pattern.
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

    /// Checks all of a pattern and repairs what is wrong. If something was wrong, checks again. Gives what was found, and the
    /// state that follows from it.
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
        // What seemed right beside something wrong may be found wrong once that is repaired: labels of nested sets that were
        // there before. Each round leaves fewer of those.
        let rounds_max = if pattern.kind().tree().is_some() { TREE_REPAIR_ROUNDS } else { 1 };
        let (mut left, mut rounds) = (found.wrong, 0);
        while left > 0 && rounds < rounds_max {
            let repair = if rounds == 0 { Repair::Nothing } else { repair };
            left = Check::new(self, operation, pattern, 0, repair)?.run(Part::default())?.wrong;
            rounds += 1;
        }
        if left > 0 {
            tracing::warn!(
                pattern = &*pattern.declaration.name,
                left,
                "documents stay wrong after their repair"
            );
        }
        if left > 0 {
            return Ok((found, PatternState::Suspect));
        }
        self.complete_notes(operation, pattern)?;
        Ok((found, PatternState::Active))
    }
}

/// Looks at a tree after its repair, at most. The first only looks; the others repair what is left.
const TREE_REPAIR_ROUNDS: u32 = 16;

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

/// What a check repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    Nothing,
    /// What the filling of a new pattern missed. A document of a rollup collection that belongs to no group is kept if it has
    /// fields of a user.
    Filling,
    All,
}

/// Which documents are checked.
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
