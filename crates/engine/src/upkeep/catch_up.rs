//! How a job writes what is pending.
//!
//! The job walks the holders of a source in pages. Each page is one commit, and the pattern's `backfill` says how fast they
//! follow. For each holder the job takes its intent and reads, as of the newest commit, what is due to it. The record of what
//! is pending is removed when a walk ends that began with the same version of it. If the record was replaced meanwhile, there
//! is another walk. So a job can be interrupted anywhere, and two jobs can walk at the same time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kilim_error::Result;
use kilim_patterns::{Rollup, Sight};
use kilim_storage::{Durability, Space};

use crate::catalog::{Collection, RecordId};
use crate::engine::Engine;
use crate::layout;
use crate::maintenance::Group;
use crate::maintenance::HolderWalk;
use crate::maintenance::catch_up_holder;
use crate::operation::Operation;
use crate::patterns::{Job, JobKind, Pattern, Pending};
use crate::records::Records;
use crate::unit::{Unit, pending};
use crate::write::door::put_evaluation;

impl Engine {
    /// Writes all of this, one source or group after the other.
    pub(crate) fn write_pending(
        &self,
        operation: &Arc<Operation>,
        job: &Job,
        pattern: &Arc<Pattern>,
        all: &[Pending],
        throttle: Duration,
    ) -> Result<()> {
        let total: u64 = all.iter().map(|pending| pending.documents).sum();
        let (done, _) = job.progress();
        job.total.store(done + total, Ordering::Relaxed);
        let catching_up = CatchUp { engine: self, operation, job, pattern, throttle };
        match pattern.kind().rollup() {
            Some(rollup) => catching_up.groups(rollup, all),
            None => all.iter().try_for_each(|pending| catching_up.holders(pending)),
        }
    }

    /// Writes what is pending of a pattern now, for a command that cannot wait for the job.
    pub fn finish_pending(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<()> {
        let job = Job::new(0, JobKind::FanOut, pattern.clone(), self.environment());
        loop {
            operation.check()?;
            self.store.settle(Durability::Relaxed)?;
            let all = crate::patterns::all_of(&self.store.snapshot(), pattern.id)?;
            if all.is_empty() || self.patterns().by_id(pattern.id).is_none() {
                return Ok(());
            }
            self.write_pending(operation, &job, pattern, &all, Duration::ZERO)?;
        }
    }
}

struct CatchUp<'c> {
    engine: &'c Engine,
    operation: &'c Arc<Operation>,
    job: &'c Job,
    pattern: &'c Arc<Pattern>,
    /// How long it rests after each commit.
    throttle: Duration,
}

/// A job's pattern and its target, as they are at one moment.
struct Current {
    pattern: Arc<Pattern>,
    /// None if the collection does not exist.
    target: Option<Arc<Collection>>,
}

impl CatchUp<'_> {
    fn check(&self) -> Result<()> {
        self.operation.check()?;
        self.job.check()
    }

    fn rest(&self) -> Result<()> {
        self.job.rest(self.operation, self.throttle)
    }

    /// The pattern and its target as they are now: both may have been renamed. None if the pattern was dropped.
    fn current(&self) -> Option<Current> {
        let (catalog, registry) = self.engine.in_force();
        let pattern = registry.by_id(self.pattern.id)?.clone();
        let target = catalog.get(&pattern.target).cloned();
        Some(Current { pattern, target })
    }

    /// Enters the pattern's target. None if the pattern was dropped.
    fn enter(&self, unit: &mut Unit<'_>) -> Result<Option<Current>> {
        loop {
            self.check()?;
            let Some(Current { pattern, target }) = self.current() else { return Ok(None) };
            // From here on the collection is held and cannot be renamed.
            let entered = unit.enter(&pattern.target)?;
            if entered.as_ref().map(|entered| entered.id) == target.map(|target| target.id) {
                return Ok(Some(Current { pattern, target: entered }));
            }
        }
    }

    /// Writes the holders of one source. If the pattern was dropped or replaced meanwhile, the record of what is pending is
    /// left alone: another definition may have taken it over.
    fn holders(&self, pending: &Pending) -> Result<()> {
        let kind = self.pattern.kind();
        let batch = self.pattern.declaration.options.backfill.batch.max(1) as usize;
        let mut unit = Unit::new(self.engine, self.operation.clone(), self.engine.options.durability);
        let mut position = None;
        loop {
            self.check()?;
            let snapshot = self.engine.store.snapshot();
            let Some(Current { target, .. }) = self.current() else { return Ok(()) };
            let Some(collection) = target else { break };
            let key = pending.key.as_raw();
            let mut walk = HolderWalk::open(&collection, kind, key, &snapshot, position.take());
            let records = Records::new(collection.home(), &snapshot);
            let mut page: Vec<RecordId> = Vec::new();
            let mut ended = false;
            while page.len() < batch {
                let Some(record) = walk.next()? else {
                    ended = true;
                    break;
                };
                self.check()?;
                self.job.done.fetch_add(1, Ordering::Relaxed);
                let Some(holder) = records.get(record.into())? else { continue };
                // A holder that has the right value is skipped. If another value becomes due, there is another walk.
                if !matches!(kind.becomes(holder.document(), key, &pending.due)?, Sight::AsStored) {
                    page.push(record);
                }
            }
            position = walk.position();
            if !page.is_empty() {
                for record in page {
                    if !self.holder(&mut unit, record, pending)? {
                        return Ok(());
                    }
                }
                unit.settle()?;
                self.rest()?;
            }
            if ended {
                break;
            }
        }
        self.forget(&mut unit, pending)
    }

    /// Writes one holder. False if the pattern was dropped.
    fn holder(&self, unit: &mut Unit<'_>, record: RecordId, pending: &Pending) -> Result<bool> {
        loop {
            let Some(Current { pattern, target }) = self.enter(unit)? else { return Ok(false) };
            let Some(collection) = target else { return Ok(true) };
            match catch_up_holder(unit, &pattern, &collection, record, pending, &put_evaluation) {
                Ok(()) => return unit.written().map(|()| true),
                Err(error) if unit.can_retry(&error)? => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the record of what is pending, unless it was replaced meanwhile.
    fn forget(&self, unit: &mut Unit<'_>, pending: &Pending) -> Result<()> {
        let key_bytes = pending.key_bytes();
        let place = layout::pending_key(self.pattern.id, &key_bytes);
        loop {
            self.check()?;
            let held = unit.hold_alone(Space::Meta, &place);
            match held.and_then(|()| pending::newest(unit, self.pattern.id, &key_bytes)) {
                Ok(newest) => {
                    if newest.is_some_and(|newest| newest.version == pending.version) {
                        unit.transaction().delete(Space::Meta, &place);
                    }
                    return self.settle(unit);
                }
                Err(error) if unit.can_retry(&error)? => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Shows the states of groups in their parents, a page in each commit.
    fn groups(&self, rollup: &Rollup, all: &[Pending]) -> Result<()> {
        let batch = self.pattern.declaration.options.backfill.batch.max(1) as usize;
        let mut unit = Unit::new(self.engine, self.operation.clone(), self.engine.options.durability);
        for page in all.chunks(batch) {
            for pending in page {
                loop {
                    let Some(Current { pattern, .. }) = self.enter(&mut unit)? else {
                        return self.settle(&mut unit);
                    };
                    match Group::new(&pattern, rollup, pending.key.as_raw())
                        .catch_up(&mut unit, &put_evaluation)
                    {
                        Ok(()) => break,
                        Err(error) if unit.can_retry(&error)? => {}
                        Err(error) => return Err(error),
                    }
                }
                unit.written()?;
                self.job.done.fetch_add(1, Ordering::Relaxed);
            }
            self.settle(&mut unit)?;
            self.rest()?;
        }
        self.settle(&mut unit)
    }

    /// Commits, and tells those who wait for what is pending no more.
    fn settle(&self, unit: &mut Unit<'_>) -> Result<()> {
        unit.settle()?;
        self.engine.operations.note_pattern_moved();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineOptions;
    use crate::namespace::Namespace;
    use crate::patterns::PatternState;
    use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
    use kilim_patterns::{Declaration, Due};

    fn namespace(collection: &str) -> Namespace {
        Namespace { database: "test".to_owned(), collection: collection.to_owned() }
    }

    fn fill(engine: &Engine, pattern: &Arc<Pattern>) {
        engine.begin_filling(pattern);
        while engine.patterns().by_id(pattern.id).unwrap().state != PatternState::Active {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_job_that_outlives_its_pattern_writes_nothing() {
        let options = EngineOptions {
            data: None,
            durability: Durability::Relaxed,
            storage: kilim_storage::Options::default(),
            test_commands: false,
        };
        let engine = Engine::open(options).unwrap();
        let running = engine.operations.start(1);
        let insert = |collection: &str, documents: &[Document]| {
            let raw: Vec<RawDocument<'_>> = documents.iter().map(Document::as_raw).collect();
            let mut unit = Unit::new(&engine, Arc::clone(&running), Durability::Relaxed);
            crate::write::insert(&mut unit, &namespace(collection), &raw, true, |at| at as i32).unwrap();
            unit.settle().unwrap();
        };
        insert("products", &[doc! {"_id": 1}]);
        insert("reviews", &[doc! {"_id": 1, "productId": 1}, doc! {"_id": 2, "productId": 1}]);
        let recent = doc! {"name": "recent", "subset": {
            "from": "reviews", "foreignField": "productId", "as": "recent", "sort": {"_id": 1}, "limit": 1,
        }};
        let declaration = Declaration::parse("products", recent.as_raw()).unwrap();
        let old = engine.create_pattern(&running, "test", declaration).unwrap();
        fill(&engine, &old);
        let longer = doc! {"subset": {
            "from": "reviews", "foreignField": "productId", "as": "recent", "sort": {"_id": 1}, "limit": 2,
        }};
        let new = engine.modify_pattern(&running, &old, longer.as_raw()).unwrap();
        fill(&engine, &new);

        let found =
            Pending { key: Value::Int32(1), version: 1, due: Due::Group(None), documents: 1, since: 0 };
        let job = Job::new(0, JobKind::FanOut, old.clone(), engine.environment());
        engine.write_pending(&running, &job, &old, &[found], Duration::ZERO).unwrap();

        let products = engine.collection(&namespace("products")).unwrap();
        let products = Records::new(products.home(), &engine.store.snapshot());
        let product = products.get(RecordId(1).into()).unwrap().unwrap();
        assert_eq!(product.document().get("recent").and_then(RawValue::as_array).unwrap().iter().count(), 2);
    }
}
