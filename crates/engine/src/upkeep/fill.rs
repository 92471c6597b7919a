//! Filling: documents from before a pattern was declared, and those that a check found wrong.
//!
//! One document at a time is made as if it were written now, by the same work as any write, so filling and
//! writers do not get in each other's way. Documents are visited by their record ids, up to the last that there was
//! when the pattern was put in force: later ones are maintained from their insertion, so filling ends however many come.
//! How far it is, is noted in the commit of each batch. A restart goes on from there, and memory holds no more than the
//! ids of one batch.
//!
//! What is filled is then verified as a whole before the pattern counts as active.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{ErrorCode, Result, StorageError};
use kilim_storage::{Direction, Snapshot, Space};

use crate::catalog::{Collection, CollectionId, RecordId};
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::maintenance::{Refresh, refresh_document, refresh_groups};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Job, JobKind, Pattern, PatternState};
use crate::unit::Unit;
use crate::write::door::put_evaluation;
use crate::{layout, records};

/// How far a pattern is filled, as it lies in `meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filling {
    collection: CollectionId,
    /// Records from here on are still to be visited.
    next: RecordId,
    /// Records from here on were written under maintenance.
    fence: RecordId,
    pub done: u64,
    pub total: u64,
}

impl Filling {
    /// The whole of what is there now. The collection is held, so nobody numbers a record meanwhile.
    pub fn begin(engine: &Engine, walked: Option<Arc<Collection>>) -> Result<Filling> {
        let (collection, fence, total) = match walked {
            Some(collection) => {
                let fence = collection.shared.next_record.load(Ordering::Relaxed);
                let counter = collection.home().counts(&engine.store.snapshot())?;
                (collection.id, fence, counter.count.max(0) as u64)
            }
            None => (CollectionId(0), 0, 0),
        };
        Ok(Filling { collection, next: RecordId(0), fence: RecordId(fence), done: 0, total })
    }

    pub fn encode(&self) -> Document {
        doc! {
            "collection": i64::from(self.collection.0),
            "next": self.next.0 as i64,
            "fence": self.fence.0 as i64,
            "done": self.done as i64,
            "total": self.total as i64,
        }
    }

    /// None where nothing is to be filled.
    pub fn load(snapshot: &Snapshot, pattern: PatternId) -> Result<Option<Filling>> {
        let Some(bytes) = snapshot.get(Space::Meta, &layout::filling_key(pattern))? else { return Ok(None) };
        let decoded = RawDocument::parse(&bytes).ok().and_then(|document| {
            let number = |name: &str| match document.get(name) {
                Some(RawValue::Int64(number)) => Some(number as u64),
                _ => None,
            };
            Some(Filling {
                collection: CollectionId(number("collection")? as u32),
                next: RecordId(number("next")?),
                fence: RecordId(number("fence")?),
                done: number("done")?,
                total: number("total")?,
            })
        });
        let corrupt = || StorageError::Corrupt("how far a pattern is filled cannot be read".to_owned());
        decoded.map(Some).ok_or_else(|| corrupt().into())
    }

    fn show(&self, job: &Job) {
        job.done.store(self.done, Ordering::Relaxed);
        job.total.store(self.total, Ordering::Relaxed);
    }

    /// The next records to visit, at most so many.
    fn records(&self, snapshot: &Snapshot, most: usize) -> Result<Vec<RecordId>> {
        records::ids(snapshot, self.collection, self.next..self.fence, Direction::Forward)
            .take(most)
            .collect()
    }
}

/// What came of a batch.
enum Batch {
    Filled,
    /// The collection was renamed meanwhile, or replaced.
    Moved,
    Last,
}

impl Engine {
    /// Fills what a new pattern maintains, in a thread of its own; the job's number.
    pub fn begin_filling(&self, pattern: &Arc<Pattern>) -> u64 {
        let job = self.enlist(pattern);
        let (id, listed) = (job.id, job.clone());
        let work = move |engine: &Engine| {
            let running = engine.operations.start(0);
            job.run_by(&running);
            let result = engine.fill_and_verify(&running, &job);
            engine.finish_job(&job, result);
        };
        if !self.spawn_job(work) {
            tracing::warn!(
                pattern = &*listed.pattern.declaration.name,
                "a pattern waits for the next start to be filled"
            );
            self.jobs.lock().retain(|other| !Arc::ptr_eq(other, &listed));
        }
        id
    }

    /// Lists a job.
    pub(crate) fn enlist(&self, pattern: &Arc<Pattern>) -> Arc<Job> {
        let job = Arc::new(Job::new(u64::from(pattern.id.0), JobKind::Fill, pattern.clone()));
        if let Ok(Some(filling)) = Filling::load(&self.store.snapshot(), pattern.id) {
            filling.show(&job);
        }
        self.jobs.lock().push(job.clone());
        job
    }

    /// Takes a job off the list, and notes why it ended early.
    pub(crate) fn finish_job(&self, job: &Arc<Job>, result: Result<()>) {
        self.jobs.lock().retain(|other| !Arc::ptr_eq(other, job));
        let reason = match result {
            Ok(()) => return,
            // The next start takes it up again.
            Err(error) if error.code() == ErrorCode::InterruptedAtShutdown => return,
            Err(_) if job.is_killed() => "the job was killed: repairPattern takes it up again".to_owned(),
            Err(error) => error.to_string(),
        };
        // The job's own operation may have been killed.
        let running = self.operations.start(0);
        let from = [PatternState::Building, PatternState::Verifying];
        if let Err(error) = self.move_pattern(&running, job.pattern.id, &from, PatternState::Failed(reason)) {
            tracing::warn!(%error, pattern = &*job.pattern.declaration.name, "could not note that a pattern has failed");
        }
    }

    /// Takes up what the last run of the server left unfinished.
    pub(crate) fn resume_filling(&self) {
        let unfinished = |pattern: &&Arc<Pattern>| {
            matches!(pattern.state, PatternState::Building | PatternState::Verifying)
        };
        for pattern in self.patterns().iter().filter(unfinished) {
            self.begin_filling(pattern);
        }
    }

    /// How far a pattern that is not finished is: documents filled, and how many there were.
    pub fn progress_of(&self, pattern: &Pattern) -> Result<Option<(u64, u64)>> {
        if !pattern.state.is_unfinished() {
            return Ok(None);
        }
        let filling = Filling::load(&self.store.snapshot(), pattern.id)?;
        Ok(filling.map(|filling| (filling.done, filling.total)))
    }

    fn fill_and_verify(&self, operation: &Arc<Operation>, job: &Job) -> Result<()> {
        self.fill(operation, job, true)?;
        let id = job.pattern.id;
        let from = [PatternState::Building, PatternState::Verifying];
        if !self.move_pattern(operation, id, &from, PatternState::Verifying)? {
            return Ok(());
        }
        let Some(pattern) = self.patterns().by_id(id).cloned() else { return Ok(()) };
        let (_, state) = self.check_filled(operation, &pattern, 0)?;
        self.move_pattern(operation, id, &from, state).map(drop)
    }

    /// Visits what is still to be visited. Where somebody waits for it, there is no pause between batches.
    pub(crate) fn fill(&self, operation: &Arc<Operation>, job: &Job, throttled: bool) -> Result<()> {
        loop {
            operation.check()?;
            let Some(pattern) = self.patterns().by_id(job.pattern.id).cloned() else { return Ok(()) };
            if pattern.state != PatternState::Building {
                return Ok(());
            }
            if let Batch::Last = self.fill_batch(operation, job, &pattern)? {
                return Ok(());
            }
            let throttle = if throttled { pattern.declaration.options.backfill.throttle_ms } else { 0 };
            job.pause(operation, Duration::from_millis(u64::from(throttle)))?;
        }
    }

    fn fill_batch(&self, operation: &Arc<Operation>, job: &Job, pattern: &Arc<Pattern>) -> Result<Batch> {
        let snapshot = self.store.snapshot();
        let Some(mut filling) = Filling::load(&snapshot, pattern.id)? else { return Ok(Batch::Last) };
        let walked = pattern.walked();
        // Whatever has taken the collection's place was written under maintenance. One that is only called otherwise is
        // still to be filled: the pattern learns of its new name a moment later than the catalog.
        let catalog = self.catalog();
        if catalog.get(walked).is_none_or(|collection| collection.id != filling.collection) {
            let moved = catalog.by_id(filling.collection).is_some();
            return Ok(if moved { Batch::Moved } else { Batch::Last });
        }
        let most = pattern.declaration.options.backfill.batch.max(1) as usize;
        let records = filling.records(&snapshot, most)?;
        drop(snapshot);
        let Some(last) = records.last() else { return Ok(Batch::Last) };
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        for record in &records {
            if !refresh(&mut unit, pattern, walked, *record, Refresh::Missing)? {
                return Ok(Batch::Moved);
            }
            job.done.fetch_add(1, Ordering::Relaxed);
        }
        filling.next = RecordId(last.0 + 1);
        filling.done += records.len() as u64;
        let noted = filling.encode().into_bytes();
        unit.transaction().put(Space::Meta, layout::filling_key(pattern.id).to_vec(), noted);
        unit.settle()?;
        filling.show(job);
        Ok(Batch::Filled)
    }

    /// Visits the records of a collection that are there now, a batch at a time; how many `visit` changed.
    pub(crate) fn visit_records(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        mut visit: impl FnMut(&mut Unit<'_>, RecordId) -> Result<bool>,
    ) -> Result<u64> {
        let Some(collection) = self.collection(namespace) else { return Ok(0) };
        let fence = RecordId(collection.shared.next_record.load(Ordering::Relaxed));
        let mut walk = Filling { collection: collection.id, next: RecordId(0), fence, done: 0, total: 0 };
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        let mut changed = 0;
        loop {
            let records = walk.records(&self.store.snapshot(), VISIT_BATCH)?;
            let Some(last) = records.last() else { break };
            walk.next = RecordId(last.0 + 1);
            for record in &records {
                operation.check()?;
                changed += u64::from(visit(&mut unit, *record)?);
            }
        }
        unit.settle()?;
        Ok(changed)
    }
}

/// Record ids that are held in memory at once.
const VISIT_BATCH: usize = 1000;

/// Makes one document's fields as they must be; false where its collection is gone.
pub(crate) fn refresh(
    unit: &mut Unit<'_>,
    pattern: &Arc<Pattern>,
    namespace: &Namespace,
    record: RecordId,
    refresh: Refresh,
) -> Result<bool> {
    loop {
        unit.operation.check()?;
        let Some(collection) = unit.enter(namespace)? else { return Ok(false) };
        let patterns = unit.engine.patterns().of(&namespace.database).to_vec().into();
        let result = match namespace == &pattern.target {
            true => refresh_document(unit, patterns, pattern, &collection, record, refresh, &put_evaluation),
            false => refresh_groups(unit, patterns, pattern, &collection, record, refresh, &put_evaluation),
        };
        match result {
            Ok(()) => return unit.written().map(|()| true),
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}
