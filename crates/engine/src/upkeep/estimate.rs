//! An estimate of what a pattern costs, for its declaration, computed from the data with bounded work.
//!
//! Runs of documents are read from places that are spread evenly over a collection, and stand for the whole of it. A small
//! collection is read completely, and the numbers are exact.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument, Value, doc, encode_value};
use kilim_error::Result;
use kilim_patterns::{Rollup, Row, WantedIndex};
use kilim_storage::{Direction, Snapshot};

use crate::catalog::{Collection, RecordId};
use crate::engine::Engine;
use crate::maintenance::SnapshotReader;
use crate::maintenance::count_of;
use crate::maintenance::find_by_unique;
use crate::operation::Operation;
use crate::patterns::Pattern;
use crate::records::Records;

/// The number of places in a collection where documents are read, and how many at each.
const PLACES: u64 = 64;
const RUN: usize = 128;
/// The number of documents whose fields are computed to measure them.
const MEASURED: usize = 64;
/// Bytes of an index entry beside its key.
const ENTRY_BYTES: u64 = 16;

/// What a declaration would mean.
#[derive(Debug)]
pub struct Estimate {
    /// Documents to fill.
    pub documents: u64,
    /// Documents that one change of a source would write.
    pub fan_out: FanOutSizes,
    /// Indexes that would be made: of which collection, over which fields.
    pub indexes: Vec<Document>,
    /// What the maintained fields and the indexes would take.
    pub bytes: u64,
    /// A document as it would become.
    pub sample: Option<Document>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FanOutSizes {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl Estimate {
    pub fn to_document(&self) -> Document {
        let FanOutSizes { p50, p99, max } = self.fan_out;
        doc! {
            "documents": self.documents as i64,
            "fanOut": {"p50": p50 as i64, "p99": p99 as i64, "max": max as i64},
            "indexes": self.indexes.iter().cloned().map(Value::Document).collect::<Vec<_>>(),
            "bytes": self.bytes as i64,
        }
    }
}

impl Engine {
    /// Estimates what a pattern costs, before or after it is declared.
    pub fn estimate_pattern(&self, operation: &Operation, pattern: &Pattern) -> Result<Estimate> {
        let (snapshot, catalog) = self.reading();
        let target = catalog.get(&pattern.target).cloned();
        let source = pattern.source.as_ref().and_then(|source| catalog.get(source).cloned());
        let look = Look { operation, snapshot, target, source };
        let walked = match pattern.inserts_parents() {
            true => look.source.as_ref(),
            false => look.target.as_ref(),
        };
        let documents = walked.map_or(Ok(0), |walked| count_of(&look.snapshot, walked))?;
        let mut estimate = match pattern.kind().rollup() {
            Some(rollup) => look.rollup(rollup)?,
            None => look.documents(pattern)?,
        };
        estimate.documents = documents;
        for (namespace, wanted) in self.missing_indexes(pattern) {
            let WantedIndex { key, options, .. } = wanted;
            let indexed = self.collection(namespace);
            let entries = indexed.map_or(Ok(0), |indexed| count_of(&look.snapshot, &indexed))?;
            estimate.bytes += entries * (ENTRY_BYTES + 8 * key.iter().count() as u64);
            let mut index = doc! {"ns": namespace.to_string(), "key": key};
            options.iter().for_each(|(option, value)| index.push(option, value));
            estimate.indexes.push(index);
        }
        Ok(estimate)
    }
}

struct Look<'l> {
    operation: &'l Operation,
    snapshot: Snapshot,
    target: Option<Arc<Collection>>,
    source: Option<Arc<Collection>>,
}

/// Documents that stand for a collection.
struct Sample {
    documents: Vec<Document>,
    /// How many documents each stands for.
    weight: f64,
}

impl Look<'_> {
    fn sample(&self, collection: Option<&Arc<Collection>>) -> Result<Sample> {
        let mut sample = Sample { documents: Vec::new(), weight: 1.0 };
        let Some(collection) = collection else { return Ok(sample) };
        let all = count_of(&self.snapshot, collection)?;
        let whole = all <= PLACES * RUN as u64;
        let places = if whole { 1 } else { PLACES };
        let run = if whole { usize::MAX } else { RUN };
        let next = collection.shared.next_record.load(Ordering::Relaxed).max(1);
        let records = Records::new(collection.home(), &self.snapshot);
        for place in 0..places {
            self.operation.check()?;
            let from = RecordId(next / places * place);
            for row in records.scan(from.., Direction::Forward).take(run) {
                sample.documents.push(row?.1.document().to_document());
            }
        }
        sample.weight = all as f64 / sample.documents.len().max(1) as f64;
        Ok(sample)
    }

    /// For patterns that fill documents one by one.
    fn documents(&self, pattern: &Pattern) -> Result<Estimate> {
        let holders = self.sample(self.target.as_ref())?;
        let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
        for holder in &holders.documents {
            for key in pattern.kind().keys_of(holder.as_raw()) {
                let mut bytes = Vec::new();
                encode_value(&mut bytes, key.as_raw(), false);
                *counts.entry(bytes).or_default() += 1;
            }
        }
        let sources = self.source.as_ref().map_or(Ok(0), |source| count_of(&self.snapshot, source))?;
        // In a sample, a key that was seen once may be the only one of its kind: it is not scaled.
        let scaled = |count: u64| match count {
            1 if holders.weight > 1.0 => 1,
            count => (count as f64 * holders.weight).round() as u64,
        };
        let sizes = counts.into_values().map(scaled).collect();
        let corrected = |holder: RawDocument<'_>| {
            let (snapshot, source) = (&self.snapshot, self.source.as_deref());
            let target = self.target.as_deref();
            pattern.kind().corrected(holder, &mut SnapshotReader::new(snapshot, source, target, pattern)?)
        };
        self.measured(&holders, corrected, fan_out_sizes(sizes, sources))
    }

    /// How much larger some documents become.
    fn measured(
        &self,
        sample: &Sample,
        made: impl Fn(RawDocument<'_>) -> Result<Option<Document>>,
        fan_out: FanOutSizes,
    ) -> Result<Estimate> {
        let stride = (sample.documents.len() / MEASURED).max(1);
        let (mut grown, mut measured, mut shown) = (0, 0, None);
        for document in sample.documents.iter().step_by(stride) {
            self.operation.check()?;
            let becomes = made(document.as_raw())?.unwrap_or_else(|| document.clone());
            grown += becomes.as_bytes().len().saturating_sub(document.as_bytes().len());
            measured += 1;
            shown.get_or_insert(becomes);
        }
        let all = sample.documents.len() as f64 * sample.weight;
        let bytes = (grown as f64 * all / f64::from(measured.max(1))) as u64;
        Ok(Estimate { documents: 0, fan_out, indexes: Vec::new(), bytes, sample: shown })
    }

    fn rollup(&self, rollup: &Rollup) -> Result<Estimate> {
        let inserts = rollup.inserts_parents();
        let children = self.sample(self.source.as_ref())?;
        let mut groups: BTreeMap<Vec<u8>, (Value, Vec<Row>)> = BTreeMap::new();
        let mut sizes = Vec::with_capacity(children.documents.len());
        for child in &children.documents {
            let mut own = rollup.rows_of(Some(child.as_raw()));
            let mut keys: Vec<&[u8]> = own.iter().map(|row| &*row.key_bytes).collect();
            keys.sort_unstable();
            keys.dedup();
            sizes.push(keys.len() as u64);
            for row in own.drain(..) {
                let group = groups.entry(row.key_bytes.clone()).or_insert((row.key.clone(), Vec::new()));
                group.1.push(row);
            }
        }
        let parents = match (inserts, &self.target) {
            (true, _) => groups.len() as u64,
            (false, Some(target)) => count_of(&self.snapshot, target)?,
            (false, None) => 0,
        };
        let (mut taken, mut measured, mut shown) = (0, 0, None);
        let stride = (groups.len() / MEASURED).max(1);
        for (key, rows) in groups.values().step_by(stride) {
            self.operation.check()?;
            let state = rollup.group_of(key.as_raw(), rows)?;
            let result = rollup.result_of(key.as_raw(), &state)?;
            taken += result.as_bytes().len() + rollup.encode_group(&state, None).len();
            measured += 1;
            if shown.is_none() {
                let parent = match &self.target {
                    Some(target) => find_by_unique(&self.snapshot, target, &rollup.on, key.as_raw())?,
                    None => None,
                };
                shown = match parent {
                    Some(parent) => {
                        Some(rollup.merged(parent.as_raw(), key.as_raw(), &state)?.unwrap_or(parent))
                    }
                    None if inserts => Some(result),
                    None => None,
                };
            }
        }
        Ok(Estimate {
            documents: 0,
            fan_out: fan_out_sizes(sizes, 0),
            indexes: Vec::new(),
            bytes: (taken as u64 * parents).checked_div(measured).unwrap_or(0),
            sample: shown,
        })
    }
}

/// The distribution of fan-out sizes. If there are more sources than sizes, the size of the others is 0.
fn fan_out_sizes(mut sizes: Vec<u64>, at_least: u64) -> FanOutSizes {
    sizes.sort_unstable();
    let all = (sizes.len() as u64).max(at_least);
    let unseen = all - sizes.len() as u64;
    let at = |percent: u64| {
        let place = (all * percent).div_ceil(100).max(1) - 1;
        place.checked_sub(unseen).and_then(|place| sizes.get(place as usize)).copied().unwrap_or(0)
    };
    FanOutSizes { p50: at(50), p99: at(99), max: sizes.last().copied().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::{FanOutSizes, fan_out_sizes};

    #[test]
    fn sources_that_nobody_refers_to_count() {
        assert_eq!(fan_out_sizes(vec![], 0), FanOutSizes::default());
        assert_eq!(fan_out_sizes(vec![5, 1, 3], 3), FanOutSizes { p50: 3, p99: 5, max: 5 });
        assert_eq!(fan_out_sizes(vec![5, 1, 3], 100), FanOutSizes { p50: 0, p99: 3, max: 5 });
    }
}
