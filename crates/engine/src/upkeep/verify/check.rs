//! One check of what a pattern maintains, as of one snapshot: compares document by document and notes what is wrong.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::Result;
use kilim_patterns::{Breach, Rules};
use kilim_query::filter::Filter;
use kilim_storage::{Durability, Snapshot};

use super::{Part, Repair, Verification};
use crate::catalog::{Collection, RecordId};
use crate::engine::Engine;
use crate::limits;
use crate::maintenance::Refresh;
use crate::maintenance::SnapshotReader;
use crate::maintenance::count_of;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::operator::ExecContext;
use crate::patches::{Audience, Patches};
use crate::patterns::Pending;
use crate::patterns::{Job, JobKind, Pattern};
use crate::plan::ReadRequest;
use crate::planner;
use crate::records::{self, Records, SCANNED_SHARE, View};
use crate::unit::Unit;
use crate::upkeep::buckets::{faults_of, mend_bucket};
use crate::upkeep::fill::refresh;
use crate::upkeep::pace::Pace;
use crate::upkeep::pages::{expected, owners_in, repage};

pub(super) struct Check<'c> {
    pub(super) engine: &'c Engine,
    pub(super) operation: &'c Arc<Operation>,
    pub(super) pattern: &'c Arc<Pattern>,
    pub(super) snapshot: Snapshot,
    pub(super) source: Option<Arc<Collection>>,
    target: Option<Arc<Collection>>,
    limit: usize,
    pub(super) found: Verification,
    pub(super) repairs: Repair,
    /// Shows the progress, if a command asked for the check.
    pub(super) job: Option<Arc<Job>>,
    /// Groups of a rollup collection whose documents are pending: a job still makes or removes them, so they are not compared.
    pub(super) pending: HashSet<Vec<u8>>,
    /// Writes the repairs.
    repair: Option<Unit<'c>>,
    pace: Pace,
}

impl<'c> Check<'c> {
    pub(super) fn new(
        engine: &'c Engine,
        operation: &'c Arc<Operation>,
        pattern: &'c Arc<Pattern>,
        limit: usize,
        repairs: Repair,
    ) -> Result<Check<'c>> {
        engine.store.settle(Durability::Relaxed)?;
        let snapshot = engine.store.snapshot();
        let pending = match pattern.inserts_parents() {
            true => crate::patterns::all_of(&snapshot, pattern.id)?.iter().map(Pending::key_bytes).collect(),
            false => HashSet::new(),
        };
        let own = |job: &&Arc<Job>| job.kind == JobKind::Verify && job.is_run_by(operation);
        let job = engine.jobs.lock().iter().find(own).cloned();
        Ok(Check {
            pace: Pace::new(engine),
            job,
            pending,
            source: pattern.source.as_ref().and_then(|source| engine.collection(source)),
            target: engine.collection(&pattern.target),
            found: Verification { as_of: snapshot.commit_time(), ..Verification::default() },
            repair: (repairs != Repair::Nothing)
                .then(|| Unit::new(engine, operation.clone(), engine.options.durability)),
            repairs,
            engine,
            operation,
            pattern,
            snapshot,
            limit,
        })
    }

    pub(super) fn run(mut self, part: Part) -> Result<Verification> {
        let pattern = self.pattern;
        if let Some(job) = &self.job {
            job.total.fetch_add(self.documents_to_see(&part)?, Ordering::Relaxed);
        }
        match (pattern.kind().rollup(), pattern.kind().rules()) {
            (Some(rollup), _) => self.check_groups(rollup, &part)?,
            (None, Some(rules)) => self.check_rules(rules, &part)?,
            (None, None) if pattern.kind().paging().is_some() => self.check_pages(&part)?,
            (None, None) if pattern.kind().bucketing().is_some() => self.check_buckets(&part)?,
            (None, None) => self.check_documents(&part)?,
        }
        if let Some(unit) = &mut self.repair {
            unit.settle()?;
        }
        Ok(self.found)
    }

    /// How many documents it will read, at most.
    fn documents_to_see(&self, part: &Part) -> Result<u64> {
        let count = |namespace: &Namespace| match self.engine.collection(namespace) {
            Some(collection) => count_of(&self.snapshot, &collection),
            None => Ok(0),
        };
        let targets = count(&self.pattern.target)?;
        match (self.pattern.kind().rollup(), &self.pattern.source) {
            (Some(_), Some(source)) if part.is_whole() => {
                Ok(self.parts()?.saturating_mul(targets.saturating_add(count(source)?)))
            }
            _ => Ok((targets as f64 * part.sample.unwrap_or(1.0)).ceil() as u64),
        }
    }

    fn note_seen(&self) {
        if let Some(job) = &self.job {
            job.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Visits the documents of a collection, as of the snapshot.
    pub(super) fn walk(
        &mut self,
        namespace: &Namespace,
        part: &Part,
        mut visit: impl FnMut(&mut Check<'c>, RecordId, RawDocument<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(collection) = self.engine.collection(namespace) else { return Ok(()) };
        let operation = self.operation.clone();
        if let Some(share) = part.sample.filter(|share| *share < SCANNED_SHARE) {
            let records = self.records_of(&collection)?;
            let end = collection.shared.next_record.load(Ordering::Relaxed);
            for record in records.chosen(share, end, self.engine.environment())? {
                operation.check()?;
                let Some(image) = records.get(record.into())? else { continue };
                let wanted = match &part.filter {
                    Some(filter) => records.matches(filter, record.into(), &image)?,
                    None => true,
                };
                if wanted {
                    self.note_seen();
                    visit(self, record, image.document())?;
                }
            }
            return Ok(());
        }
        let unit = Unit::new(self.engine, self.operation.clone(), self.engine.options.durability);
        let filter = part.filter.clone().unwrap_or_else(|| Arc::new(Filter::True));
        let request = ReadRequest { array: View::Stored, ..ReadRequest::new(filter) };
        let plan =
            crate::read::plan_for(&unit, &collection, request, &self.snapshot, Audience::Verification)?;
        let mut executor = planner::execute(plan, self.snapshot.clone());
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        for at in 1.. {
            let Some(row) = executor.next_record(&mut context)? else { break };
            if at % limits::PACE_DOCUMENTS == 0 {
                self.pace.give_way(self.engine, &operation, 0)?;
            }
            if part.sample.is_none_or(|share| self.engine.environment().random_share() < share) {
                self.note_seen();
                visit(self, row.id.record, row.document())?;
            }
        }
        Ok(())
    }

    /// The records of a collection as of the snapshot, with what is pending for them.
    pub(super) fn records_of(&self, collection: &Collection) -> Result<Records> {
        let patches = Patches::of(self.engine, collection, &self.snapshot, Audience::Verification)?;
        Ok(Records::new(collection.home(), &self.snapshot).through(patches.as_ref()))
    }

    /// Checks documents one by one.
    fn check_documents(&mut self, part: &Part) -> Result<()> {
        let pattern = self.pattern;
        self.walk(&pattern.target, part, |check, record, document| {
            check.found.checked += 1;
            let (snapshot, source) = (&check.snapshot, check.source.as_deref());
            let target = check.target.as_deref();
            let mut reader = SnapshotReader::new(snapshot, source, target, pattern)?;
            match pattern.kind().corrected(document, &mut reader)? {
                Some(expected) => check.note_wrong(record, document, &expected),
                None => Ok(()),
            }
        })
    }

    /// Checks whether documents and their pages belong together.
    fn check_pages(&mut self, part: &Part) -> Result<()> {
        let pattern = self.pattern;
        let Some(target) = self.target.clone() else { return Ok(()) };
        let Some(paged) = target.shape.paged() else { return Ok(()) };
        self.walk(&pattern.target, part, |check, record, document| {
            check.found.checked += 1;
            match expected(&check.snapshot, paged, record.into(), document)? {
                Some(expected) => check.note_wrong(record, document, &expected),
                None => Ok(()),
            }
        })?;
        if !part.is_whole() {
            return Ok(());
        }
        let records = self.records_of(&target)?;
        for owner in owners_in(&self.snapshot, paged, self.operation)? {
            if !records.has(owner)? {
                self.found.wrong += 1;
                self.note(None, "", None, None);
            }
        }
        Ok(())
    }

    /// Checks whether buckets are true, and whether as many measurements lie in them as say so.
    fn check_buckets(&mut self, part: &Part) -> Result<()> {
        let Some(target) = self.target.clone() else { return Ok(()) };
        let (home, bucketing) = (target.home(), self.pattern.kind().bucketing().cloned());
        let mut in_use = 0;
        for bucket in records::buckets(&home, &self.snapshot.clone(), None) {
            let bucket = bucket?;
            self.operation.check()?;
            let live = bucket.live().len() as u64;
            in_use += live;
            if part.sample.is_some_and(|share| self.engine.environment().random_share() >= share) {
                continue;
            }
            (0..live).for_each(|_| self.note_seen());
            self.found.checked += live;
            let faults = faults_of(bucketing.as_deref(), &home, &self.snapshot, &bucket)?;
            self.found.wrong += faults.len() as u64;
            for fault in &faults {
                let number = RawValue::Int64(bucket.number as i64);
                self.note(Some(number), "", Some(RawValue::String(fault)), None);
            }
            if !faults.is_empty() && self.repairs != Repair::Nothing {
                mend_bucket(self.engine, self.operation, &target, &bucket)?;
            }
        }
        if !part.is_whole() {
            return Ok(());
        }
        let mut sealed = 0;
        let snapshot = self.snapshot.clone();
        for (at, row) in records::slips(&snapshot, target.id, RecordId(0)).enumerate() {
            if at % 1024 == 0 {
                self.operation.check()?;
            }
            match row?.1 {
                Ok(_) => {
                    self.note_seen();
                    self.found.checked += 1;
                }
                Err(_) => sealed += 1,
            }
        }
        if sealed != in_use {
            self.found.wrong += 1;
            let fault = format!("{sealed} measurements say that they lie in buckets, which have {in_use}");
            self.note(None, "", Some(RawValue::String(&fault)), None);
        }
        Ok(())
    }

    /// Checks whether documents keep a pattern's rules: as they are, or without what other patterns maintain in them.
    fn check_rules(&mut self, rules: &dyn Rules, part: &Part) -> Result<()> {
        let pattern = self.pattern;
        let registry = self.engine.patterns();
        self.walk(&pattern.target, part, |check, _, document| {
            check.found.checked += 1;
            let Some(breach) = rules.breach(document)? else { return Ok(()) };
            if let Some(bare) = registry.without_maintained(&pattern.target, document)?
                && rules.breach(bare.as_raw())?.is_none()
            {
                return Ok(());
            }
            check.found.wrong += 1;
            if check.found.examples.len() < check.limit {
                check.found.examples.push(example_of(document, &breach));
            }
            Ok(())
        })
    }

    pub(super) fn note_wrong(
        &mut self,
        record: RecordId,
        stored: RawDocument<'_>,
        expected: &Document,
    ) -> Result<()> {
        self.found.wrong += 1;
        for path in self.pattern.declaration.maintained_paths() {
            let (is, should) = (value_at(stored, &path), value_at(expected.as_raw(), &path));
            let bytes = |value: &Option<Value>| value.clone().map(|value| doc! {"": value}.into_bytes());
            if bytes(&is) != bytes(&should) {
                self.note(
                    stored.get("_id"),
                    &path,
                    is.as_ref().map(Value::as_raw),
                    should.as_ref().map(Value::as_raw),
                );
            }
        }
        let pattern = self.pattern;
        self.refresh(&pattern.target, record)
    }

    pub(super) fn note(
        &mut self,
        id: Option<RawValue<'_>>,
        path: &str,
        stored: Option<RawValue<'_>>,
        expected: Option<RawValue<'_>>,
    ) {
        if self.found.examples.len() >= self.limit {
            return;
        }
        let mut example = Document::new();
        example.push("_id", id.map_or(Value::Null, RawValue::to_value));
        example.push("path", path);
        for (name, value) in [("stored", stored), ("expected", expected)] {
            if let Some(value) = value {
                example.push(name, value.to_value());
            }
        }
        self.found.examples.push(example);
    }

    pub(super) fn refresh(&mut self, namespace: &Namespace, record: RecordId) -> Result<()> {
        self.refresh_as(namespace, record, Refresh::All)
    }

    pub(super) fn refresh_as(&mut self, namespace: &Namespace, record: RecordId, how: Refresh) -> Result<()> {
        match &mut self.repair {
            Some(unit) if self.pattern.kind().paging().is_some() => {
                repage(unit, self.pattern, record).map(drop)
            }
            Some(unit) => refresh(unit, self.pattern, namespace, record, how).map(drop),
            None => Ok(()),
        }
    }
}

/// A document that breaks a rule, as an example.
fn example_of(document: RawDocument<'_>, breach: &Breach) -> Document {
    let mut example = Document::new();
    example.push("_id", document.get("_id").map_or(Value::Null, RawValue::to_value));
    example.push("path", &*breach.path);
    if let Some(stored) = value_at(document, &breach.path) {
        example.push("stored", stored);
    }
    if let Some(expected) = &breach.expected {
        example.push("expected", expected.clone());
    }
    if let Some(variant) = &breach.variant {
        example.push("variant", &**variant);
    }
    example.push("rule", &*breach.rule);
    example
}

/// The value at a path. If the path leads into an array, the array.
fn value_at(document: RawDocument<'_>, path: &str) -> Option<Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (document.get(first)?, rest) {
        (RawValue::Document(nested), Some(rest)) => value_at(nested, rest),
        (RawValue::Array(array), Some(_)) => Some(RawValue::Array(array).to_value()),
        (_, Some(_)) => None,
        (value, None) => Some(value.to_value()),
    }
}
