//! Groups are checked by parts: the children of a part are read in one walk, then the parents are compared with
//! them. So memory is bounded by a part, and a whole collection costs a walk for each.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kilim_bson::{Path, RawDocument, RawValue, Value};
use kilim_error::Result;
use kilim_patterns::{Rollup, Row, key_bytes};
use kilim_query::filter::{Comparison, Filter, Predicate};

use super::check::Check;
use super::{Part, Repair};
use crate::catalog::RecordId;
use crate::limits;
use crate::maintenance::Refresh;
use crate::maintenance::find_by_unique;

/// The rows of one group.
struct Members {
    key: Value,
    rows: Vec<Row>,
    /// One of the children.
    child: RecordId,
    has_parent: bool,
}

impl Check<'_> {
    pub(super) fn check_groups(&mut self, rollup: &Rollup, part: &Part) -> Result<()> {
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
                let key = key.map_or(Vec::new(), |key| key_bytes(key.as_raw()));
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
        for row in rollup.rows_of(Some(document)) {
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
        let bytes = key_bytes(key.as_raw());
        let predicate = Predicate::Compare(Comparison::Eq, key.into());
        let filter = Filter::Field { path: Path::parse(field), predicate };
        let mut found: Vec<(RecordId, Row)> = Vec::new();
        let part = Part { filter: Some(Arc::new(filter)), sample: None };
        // These are seen for the sake of one that counts.
        let job = self.job.take();
        let walked = self.walk(&source, &part, |_, record, child| {
            let own = rollup.rows_of(Some(child)).into_iter().filter(|row| row.key_bytes == bytes);
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
        let is_late = |key: Value| self.late.contains(&key_bytes(key.as_raw()));
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
        if self.late.contains(&key_bytes(group.key.as_raw())) {
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
}

/// Which part a group belongs to.
fn part_of(key: &[u8], parts: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() % parts
}
