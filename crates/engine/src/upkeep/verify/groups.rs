//! Groups are checked in parts. For each part, one walk over the children gathers its groups, then one walk over the
//! parents compares them. So memory is bounded by one part, at the cost of two walks for each part.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kilim_bson::{Path, RawDocument, RawValue, Value};
use kilim_error::Result;
use kilim_patterns::{Gathering, GroupState, Rollup, key_bytes};
use kilim_query::filter::{Comparison, Filter, Predicate};

use super::check::Check;
use super::{Part, Repair};
use crate::catalog::RecordId;
use crate::limits;
use crate::maintenance::Refresh;
use crate::maintenance::find_by_unique;

/// A group of which some children were met.
struct Members {
    key: Value,
    gathered: Gathering,
    /// One of the children.
    child: RecordId,
}

impl Check<'_> {
    pub(super) fn check_groups(&mut self, rollup: &Rollup, part: &Part) -> Result<()> {
        let pattern = self.pattern;
        // If only some parents are checked, the children of each are searched for.
        if let (false, Some(field)) = (part.is_whole(), rollup.key_field()) {
            self.walk(&pattern.target, part, |check, record, parent| {
                let state = match rollup.key_of_parent(parent) {
                    Some(key) => check.state_of(rollup, field, &key)?,
                    None => rollup.empty_group(RawValue::Null)?,
                };
                check.check_parent(rollup, record, parent, &state)
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
                let key = key.map_or(Vec::new(), |key| key_bytes(key.as_raw()));
                if part_of(&key, parts) != number {
                    return Ok(());
                }
                match groups.remove(&key) {
                    // Of one key there is one parent.
                    Some(group) => check.check_parent(rollup, record, parent, &group.gathered.finish()),
                    None => {
                        let own = rollup.key_of_parent(parent).unwrap_or(Value::Null);
                        check.check_parent(rollup, record, parent, &rollup.empty_group(own.as_raw())?)
                    }
                }
            })?;
            if pattern.inserts_parents() && part.is_whole() {
                for (_, group) in groups {
                    let Members { key, gathered, child } = group;
                    self.note_absent(rollup, &key, &gathered.finish(), child)?;
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
        for row in rollup.rows_of(Some(document)) {
            let found = match &target {
                Some(target) => find_by_unique(&self.snapshot, target, &rollup.on, row.key.as_raw())?,
                None => None,
            };
            if found.is_none() {
                let state = self.state_of(rollup, field, &row.key)?;
                self.note_absent(rollup, &row.key, &state, child)?;
            }
        }
        Ok(())
    }

    /// How many parts keep each within bounds.
    pub(super) fn parts(&self) -> Result<u64> {
        let Some(source) = &self.source else { return Ok(1) };
        let size = source.home().counts(&self.snapshot)?;
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
            for row in rollup.rows_of(Some(child)) {
                if part_of(&row.key_bytes, parts) == part {
                    let group = match groups.entry(row.key_bytes.clone()) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(new) => {
                            let gathered = rollup.gather(row.key.as_raw())?;
                            new.insert(Members { key: row.key.clone(), gathered, child: record })
                        }
                    };
                    group.gathered.add(rollup, &row)?;
                }
            }
            Ok(())
        })?;
        Ok(groups)
    }

    /// A group, its children found by its key. Where their order counts, memory holds their numbers.
    fn state_of(&mut self, rollup: &Rollup, field: &str, key: &Value) -> Result<GroupState> {
        let mut gathered = rollup.gather(key.as_raw())?;
        let Some(source) = self.pattern.source.clone() else { return Ok(gathered.finish()) };
        let bytes = key_bytes(key.as_raw());
        let predicate = Predicate::Compare(Comparison::Eq, key.clone().into());
        let filter = Filter::Field { path: Path::parse(field), predicate };
        let part = Part { filter: Some(Arc::new(filter)), sample: None };
        let mut gather = |child: RawDocument<'_>| {
            let rows = rollup.rows_of(Some(child));
            let mut own = rows.iter().filter(|row| row.key_bytes == bytes);
            own.try_for_each(|row| gathered.add(rollup, row))
        };
        let mut found: Vec<RecordId> = Vec::new();
        // These children do not count as progress: the parent does.
        let job = self.job.take();
        let walked = self.walk(&source, &part, |_, record, child| match rollup.minds_order() {
            true => {
                found.push(record);
                Ok(())
            }
            false => gather(child),
        });
        self.job = job;
        walked?;
        found.sort_unstable();
        if let (false, Some(collection)) = (found.is_empty(), self.engine.collection(&source)) {
            let records = self.records_of(&collection)?;
            for record in found {
                self.operation.check()?;
                if let Some(child) = records.get(record.into())? {
                    gather(child.document())?;
                }
            }
        }
        Ok(gathered.finish())
    }

    fn check_parent(
        &mut self,
        rollup: &Rollup,
        record: RecordId,
        parent: RawDocument<'_>,
        state: &GroupState,
    ) -> Result<()> {
        self.found.checked += 1;
        let expected = match rollup.key_of_parent(parent) {
            Some(key) => rollup.merged(parent, key.as_raw(), state)?,
            None => rollup.restored(RawDocument::empty(), parent),
        };
        let is_pending = |key: Value| self.pending.contains(&key_bytes(key.as_raw()));
        let is_left_over = self.pattern.inserts_parents() && state.rows == 0;
        match expected {
            // A group that was emptied while the pattern was paused. Its document may show what an empty group has.
            None if is_left_over
                && self.repairs == Repair::Filling
                && self.made_alone(parent)
                && !rollup.key_of_parent(parent).is_some_and(is_pending) =>
            {
                let pattern = self.pattern;
                self.refresh(&pattern.target, record)
            }
            None => Ok(()),
            Some(_) if rollup.key_of_parent(parent).is_some_and(is_pending) => Ok(()),
            Some(_) if is_left_over => {
                self.note(parent.get("_id"), "", Some(RawValue::Document(parent)), None);
                self.found.wrong += 1;
                let pattern = self.pattern;
                // The document belongs to no group. After a pause its group may be gone, and it is deleted. A new pattern may
                // find a document that a user made; that one is kept.
                let refresh = match self.repairs {
                    Repair::Filling if !self.made_alone(parent) => Refresh::Missing,
                    _ => Refresh::All,
                };
                self.refresh_as(&pattern.target, record, refresh)
            }
            Some(expected) => self.note_wrong(record, parent, &expected),
        }
    }

    fn made_alone(&self, parent: RawDocument<'_>) -> bool {
        let registry = self.engine.patterns();
        self.pattern.made_alone(parent, registry.of(&self.pattern.target.database))
    }

    fn note_absent(
        &mut self,
        rollup: &Rollup,
        key: &Value,
        state: &GroupState,
        child: RecordId,
    ) -> Result<()> {
        if self.pending.contains(&key_bytes(key.as_raw())) {
            return Ok(());
        }
        self.found.checked += 1;
        self.found.wrong += 1;
        let expected = rollup.result_of(key.as_raw(), state)?;
        self.note(Some(key.as_raw()), "", None, Some(RawValue::Document(expected.as_raw())));
        match self.pattern.source.clone() {
            Some(source) => self.refresh(&source, child),
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
