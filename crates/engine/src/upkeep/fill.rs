//! Filling: computes the fields of documents from before a pattern was declared, and of those that a check found wrong.
//!
//! Each document is evaluated like a document that is written now, with the same locks, so filling and writers can run at the
//! same time. Documents are visited in the order of their record ids, up to the last one that existed when the pattern was
//! put in force. Later documents are maintained from their insertion, so filling ends however many are inserted. The commit
//! of each batch notes how far the filling is. A restart goes on from there, and memory holds only the ids of one batch.
//!
//! After the filling the whole pattern is verified. Then it is active.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{ErrorCode, Result, StorageError};
use kilim_storage::{Direction, Durability, Snapshot, Space};

use super::buckets::rebucket;
use super::pace::Pace;
use super::pages::repage;
use super::versions::restate;
use crate::catalog::{Collection, CollectionId, RecordId};
use crate::engine::Engine;
use crate::fail_point::Moment;
use crate::ids::PatternId;
use crate::maintenance::{Refresh, is_noted, note_all, refresh_document, refresh_groups};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Job, JobKind, Pattern, PatternState};
use crate::unit::Unit;
use crate::write::door::put_evaluation;
use crate::{layout, limits, records};

/// How far a pattern is filled, as it lies in `meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filling {
    collection: CollectionId,
    /// Records from here on are still to be visited.
    next: RecordId,
    /// Records from here on were inserted when the pattern was in force already.
    fence: RecordId,
    /// Records before this one were filled before the pattern was paused.
    kept: RecordId,
    pub done: u64,
    pub total: u64,
}

impl Filling {
    /// A filling of all documents that exist now. The caller holds the collection, so no record is inserted meanwhile.
    pub fn begin(engine: &Engine, walked: Option<Arc<Collection>>) -> Result<Filling> {
        let (collection, fence, total) = match walked {
            Some(collection) => {
                let fence = collection.shared.next_record.load(Ordering::Relaxed);
                let counter = collection.home().counts(&engine.store.snapshot())?;
                (collection.id, fence, counter.count.max(0) as u64)
            }
            None => (CollectionId(0), 0, 0),
        };
        let (next, kept, fence) = (RecordId(0), RecordId(0), RecordId(fence));
        Ok(Filling { collection, next, fence, kept, done: 0, total })
    }

    /// The same for a pattern that is resumed: what it had filled when it was paused is known to be filled.
    pub fn resuming(self, paused: Option<Filling>) -> Filling {
        let kept = paused.filter(|paused| paused.collection == self.collection).map(|paused| paused.next);
        Filling { kept: kept.unwrap_or(RecordId(0)), ..self }
    }

    /// How far a pattern that is paused was filled, given how far it was if it was being filled.
    pub fn paused(self, unfinished: Option<Filling>) -> Filling {
        unfinished.unwrap_or(Filling { next: self.fence, ..self })
    }

    pub fn encode(&self) -> Document {
        doc! {
            "collection": i64::from(self.collection.0),
            "next": self.next.0 as i64,
            "fence": self.fence.0 as i64,
            "kept": self.kept.0 as i64,
            "done": self.done as i64,
            "total": self.total as i64,
        }
    }

    /// None if nothing is to be filled.
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
                // Data of earlier versions has none.
                kept: RecordId(number("kept").unwrap_or(0)),
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

/// How a batch of the filling ended.
enum Batch {
    Filled,
    /// The collection was renamed or replaced meanwhile. The next batch finds out which.
    Moved,
    Last,
}

impl Engine {
    /// Begins a job that fills a pattern. Gives the job's number.
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

    /// Makes the job that fills a pattern, and lists it.
    pub(crate) fn enlist(&self, pattern: &Arc<Pattern>) -> Arc<Job> {
        let job =
            Arc::new(Job::new(u64::from(pattern.id.0), JobKind::Fill, pattern.clone(), self.environment()));
        if let Ok(Some(filling)) = Filling::load(&self.store.snapshot(), pattern.id) {
            filling.show(&job);
        }
        self.jobs.lock().push(job.clone());
        job
    }

    /// Takes a job off the list. If it failed, notes the reason in the pattern's state.
    pub(crate) fn finish_job(&self, job: &Arc<Job>, result: Result<()>) {
        self.jobs.lock().retain(|other| !Arc::ptr_eq(other, job));
        self.operations.note_pattern_moved();
        let reason = match result {
            Ok(()) => return,
            // The next start takes it up again.
            Err(error) if error.code() == ErrorCode::InterruptedAtShutdown => return,
            Err(_) if job.is_killed() => "the job was killed: repairPattern takes it up again".to_owned(),
            Err(error) => error.to_string(),
        };
        // The job's own operation may have been killed, so another one notes it.
        let running = self.operations.start(0);
        let from = [PatternState::Building, PatternState::Verifying];
        if let Err(error) = self.move_pattern(&running, job.pattern.id, &from, PatternState::Failed(reason)) {
            tracing::warn!(%error, pattern = &*job.pattern.declaration.name, "could not note that a pattern has failed");
        }
    }

    /// Goes on with fillings that the last run of the server did not finish.
    pub(crate) fn resume_filling(&self) {
        let unfinished = |pattern: &&Arc<Pattern>| {
            matches!(pattern.state, PatternState::Building | PatternState::Verifying)
        };
        for pattern in self.patterns().iter().filter(unfinished) {
            self.begin_filling(pattern);
        }
    }

    /// How far the filling of a pattern is: documents filled, and documents to fill.
    pub fn progress_of(&self, pattern: &Pattern) -> Result<Option<(u64, u64)>> {
        if !pattern.state.is_unfinished() {
            return Ok(None);
        }
        let filling = Filling::load(&self.store.snapshot(), pattern.id)?;
        Ok(filling.map(|filling| (filling.done, filling.total)))
    }

    fn fill_and_verify(&self, operation: &Arc<Operation>, job: &Job) -> Result<()> {
        let id = job.pattern.id;
        let from = [PatternState::Building, PatternState::Verifying];
        loop {
            self.fill(operation, job, true)?;
            if !self.move_pattern(operation, id, &from, PatternState::Verifying)? {
                return Ok(());
            }
            let Some(pattern) = self.patterns().by_id(id).cloned() else { return Ok(()) };
            self.moments.pass(Moment::Filled);
            let (_, state) = self.check_filled(operation, &pattern, 0)?;
            // Otherwise the check may have seen another collection under the old name.
            if self.is_unchanged(&pattern) {
                return self.move_pattern(operation, id, &from, state).map(drop);
            }
        }
    }

    /// Visits all documents that are still to be visited. `throttled`: it pauses between batches, as the pattern's
    /// `backfill.throttleMs` says. If a command waits for it, it does not pause.
    pub(crate) fn fill(&self, operation: &Arc<Operation>, job: &Job, throttled: bool) -> Result<()> {
        let mut pace = Pace::new(self);
        loop {
            operation.check()?;
            let Some(pattern) = self.patterns().by_id(job.pattern.id).cloned() else { return Ok(()) };
            let step = pattern.kind().version_step();
            // Rules fill nothing, nor do versions that are to be stored when they are written.
            let fills_nothing =
                pattern.kind().rules().is_some() || step.is_some_and(|step| !step.in_background);
            if pattern.state != PatternState::Building || fills_nothing {
                return Ok(());
            }
            let backfill = &pattern.declaration.options.backfill;
            let throttle_ms = step.map_or(backfill.throttle_ms, |step| step.throttle_ms);
            if let Batch::Last = self.fill_batch(operation, job, &pattern, &mut pace)? {
                let mut unit = Unit::new(self, operation.clone(), self.options.durability);
                note_all(&mut unit, &pattern);
                return unit.settle();
            }
            let throttle = if throttled { throttle_ms } else { 0 };
            job.pause(operation, Duration::from_millis(u64::from(throttle)))?;
        }
    }

    /// Its commits are small and wait for no sync, so that those of others hardly wait for them. What a crash takes back, how
    /// far the filling is among it, is filled again.
    fn fill_batch(
        &self,
        operation: &Arc<Operation>,
        job: &Job,
        pattern: &Arc<Pattern>,
        pace: &mut Pace,
    ) -> Result<Batch> {
        let snapshot = self.store.snapshot();
        let Some(mut filling) = Filling::load(&snapshot, pattern.id)? else { return Ok(Batch::Last) };
        let walked = pattern.walked();
        // If the name now means another collection, that one's documents were inserted when the pattern was in force, and
        // nothing is left to fill. But if the collection was only renamed, it is still to be filled: the catalog has the new
        // name a moment before the pattern has it.
        let catalog = self.catalog();
        if catalog.get(walked).is_none_or(|collection| collection.id != filling.collection) {
            let moved = catalog.by_id(filling.collection).is_some();
            return Ok(if moved { Batch::Moved } else { Batch::Last });
        }
        let step = pattern.kind().version_step();
        let most = step.map_or(pattern.declaration.options.backfill.batch, |step| step.batch).max(1) as usize;
        let records = filling.records(&snapshot, most)?;
        drop(snapshot);
        let Some(last) = records.last() else { return Ok(Batch::Last) };
        self.moments.pass(Moment::BatchFound);
        let mut unit = Unit::new(self, operation.clone(), Durability::Relaxed);
        for (at, record) in records.iter().enumerate() {
            if at > 0 && at.is_multiple_of(limits::PACE_DOCUMENTS) {
                unit.settle()?;
                pace.give_way(self, operation, 1)?;
            }
            let how = if *record < filling.kept { Refresh::Resumed } else { Refresh::Missing };
            let is_there = match step {
                Some(_) => restate(&mut unit, walked, *record)?.is_some(),
                None if pattern.kind().paging().is_some() => repage(&mut unit, pattern, *record)?.is_some(),
                None if pattern.kind().bucketing().is_some() => {
                    rebucket(&mut unit, walked, *record)?.is_some()
                }
                None => refresh(&mut unit, pattern, walked, *record, how)?,
            };
            if !is_there {
                return Ok(Batch::Moved);
            }
            job.done.fetch_add(1, Ordering::Relaxed);
        }
        if !self.is_unchanged(pattern) {
            return Ok(Batch::Moved);
        }
        filling.next = RecordId(last.0 + 1);
        filling.done += records.len() as u64;
        let noted = filling.encode().into_bytes();
        unit.transaction().put(Space::Meta, layout::filling_key(pattern.id).to_vec(), noted);
        unit.settle()?;
        pace.give_way(self, operation, 1)?;
        filling.show(job);
        Ok(Batch::Filled)
    }

    /// Visits all documents of a tree that was found true without being filled, to note what is noted of it.
    pub(crate) fn complete_notes(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<()> {
        if is_noted(&self.store.snapshot(), pattern)? {
            return Ok(());
        }
        self.visit_records(operation, &pattern.target, |unit, record| {
            refresh(unit, pattern, &pattern.target, record, Refresh::Missing)
        })?;
        if !self.is_unchanged(pattern) {
            return Ok(());
        }
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        note_all(&mut unit, pattern);
        unit.settle()
    }

    /// Visits the records that a collection has now, a batch at a time. Gives how many `visit` changed.
    pub(crate) fn visit_records(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        mut visit: impl FnMut(&mut Unit<'_>, RecordId) -> Result<bool>,
    ) -> Result<u64> {
        let Some(collection) = self.collection(namespace) else { return Ok(0) };
        let fence = RecordId(collection.shared.next_record.load(Ordering::Relaxed));
        let first = RecordId(0);
        let mut walk =
            Filling { collection: collection.id, next: first, fence, kept: first, done: 0, total: 0 };
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

/// Computes the pattern's fields of one document and writes them if they differ. False if its collection is gone, or the
/// pattern is another by now: its collections may have other names.
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
        if !unit.engine.is_unchanged(pattern) {
            return Ok(false);
        }
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
