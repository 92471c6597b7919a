//! Verification: what a pattern maintains, computed again from its sources and compared.
//!
//! Everything is read as of one snapshot. A write and what it means for patterns are one commit, so whatever differs
//! there is wrong, however busy the collections are meanwhile. Repair makes each wrong document anew by the same
//! work as any write, as of the newest commit.
//!
//! Groups are checked by parts: the children of a part are read in one walk, then the parents are compared with
//! them. So memory is bounded by a part, and a whole collection costs a walk for each.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Value, doc, encode_value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Derived, Kind, Reference, Rollup, Row};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_storage::{CommitTime, Durability, Snapshot, Space};

use super::fill::{Refresh, refresh};
use super::groups::rows;
use super::sources::{document_of, unique_index};
use super::{Pattern, PatternState};
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
        filter: Option<Arc<Filter>>,
        limit: usize,
    ) -> Result<Verification> {
        let whole = filter.is_none();
        let found = Check::new(self, operation, pattern, limit, false)?.run(filter)?;
        pattern.counters.drift.add(found.wrong);
        let state = match (&pattern.state, found.wrong) {
            (PatternState::Active, 1..) => Some(PatternState::Suspect),
            (PatternState::Suspect, 0) if whole => Some(PatternState::Active),
            _ => None,
        };
        if let Some(state) = state {
            self.set_pattern_state(operation, pattern, state)?;
        }
        Ok(found)
    }

    /// The same, and makes anew what is wrong. A pattern that failed is taken up again.
    pub fn repair_pattern(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        filter: Option<Arc<Filter>>,
        limit: usize,
    ) -> Result<Verification> {
        let whole = filter.is_none();
        let pattern = match &pattern.state {
            PatternState::Paused => {
                return Err(Error::user(
                    ErrorCode::PatternNotReady,
                    format!("'{}' is paused: resumePattern fills what it missed", pattern.declaration.name),
                ));
            }
            PatternState::Failed(_) if !whole => {
                return Err(Error::user(
                    ErrorCode::PatternNotReady,
                    format!("'{}' has failed: repair all of it, without a filter", pattern.declaration.name),
                ));
            }
            PatternState::Failed(_) => self.restart_pattern(operation, pattern)?,
            _ => pattern.clone(),
        };
        let found = Check::new(self, operation, &pattern, limit, true)?.run(filter)?;
        pattern.counters.drift.add(found.wrong);
        let building = pattern.state == PatternState::Building;
        let is_filled_by_job = building && self.jobs.lock().iter().any(|job| job.pattern.id == pattern.id);
        if whole && pattern.state != PatternState::Active && !is_filled_by_job {
            let left = match found.wrong {
                0 => 0,
                _ => Check::new(self, operation, &pattern, 0, false)?.run(None)?.wrong,
            };
            let state = if left == 0 { PatternState::Active } else { PatternState::Suspect };
            self.set_pattern_state(operation, &pattern, state)?;
        }
        Ok(found)
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
        repairs: bool,
    ) -> Result<Check<'c>> {
        engine.store.settle(Durability::Relaxed)?;
        let snapshot = engine.store.snapshot();
        Ok(Check {
            source: pattern.source.as_ref().and_then(|source| engine.collection(source)),
            found: Verification { as_of: snapshot.commit_time(), ..Verification::default() },
            repair: repairs.then(|| Unit::new(engine, operation.clone(), engine.options.durability)),
            engine,
            operation,
            pattern,
            snapshot,
            limit,
        })
    }

    fn run(mut self, filter: Option<Arc<Filter>>) -> Result<Verification> {
        let pattern = self.pattern;
        match &pattern.declaration.kind {
            Kind::Reference(reference) => self.check_copies(reference, filter)?,
            Kind::Rollup(rollup) => self.check_groups(rollup, filter)?,
            Kind::Derived(derived) => self.check_derived(derived, filter)?,
        }
        if let Some(unit) = &mut self.repair {
            unit.settle()?;
        }
        Ok(self.found)
    }

    /// Visits the documents of a collection, as of the snapshot.
    fn walk(
        &mut self,
        namespace: &Namespace,
        filter: Option<Arc<Filter>>,
        mut visit: impl FnMut(&mut Check<'c>, RecordId, RawDocument<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(collection) = self.engine.collection(namespace) else { return Ok(()) };
        let unit = Unit::new(self.engine, self.operation.clone(), self.engine.options.durability);
        let request = ReadRequest::new(filter.unwrap_or_else(|| Arc::new(Filter::True)));
        let plan = crate::read::plan_collection(&unit, &collection, request, &self.snapshot)?;
        let mut executor = operator::execute(plan, self.snapshot.clone());
        let operation = self.operation.clone();
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        while let Some(row) = executor.next_record(&mut context)? {
            visit(self, row.record, row.document())?;
        }
        Ok(())
    }

    fn check_copies(&mut self, reference: &Reference, filter: Option<Arc<Filter>>) -> Result<()> {
        let pattern = self.pattern;
        self.walk(&pattern.target, filter, |check, record, holder| {
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

    fn check_derived(&mut self, derived: &Derived, filter: Option<Arc<Filter>>) -> Result<()> {
        let pattern = self.pattern;
        self.walk(&pattern.target, filter, |check, record, document| {
            check.found.checked += 1;
            match derived.apply(document) {
                Some(expected) => check.note_wrong(record, document, &expected),
                None => Ok(()),
            }
        })
    }

    fn check_groups(&mut self, rollup: &Rollup, filter: Option<Arc<Filter>>) -> Result<()> {
        let pattern = self.pattern;
        // Of a few parents the children are looked up.
        if let (Some(_), Some(field)) = (&filter, rollup.key_field()) {
            return self.walk(&pattern.target, filter, |check, record, parent| {
                let rows = match rollup.key_of_parent(parent) {
                    Some(key) => check.members_of(rollup, field, key)?,
                    None => Vec::new(),
                };
                check.check_parent(rollup, record, parent, &rows)
            });
        }
        let parts = self.parts()?;
        for part in 0..parts {
            let mut groups = self.groups_of(rollup, part, parts)?;
            self.walk(&pattern.target, filter.clone(), |check, record, parent| {
                let key = rollup.key_of_parent(parent);
                let key = key.map_or(Vec::new(), |key| Rollup::key_bytes(key.as_raw()));
                if part_of(&key, parts) != part {
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
            if pattern.inserts_parents() && filter.is_none() {
                for group in groups.values().filter(|group| !group.has_parent) {
                    self.note_absent(rollup, group)?;
                }
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
        self.walk(&source, None, |_, record, child| {
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
        let predicate = Predicate::Compare(Comparison::Eq, key);
        let filter = Filter::Field { path: Path::parse(field), predicate };
        let mut found: Vec<(RecordId, Row)> = Vec::new();
        self.walk(&source, Some(Arc::new(filter)), |_, record, child| {
            let own = rows(rollup, Some(child)).into_iter().filter(|row| row.key_bytes == key_bytes);
            found.extend(own.map(|row| (record, row)));
            Ok(())
        })?;
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
        match expected {
            None => Ok(()),
            Some(_) if self.pattern.inserts_parents() && rows.is_empty() => {
                self.note(parent.get("_id"), "", Some(RawValue::Document(parent)), None);
                self.found.wrong += 1;
                let pattern = self.pattern;
                self.refresh(&pattern.target, record)
            }
            Some(expected) => self.note_wrong(record, parent, &expected),
        }
    }

    fn note_absent(&mut self, rollup: &Rollup, group: &Members) -> Result<()> {
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
        match &mut self.repair {
            Some(unit) => refresh(unit, self.pattern, namespace, record, Refresh::All),
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
