//! Verification: what a pattern maintains, computed again from its sources and compared.
//!
//! Everything is read as of one snapshot. A write and what it means for patterns are one commit, so whatever differs
//! there is wrong, however busy the collections are meanwhile. Repair makes each wrong document anew by the same
//! work as any write, as of the newest commit.
//!
//! Groups are checked by parts: the children of a part are read in one walk, then the parents are compared with
//! them. So memory is bounded by a part, and a whole collection costs a walk for each.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, Path, RawDocument, RawValue, Value, doc, encode_value};
use kilim_error::Result;
use kilim_patterns::{Derived, Kind, Reference, Rollup, Row};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::{CommitTime, Durability, Snapshot, Space};

use super::fill::{Refresh, refresh};
use super::groups::rows;
use super::look::find_by_unique;
use super::pending::{self, Pending};
use super::sample::{SCANNED_SHARE, chosen};
use super::sources::{document_of, unique_index};
use super::states::{self, not_ready};
use super::{Audience, Job, JobKind, Pattern, PatternState};
use crate::catalog::{Collection, RecordId};
use crate::engine::Engine;
use crate::layout;
use crate::limits;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::operator::{self, ExecContext};
use crate::planner::ReadRequest;
use crate::write::Unit;

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

struct Check<'c> {
    engine: &'c Engine,
    operation: &'c Arc<Operation>,
    pattern: &'c Arc<Pattern>,
    snapshot: Snapshot,
    source: Option<Arc<Collection>>,
    limit: usize,
    found: Verification,
    repairs: Repair,
    /// What shows how far it is, where somebody asked for the check.
    job: Option<Arc<Job>>,
    /// Groups of a rollup collection whose documents a job still makes or removes: nothing stands for those meanwhile.
    late: HashSet<Vec<u8>>,
    /// What repairs are written with.
    repair: Option<Unit<'c>>,
}

/// The rows of one group.
struct Members {
    key: Value,
    rows: Vec<Row>,
    /// One of the children.
    child: RecordId,
    has_parent: bool,
}

impl<'c> Check<'c> {
    fn new(
        engine: &'c Engine,
        operation: &'c Arc<Operation>,
        pattern: &'c Arc<Pattern>,
        limit: usize,
        repairs: Repair,
    ) -> Result<Check<'c>> {
        engine.store.settle(Durability::Relaxed)?;
        let snapshot = engine.store.snapshot();
        let late = match pattern.inserts_parents() {
            true => pending::all_of(&snapshot, pattern.id)?.iter().map(Pending::key_bytes).collect(),
            false => HashSet::new(),
        };
        let own = |job: &&Arc<Job>| job.kind == JobKind::Verify && job.is_run_by(operation);
        let job = engine.jobs.lock().iter().find(own).cloned();
        Ok(Check {
            job,
            late,
            source: pattern.source.as_ref().and_then(|source| engine.collection(source)),
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

    fn run(mut self, part: Part) -> Result<Verification> {
        let pattern = self.pattern;
        if let Some(job) = &self.job {
            job.total.fetch_add(self.documents_to_see(&part)?, Ordering::Relaxed);
        }
        match &pattern.declaration.kind {
            Kind::Reference(reference) => self.check_copies(reference, &part)?,
            Kind::Rollup(rollup) => self.check_groups(rollup, &part)?,
            Kind::Derived(derived) => self.check_derived(derived, &part)?,
        }
        if let Some(unit) = &mut self.repair {
            unit.settle()?;
        }
        Ok(self.found)
    }

    /// How many documents it will look at, at most.
    fn documents_to_see(&self, part: &Part) -> Result<u64> {
        let count = |namespace: &Namespace| -> Result<u64> {
            let Some(collection) = self.engine.collection(namespace) else { return Ok(0) };
            Ok(self.snapshot.counter(&layout::counter_key(collection.id))?.count.max(0) as u64)
        };
        let targets = count(&self.pattern.target)?;
        match (&self.pattern.declaration.kind, &self.pattern.source) {
            (Kind::Rollup(_), Some(source)) if part.is_whole() => {
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
    fn walk(
        &mut self,
        namespace: &Namespace,
        part: &Part,
        mut visit: impl FnMut(&mut Check<'c>, RecordId, RawDocument<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(collection) = self.engine.collection(namespace) else { return Ok(()) };
        let operation = self.operation.clone();
        match part.sample {
            Some(share) if share < SCANNED_SHARE => {
                for record in chosen(&collection, &self.snapshot, share)? {
                    operation.check()?;
                    let key = layout::record_key(collection.id, record);
                    let Some(stored) = self.snapshot.get(Space::Records, &key)? else { continue };
                    let document = document_of(&collection, &stored);
                    let wanted = match &part.filter {
                        Some(filter) => filter.matches(document.as_raw())?,
                        None => true,
                    };
                    if wanted {
                        self.note_seen();
                        visit(self, record, document.as_raw())?;
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        let unit = Unit::new(self.engine, self.operation.clone(), self.engine.options.durability);
        let request = ReadRequest::new(part.filter.clone().unwrap_or_else(|| Arc::new(Filter::True)));
        let plan =
            crate::read::plan_for(&unit, &collection, request, &self.snapshot, Audience::Verification)?;
        let mut executor = operator::execute(plan, self.snapshot.clone());
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        while let Some(row) = executor.next_record(&mut context)? {
            if part.sample.is_none_or(|share| rand::random::<f64>() < share) {
                self.note_seen();
                visit(self, row.record, row.document())?;
            }
        }
        Ok(())
    }

    fn check_copies(&mut self, reference: &Reference, part: &Part) -> Result<()> {
        let pattern = self.pattern;
        self.walk(&pattern.target, part, |check, record, holder| {
            check.found.checked += 1;
            let expected = reference.corrected(holder, &mut |key| check.source_of(reference, key))?;
            match expected {
                Some(expected) => check.note_wrong(record, holder, &expected),
                None => Ok(()),
            }
        })
    }

    /// The source with this key.
    fn source_of(&self, reference: &Reference, key: RawValue<'_>) -> Result<Option<Document>> {
        let Some(collection) = &self.source else { return Ok(None) };
        let Some(index) = unique_index(collection, &reference.foreign_field) else { return Ok(None) };
        let mut bytes = Vec::new();
        encode_value(&mut bytes, key, index.spec.key[0].descending);
        let entry = layout::unique_entry(index.id, &bytes);
        let Some(value) = self.snapshot.get(Space::Index, &entry)? else { return Ok(None) };
        let record = layout::record_key(collection.id, layout::record_id_of(&value[..8]));
        let stored = self.snapshot.get(Space::Records, &record)?;
        Ok(stored.map(|stored| document_of(collection, &stored)))
    }

    fn check_derived(&mut self, derived: &Derived, part: &Part) -> Result<()> {
        let pattern = self.pattern;
        self.walk(&pattern.target, part, |check, record, document| {
            check.found.checked += 1;
            match derived.apply(document) {
                Some(expected) => check.note_wrong(record, document, &expected),
                None => Ok(()),
            }
        })
    }

    fn check_groups(&mut self, rollup: &Rollup, part: &Part) -> Result<()> {
        let pattern = self.pattern;
        // Of a few parents the children are looked up.
        if let (false, Some(field)) = (part.is_whole(), rollup.key_field()) {
            self.walk(&pattern.target, part, |check, record, parent| {
                let rows = match rollup.key_of_parent(parent) {
                    Some(key) => check.members_of(rollup, field, key)?,
                    None => Vec::new(),
                };
                check.check_parent(rollup, record, parent, &rows)
            })?;
            return match (part.sample, &pattern.source) {
                (Some(_), Some(source)) if pattern.inserts_parents() => {
                    let part = Part { filter: None, sample: part.sample };
                    self.walk(source, &part, |check, record, child| {
                        check.check_has_parents(rollup, field, record, child)
                    })
                }
                _ => Ok(()),
            };
        }
        let parts = self.parts()?;
        for number in 0..parts {
            let mut groups = self.groups_of(rollup, number, parts)?;
            self.walk(&pattern.target, part, |check, record, parent| {
                let key = rollup.key_of_parent(parent);
                let key = key.map_or(Vec::new(), |key| Rollup::key_bytes(key.as_raw()));
                if part_of(&key, parts) != number {
                    return Ok(());
                }
                match groups.get_mut(&key) {
                    Some(group) => {
                        group.has_parent = true;
                        check.check_parent(rollup, record, parent, &group.rows)
                    }
                    None => check.check_parent(rollup, record, parent, &[]),
                }
            })?;
            if pattern.inserts_parents() && part.is_whole() {
                for group in groups.values().filter(|group| !group.has_parent) {
                    self.note_absent(rollup, group)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the groups of a child have the documents that are made for them.
    fn check_has_parents(
        &mut self,
        rollup: &Rollup,
        field: &str,
        child: RecordId,
        document: RawDocument<'_>,
    ) -> Result<()> {
        let target = self.engine.collection(&self.pattern.target);
        for row in rows(rollup, Some(document)) {
            let found = match &target {
                Some(target) => find_by_unique(&self.snapshot, target, &rollup.on, row.key.as_raw())?,
                None => None,
            };
            if found.is_none() {
                let rows = self.members_of(rollup, field, row.key.clone())?;
                self.note_absent(rollup, &Members { key: row.key, rows, child, has_parent: false })?;
            }
        }
        Ok(())
    }

    /// How many parts keep each within bounds.
    fn parts(&self) -> Result<u64> {
        let Some(source) = &self.source else { return Ok(1) };
        let size = self.snapshot.counter(&layout::counter_key(source.id))?;
        let of = |size: i64, most: u64| size.max(0) as u64 / most;
        let parts =
            of(size.count, limits::VERIFY_PART_DOCUMENTS).max(of(size.bytes, limits::VERIFY_PART_BYTES));
        Ok(parts + 1)
    }

    /// The groups of one part, by their keys.
    fn groups_of(&mut self, rollup: &Rollup, part: u64, parts: u64) -> Result<HashMap<Vec<u8>, Members>> {
        let mut groups: HashMap<Vec<u8>, Members> = HashMap::new();
        let Some(source) = self.pattern.source.clone() else { return Ok(groups) };
        self.walk(&source, &Part::default(), |_, record, child| {
            for row in rows(rollup, Some(child)) {
                if part_of(&row.key_bytes, parts) == part {
                    let group = groups.entry(row.key_bytes.clone()).or_insert_with(|| Members {
                        key: row.key.clone(),
                        rows: Vec::new(),
                        child: record,
                        has_parent: false,
                    });
                    group.rows.push(row);
                }
            }
            Ok(())
        })?;
        Ok(groups)
    }

    /// The rows of one group, found by its key.
    fn members_of(&mut self, rollup: &Rollup, field: &str, key: Value) -> Result<Vec<Row>> {
        let Some(source) = self.pattern.source.clone() else { return Ok(Vec::new()) };
        let key_bytes = Rollup::key_bytes(key.as_raw());
        let predicate = Predicate::Compare(Comparison::Eq, key.into());
        let filter = Filter::Field { path: Path::parse(field), predicate };
        let mut found: Vec<(RecordId, Row)> = Vec::new();
        let part = Part { filter: Some(Arc::new(filter)), sample: None };
        // These are seen for the sake of one that counts.
        let job = self.job.take();
        let walked = self.walk(&source, &part, |_, record, child| {
            let own = rows(rollup, Some(child)).into_iter().filter(|row| row.key_bytes == key_bytes);
            found.extend(own.map(|row| (record, row)));
            Ok(())
        });
        self.job = job;
        walked?;
        found.sort_by_key(|(record, _)| *record);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }

    fn check_parent(
        &mut self,
        rollup: &Rollup,
        record: RecordId,
        parent: RawDocument<'_>,
        rows: &[Row],
    ) -> Result<()> {
        self.found.checked += 1;
        let expected = match rollup.key_of_parent(parent) {
            Some(key) => rollup.merged(parent, key.as_raw(), &rollup.group_of(key.as_raw(), rows)?)?,
            None => rollup.restored(RawDocument::empty(), parent),
        };
        let is_late = |key: Value| self.late.contains(&Rollup::key_bytes(key.as_raw()));
        match expected {
            None => Ok(()),
            Some(_) if rollup.key_of_parent(parent).is_some_and(is_late) => Ok(()),
            Some(_) if self.pattern.inserts_parents() && rows.is_empty() => {
                self.note(parent.get("_id"), "", Some(RawValue::Document(parent)), None);
                self.found.wrong += 1;
                let pattern = self.pattern;
                // A new pattern may meet documents that are not its own, and one that was paused those of groups that
                // are gone.
                let refresh = match self.repairs {
                    Repair::Filling if !pattern.made_alone(parent) => Refresh::Missing,
                    _ => Refresh::All,
                };
                self.refresh_as(&pattern.target, record, refresh)
            }
            Some(expected) => self.note_wrong(record, parent, &expected),
        }
    }

    fn note_absent(&mut self, rollup: &Rollup, group: &Members) -> Result<()> {
        if self.late.contains(&Rollup::key_bytes(group.key.as_raw())) {
            return Ok(());
        }
        self.found.checked += 1;
        self.found.wrong += 1;
        let state = rollup.group_of(group.key.as_raw(), &group.rows)?;
        let expected = rollup.result_of(group.key.as_raw(), &state)?;
        self.note(Some(group.key.as_raw()), "", None, Some(RawValue::Document(expected.as_raw())));
        match self.pattern.source.clone() {
            Some(source) => self.refresh(&source, group.child),
            None => Ok(()),
        }
    }

    fn note_wrong(&mut self, record: RecordId, stored: RawDocument<'_>, expected: &Document) -> Result<()> {
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

    fn note(
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

    fn refresh(&mut self, namespace: &Namespace, record: RecordId) -> Result<()> {
        self.refresh_as(namespace, record, Refresh::All)
    }

    fn refresh_as(&mut self, namespace: &Namespace, record: RecordId, how: Refresh) -> Result<()> {
        match &mut self.repair {
            Some(unit) => refresh(unit, self.pattern, namespace, record, how).map(drop),
            None => Ok(()),
        }
    }
}

/// Which part a group belongs to.
fn part_of(key: &[u8], parts: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() % parts
}

/// What lies at a path; where it leads into an array, the array.
fn value_at(document: RawDocument<'_>, path: &str) -> Option<Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (document.get(first)?, rest) {
        (RawValue::Document(nested), Some(rest)) => value_at(nested, rest),
        (RawValue::Array(array), Some(_)) => Some(RawValue::Array(array).to_value()),
        (_, Some(_)) => None,
        (value, None) => Some(value.to_value()),
    }
}
