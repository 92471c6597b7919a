//! The documents of one collection whose field equals one of some values.
//!
//! How they are found is chosen once: by probes of an index; else from a table of the whole collection, if it
//! fits; else by reading the collection again and again. What was found is remembered for the next time the same
//! values are asked for. Once the probes have cost as much as a table of a small collection would have, the table is
//! made after all: so the work is at most twice the least.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use kilim_bson::{Collator, Path, RawValue, compare_with, encode_value_with};
use kilim_collation::{Collation, collator};
use kilim_error::Result;
use kilim_query::filter::{Comparison, Filter, Operand, Predicate};
use kilim_storage::Snapshot;

use super::hash_table::{HashTable, KeyOf};
use super::probe::IndexProbe;
use super::{Examined, FOUND_BYTES_MAX, rows_bytes};
use crate::catalog::Collection;
use crate::operator::{ExecContext, Row};
use crate::patches::Patches;
use crate::pipeline::Reader;
use crate::plan::ReadRequest;
use crate::planner::{self, PlannerInput};

pub(in crate::pipeline) struct EqualityJoin {
    collection: Arc<Collection>,
    snapshot: Snapshot,
    /// What is pending for the collection's documents.
    patches: Option<Arc<Patches>>,
    path: Path,
    /// How texts compare.
    collation: Option<Collation>,
    access: Access,
    memory: Memory,
    keys: Keys,
    pub(in crate::pipeline) examined: Examined,
}

enum Access {
    Index {
        probe: Box<IndexProbe>,
        probes: u64,
        /// After so many a table is made; never where there is none.
        patience: Option<u64>,
    },
    /// A table is worth its while from the second question on.
    TableLater,
    Table(HashTable),
    Planner,
}

/// The encoded values of one question.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Keys {
    fn fill(&mut self, values: &[RawValue<'_>], collator: Option<&dyn Collator>) {
        self.bytes.clear();
        self.ends.clear();
        for value in values {
            encode_value_with(&mut self.bytes, *value, false, collator);
            self.ends.push(self.bytes.len());
        }
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| {
            let start = if at == 0 { 0 } else { self.ends[at - 1] };
            &self.bytes[start..self.ends[at]]
        })
    }
}

impl EqualityJoin {
    pub(in crate::pipeline) fn new(
        collection: &Arc<Collection>,
        reader: &Reader,
        path: &Path,
        collation: &Option<Collation>,
    ) -> Result<EqualityJoin> {
        let snapshot = reader.snapshot();
        let patches = reader.patches(collection).cloned();
        let access = match IndexProbe::choose(collection, path, snapshot, collation) {
            // Neither keys nor records say all of them.
            _ if patches.is_some() || collection.shape.paged().is_some() => Access::Planner,
            Some(probe) => {
                let patience = patience(collection, snapshot, &probe)?;
                Access::Index { probe: Box::new(probe), probes: 0, patience }
            }
            None if HashTable::fits(collection, snapshot)? => Access::TableLater,
            None => Access::Planner,
        };
        Ok(EqualityJoin {
            collection: collection.clone(),
            snapshot: snapshot.clone(),
            patches,
            path: path.clone(),
            collation: collation.clone(),
            access,
            memory: Memory::default(),
            keys: Keys::default(),
            examined: Examined::default(),
        })
    }

    /// The field that is compared.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends what is found by any of these values, each document once.
    pub(in crate::pipeline) fn find(
        &mut self,
        values: &mut Vec<RawValue<'_>>,
        found: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        if values.len() > 1 {
            let collator = collator(&self.collation);
            values.sort_by(|a, b| compare_with(*a, *b, collator));
            values.dedup_by(|a, b| compare_with(*a, *b, collator).is_eq());
        }
        self.keys.fill(values, collator(&self.collation));
        self.leave_silent_index(values)?;
        if let Access::Table(table) = &self.access {
            table.find(self.keys.iter(), found);
            return Ok(());
        }
        if let Some(known) = self.memory.get(&self.keys.bytes) {
            found.extend(known.iter().cloned());
            return Ok(());
        }
        let start = found.len();
        match &mut self.access {
            Access::Index { probes, patience: Some(patience), .. } if *probes > *patience => {
                self.tabulate(values, found, context)?;
                return Ok(());
            }
            Access::Index { probe, probes, .. } => {
                *probes += values.len() as u64;
                let mut told = true;
                // In the index's order, as one scan of it would find them.
                if probe.index.spec.key[0].descending {
                    values.reverse();
                }
                for value in &*values {
                    context.tick()?;
                    told = told && probe.find(*value, &mut self.examined, found)?;
                }
                if !told {
                    found.truncate(start);
                    self.plan(values, found, context)?;
                } else {
                    self.examined.note_index(&probe.index.spec.name);
                    if values.len() > 1 {
                        dedup_records(found, start);
                    }
                }
            }
            Access::TableLater if self.memory.asked > 1 => {
                self.tabulate(values, found, context)?;
                return Ok(());
            }
            _ => self.plan(values, found, context)?,
        }
        self.memory.put(&self.keys.bytes, &found[start..]);
        Ok(())
    }

    /// Turns away from an index of another collation once a text is looked for.
    fn leave_silent_index(&mut self, values: &[RawValue<'_>]) -> Result<()> {
        if let Access::Index { probe, .. } = &self.access
            && !values.iter().all(|value| probe.may_tell(*value))
        {
            self.access = match HashTable::fits(&self.collection, &self.snapshot)? {
                true => Access::TableLater,
                false => Access::Planner,
            };
        }
        Ok(())
    }

    /// Makes the table and answers from it; where it does not fit, plans from now on.
    fn tabulate(
        &mut self,
        values: &[RawValue<'_>],
        found: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let key_of = KeyOf::Filter(self.path.clone());
        let table = HashTable::build(
            &self.collection,
            &self.snapshot,
            &key_of,
            &self.collation,
            &mut self.examined,
            context,
        )?;
        self.memory = Memory::default();
        match table {
            Some(table) => {
                table.find(self.keys.iter(), found);
                self.access = Access::Table(table);
                Ok(())
            }
            None => {
                self.access = Access::Planner;
                self.plan(values, found, context)
            }
        }
    }

    /// The way of a filter that stands in a query.
    fn plan(
        &mut self,
        values: &[RawValue<'_>],
        found: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let request = ReadRequest {
            collation: self.collation.clone(),
            ..ReadRequest::new(Arc::new(equality_filter(&self.path, values, &self.collation)))
        };
        let input = PlannerInput {
            home: self.collection.home(),
            indexes: &self.collection.indexes,
            cache: &self.collection.shared.plan_cache,
            clustered: self.collection.clustered,
            oldest: self.collection.oldest_in(&self.snapshot),
            patches: self.patches.as_ref(),
            interrupt: context.interrupt,
        };
        let plan = planner::plan(&input, request, &self.snapshot)?;
        self.collection.shared.scans.note(&plan.root);
        let mut executor = planner::execute(plan, self.snapshot.clone());
        let mut bytes = 0;
        while let Some(row) = executor.next_document(context)? {
            bytes += row.document().as_bytes().len();
            found.push(row);
            // Nobody accepts more.
            if bytes > FOUND_BYTES_MAX {
                break;
            }
        }
        self.examined.add_executor(&executor);
        Ok(())
    }
}

/// How many probes cost as much as a table of the collection, if that is small. An index of several fields finds in
/// its own order, so it is kept to.
pub(super) fn patience(
    collection: &Collection,
    snapshot: &Snapshot,
    probe: &IndexProbe,
) -> Result<Option<u64>> {
    let counter = collection.home().counts(snapshot)?;
    let small = counter.bytes < TABLE_BYTES_FOR_SPEED && probe.index.spec.key.len() == 1;
    let cost = counter.count / RECORDS_PER_PROBE + counter.bytes / BYTES_PER_PROBE;
    Ok(small.then_some(cost.max(PATIENCE_MIN) as u64))
}

/// A table that only saves time may take so much.
const TABLE_BYTES_FOR_SPEED: i64 = 16 * 1024 * 1024;
/// Records, and bytes of records, that are put into a table in the time of one probe.
const RECORDS_PER_PROBE: i64 = 8;
const BYTES_PER_PROBE: i64 = 16 * 1024;
/// Few probes are not worth the thought.
const PATIENCE_MIN: i64 = 32;

/// `{path: {$in: values}}`, in which regular expressions are values.
pub(super) fn equality_filter(path: &Path, values: &[RawValue<'_>], collation: &Option<Collation>) -> Filter {
    let one = |value: &RawValue<'_>| Filter::Field {
        path: path.clone(),
        predicate: Predicate::Compare(Comparison::Eq, Operand::new(value.to_value(), collation)),
    };
    match values {
        [] => Filter::False,
        [value] => one(value),
        values => Filter::Or(values.iter().map(one).collect()),
    }
}

/// Leaves the first of each record from `start` on.
fn dedup_records(rows: &mut Vec<Row>, start: usize) {
    let mut seen = std::collections::HashSet::with_capacity(rows.len() - start);
    let mut at = 0;
    rows.retain(|row| {
        at += 1;
        at <= start || seen.insert(row.id)
    });
}

/// What was found for recent questions.
#[derive(Default)]
pub(in crate::pipeline) struct Memory {
    answers: HashMap<Box<[u8]>, Arc<[Row]>, RandomState>,
    bytes: usize,
    /// How many questions were asked.
    asked: u64,
}

/// Answers kept by one stage: enough for the customers of an hour's orders.
const MEMORY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What an answer takes beside its rows.
const ANSWER_BYTES: usize = 128;

impl Memory {
    pub(in crate::pipeline) fn get(&mut self, question: &[u8]) -> Option<Arc<[Row]>> {
        self.asked += 1;
        self.answers.get(question).cloned()
    }

    pub(in crate::pipeline) fn put(&mut self, question: &[u8], answer: &[Row]) {
        let bytes = rows_bytes(answer) + question.len() + ANSWER_BYTES;
        if bytes > MEMORY_BYTES_MAX / 4 {
            return;
        }
        if self.bytes + bytes > MEMORY_BYTES_MAX {
            self.answers.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.answers.insert(question.into(), answer.into());
    }
}
