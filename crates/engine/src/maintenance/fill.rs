//! Filling: documents from before a pattern was declared, and those that a check found wrong.
//!
//! One document at a time is made as if it were written now, by the same work as any write, so filling and
//! writers do not get in each other's way, and it can be begun again at any time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kilim_error::Result;
use kilim_patterns::Kind;

use super::{Job, JobKind, Pattern, PatternState, carry};
use crate::catalog::RecordId;
use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::operator::{self, ExecContext};
use crate::planner::ReadRequest;
use crate::write::Unit;

impl Engine {
    /// Fills what a new pattern maintains, in a thread of its own; the job's number.
    pub fn begin_filling(&self, pattern: &Arc<Pattern>) -> u64 {
        let id = u64::from(pattern.id.0);
        let job = Arc::new(Job::new(id, JobKind::Fill, pattern.clone()));
        self.jobs.lock().push(job.clone());
        let work = move |engine: &Engine| {
            let running = engine.operations.start(0);
            let operation = Arc::clone(&running);
            let result = engine.fill_all(&operation, &job);
            engine.finish_job(&operation, &job, result);
        };
        if !self.spawn_job(work) {
            self.jobs.lock().retain(|other| other.id != id);
        }
        id
    }

    fn finish_job(&self, operation: &Arc<Operation>, job: &Arc<Job>, result: Result<()>) {
        self.jobs.lock().retain(|other| other.id != job.id);
        let state = match result {
            Ok(()) => PatternState::Active,
            // The next start takes it up again.
            Err(error) if error.code() == kilim_error::ErrorCode::InterruptedAtShutdown => return,
            Err(error) => PatternState::Failed(error.to_string()),
        };
        if let Err(error) = self.finish_filling(operation, &job.pattern, state) {
            tracing::warn!(%error, pattern = &*job.pattern.declaration.name, "could not note that a pattern is filled");
        }
    }

    /// Takes up what the last run of the server left unfinished.
    pub(crate) fn resume_filling(&self) {
        for pattern in self.patterns().iter().filter(|pattern| pattern.state == PatternState::Building) {
            self.begin_filling(pattern);
        }
    }

    fn fill_all(&self, operation: &Arc<Operation>, job: &Job) -> Result<()> {
        let pattern = &job.pattern;
        let options = pattern.declaration.options.backfill;
        let walked = match (&pattern.source, pattern.inserts_parents()) {
            (Some(source), true) => source,
            _ => &pattern.target,
        };
        let records = self.records_of(operation, walked)?;
        job.total.store(records.len() as u64, Ordering::Relaxed);
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        for batch in records.chunks(options.batch.max(1) as usize) {
            for record in batch {
                job.check()?;
                refresh(&mut unit, pattern, walked, *record, Refresh::Missing)?;
                job.done.fetch_add(1, Ordering::Relaxed);
            }
            unit.settle()?;
            job.pause(operation, Duration::from_millis(u64::from(options.throttle_ms)))?;
        }
        unit.settle()
    }

    /// The records of a collection as of now.
    pub(super) fn records_of(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
    ) -> Result<Vec<RecordId>> {
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        let snapshot = self.store.snapshot();
        let Some(collection) = unit.collection(namespace)? else { return Ok(Vec::new()) };
        let request = ReadRequest::new(Arc::new(kilim_query::filter::Filter::True));
        let plan = crate::read::plan_collection(&unit, &collection, request, &snapshot)?;
        let mut executor = operator::execute(plan, snapshot);
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        let mut records = Vec::new();
        while let Some(row) = executor.next_record(&mut context)? {
            records.push(row.record);
        }
        Ok(records)
    }
}

/// What is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// What is not there yet; groups' states that are there are trusted.
    Missing,
    /// Everything.
    All,
}

/// Makes one document's fields as they must be.
pub(crate) fn refresh(
    unit: &mut Unit<'_>,
    pattern: &Arc<Pattern>,
    namespace: &Namespace,
    record: RecordId,
    refresh: Refresh,
) -> Result<()> {
    loop {
        unit.operation.check()?;
        let Some(collection) = unit.enter(namespace)? else { return Ok(()) };
        let patterns = unit.engine.patterns().of(&namespace.database).to_vec().into();
        let result = match (&pattern.declaration.kind, namespace == &pattern.target) {
            (Kind::Rollup(rollup), false) => {
                carry::refresh_groups(unit, patterns, pattern, rollup, &collection, record, refresh)
            }
            _ => carry::refresh_document(unit, patterns, pattern, &collection, record, refresh),
        };
        match result {
            Ok(()) => return unit.written(),
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}
