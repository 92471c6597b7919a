//! The entries of an index within bounds.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::{Document, KeyDecoder, RawValue, component_length, encode_value};
use kilim_error::{Error, Result, StorageError};
use kilim_storage::{Bytes, Direction, Scan, Snapshot, Space};

use super::key_ranges::{BEHIND, Checker, KeyRanges, Verdict, shorten_target};
use super::{ExecContext, ReadContext, Row, RowData, Stats, Worked};
use crate::ids::RecordId;
use crate::index::{Index, KeySet, decode_entry_key, keys_of_row};
use crate::layout;
use crate::plan::{IndexScan, Skipping};
use crate::records::{Records, RowId};

pub(super) struct IndexScanner {
    plan: Arc<IndexScan>,
    records: Records,
    ranges: KeyRanges,
    scan: Option<Scan>,
    /// Where to go on before the next read.
    seek: Option<Vec<u8>>,
    /// Rows given so far: one with an array has several entries.
    seen: Option<HashSet<RowId>>,
    skip: Option<Skip>,
    /// The end of the interval that the last entry was in, for whoever only counts.
    within: Option<Vec<u8>>,
}

/// An entry that is within the bounds, and whose row was not given before.
pub(super) struct Found {
    pub id: RowId,
    pub entry: Bytes,
    pub value: Bytes,
}

/// Passes over the keys that share a value with the last one given.
struct Skip {
    skipping: Skipping,
    /// The key given last, up to and with the part whose values are wanted.
    last: Option<Vec<u8>>,
    /// Keys passed over since.
    stepped: u32,
}

/// A seek costs about as much as this many steps: 4.6 us, and 0.28 us for a step.
pub(crate) const STEPS_PER_SEEK: u32 = 16;

impl IndexScanner {
    pub(super) fn new(plan: Arc<IndexScan>, source: &ReadContext) -> IndexScanner {
        let ranges = match &plan.range {
            Some(range) => KeyRanges::given(&plan.index, range),
            None => KeyRanges::new(&plan.index, &plan.bounds, plan.is_single_range()),
        };
        let seek = match &ranges {
            KeyRanges::Checked(checker) => Some(checker.start(plan.backward)),
            _ => None,
        };
        IndexScanner {
            // Of equal keys a record has one.
            seen: (plan.repeats_records() && !plan.is_in_record_order()).then(HashSet::new),
            within: None,
            skip: plan.skipping.map(|skipping| Skip { skipping, last: None, stepped: 0 }),
            records: source.records.clone(),
            scan: None,
            ranges,
            seek,
            plan,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        let Found { id, entry, value } = match self.find(stats, context)? {
            Worked::Row(found) => found,
            Worked::NeedTime => return Ok(Worked::NeedTime),
            Worked::Eof => return Ok(Worked::Eof),
        };
        let key = match self.plan.tells_key {
            true => Some(Arc::new(self.told_key(&Entry::split(&self.plan.index, &entry, &value)?)?)),
            false => None,
        };
        Ok(Worked::Row(Row { id, data: RowData::Key { entry, value }, key, score: None, near: None }))
    }

    /// Passes over entries within the bounds without a look at them, as far as there is a way, and so many at most. The last
    /// entry was one.
    pub(super) fn pass(
        &mut self,
        stats: &mut Stats,
        context: &mut ExecContext<'_>,
        max: usize,
    ) -> Result<usize> {
        let index = &self.plan.index;
        let looks = self.seen.is_some()
            || self.skip.is_some()
            || self.plan.backward
            || !self.plan.on_key.is_empty()
            || index.multikey.is_multikey()
            || index.multikey.has_long_keys();
        let Some(scan) = self.scan.as_mut().filter(|_| !looks) else { return Ok(0) };
        let passed = match (&self.ranges, &self.within) {
            (KeyRanges::One(_), _) => scan.pass_over(None, max)?,
            (KeyRanges::Checked(_), Some(end)) => scan.pass_over(Some(end), max)?,
            _ => 0,
        };
        context.tick()?;
        stats.keys_examined += passed as u64;
        context.figures.keys_examined += passed as u64;
        Ok(passed)
    }

    /// The next entry for somebody who only counts.
    pub(super) fn find_to_count(
        &mut self,
        stats: &mut Stats,
        context: &mut ExecContext<'_>,
    ) -> Result<Worked<()>> {
        let found = self.find(stats, context)?;
        if let (KeyRanges::Checked(checker), Worked::Row(Found { entry, value, .. })) = (&self.ranges, &found)
            && self.within.as_ref().is_none_or(|end| entry[..] >= **end)
        {
            self.within = checker.end_of(Entry::split(&self.plan.index, entry, value)?.key);
        }
        Ok(found.blind())
    }

    /// Looks at the next entry.
    pub(super) fn find(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked<Found>> {
        context.tick()?;
        let Some((entry, value)) = self.next_entry(stats)? else { return Ok(Worked::Eof) };
        stats.keys_examined += 1;
        context.figures.keys_examined += 1;
        let parts = Entry::split(&self.plan.index, &entry, &value)?;
        if let Some(skip) = &mut self.skip
            && let Some(step) = skip.step(parts.key)
        {
            if step == Step::Seek {
                self.seek_behind(stats);
            }
            return Ok(Worked::NeedTime);
        }
        if let KeyRanges::Checked(checker) = &self.ranges {
            match checker.check(parts.visible(), self.plan.backward) {
                Verdict::Within => {}
                Verdict::Seek(target) => {
                    self.seek = Some(target);
                    return Ok(Worked::NeedTime);
                }
                Verdict::Done => {
                    self.ranges = KeyRanges::Empty;
                    self.scan = None;
                    return Ok(Worked::Eof);
                }
            }
        }
        if let Some(seen) = &mut self.seen {
            stats.dups_tested += 1;
            if seen.contains(&parts.row) {
                stats.dups_dropped += 1;
                return Ok(Worked::NeedTime);
            }
        } else if self.plan.index.multikey.is_multikey() {
            stats.dups_tested += 1;
        }
        let matches = if parts.is_long {
            stats.docs_examined += 1;
            context.figures.docs_examined += 1;
            match self.records.fetch(parts.row)? {
                Some(image) => self.records.matches(&self.plan.recheck, parts.row, &image)?,
                None => false,
            }
        } else {
            self.key_matches(&parts)?
        };
        if !matches {
            return Ok(Worked::NeedTime);
        }
        let id = parts.row;
        if let Some(seen) = &mut self.seen {
            seen.insert(id);
        }
        if let Some(skip) = &mut self.skip {
            skip.note(&self.plan.index, parts.key)?;
        }
        Ok(Worked::Row(Found { id, entry, value }))
    }

    /// The key as a document, by the names of the index's parts. Texts of an index that has a collation are the
    /// collation's keys, each byte as the character of that number.
    fn told_key(&self, parts: &Entry<'_>) -> Result<Document> {
        let spec = &self.plan.index.spec;
        let values = match parts.is_long {
            false => decode_entry_key(spec, parts.key, parts.type_bits),
            // Only its beginning is stored; the record has the whole.
            true => {
                let image = self.records.fetch_stored(parts.row)?;
                let mut keys = KeySet::default();
                let (home, snapshot) = (self.records.home(), self.records.snapshot());
                keys_of_row(spec, home, snapshot, parts.row, &image, &mut keys)?;
                let short = |key: &[u8]| {
                    let mut short = Vec::new();
                    layout::push_index_key(&mut short, key);
                    short
                };
                let whole = keys.iter().find(|(key, _)| short(key) == parts.key);
                whole.map(|(key, type_bits)| decode_entry_key(spec, key, type_bits)).unwrap_or_default()
            }
        };
        Ok(spec.key.iter().map(|part| part.path.as_str()).zip(values).collect())
    }

    /// Goes on behind all keys that share the value given last.
    fn seek_behind(&mut self, stats: &mut Stats) {
        let Some(last) = self.skip.as_mut().and_then(|skip| skip.last.take()) else { return };
        let mut target = layout::index_prefix(self.plan.index.id).to_vec();
        target.extend_from_slice(&last);
        if !self.plan.backward {
            target.push(BEHIND);
        }
        match &self.ranges {
            KeyRanges::Checked(_) => self.seek = Some(target),
            KeyRanges::One(range) => {
                stats.seeks += 1;
                let (lower, upper) =
                    if self.plan.backward { (&range.lower, &target) } else { (&target, &range.upper) };
                let upper = upper.max(lower);
                self.scan = Some(self.records.snapshot().scan(
                    Space::Index,
                    Bound::Included(&lower[..]),
                    Bound::Excluded(&upper[..]),
                    direction(self.plan.backward),
                ));
            }
            KeyRanges::Empty => {}
        }
    }

    /// Goes on at a record, or the first behind it. All keys are equal, and nothing follows them but record ids.
    pub(super) fn seek_record(&mut self, stats: &mut Stats, record: RecordId) {
        let KeyRanges::One(range) = &self.ranges else { return };
        stats.seeks += 1;
        let mut target = Vec::with_capacity(range.lower.len() + size_of::<RecordId>());
        target.extend_from_slice(&range.lower);
        target.extend_from_slice(&record.0.to_be_bytes());
        self.scan = Some(self.records.snapshot().scan(
            Space::Index,
            Bound::Included(&target[..]),
            Bound::Excluded(&range.upper[..]),
            direction(false),
        ));
    }

    fn next_entry(&mut self, stats: &mut Stats) -> Result<Option<(Bytes, Bytes)>> {
        if let Some(target) = self.seek.take() {
            let KeyRanges::Checked(checker) = &self.ranges else {
                return Err(Error::bug("an index scan without a checker seeks"));
            };
            stats.seeks += 1;
            self.scan = Some(open(self.records.snapshot(), checker, target, self.plan.backward));
        }
        if self.scan.is_none() {
            match &self.ranges {
                KeyRanges::One(range) if stats.seeks == 0 => {
                    stats.seeks += 1;
                    let direction = direction(self.plan.backward);
                    self.scan = Some(self.records.snapshot().scan(
                        Space::Index,
                        Bound::Included(&range.lower[..]),
                        Bound::Excluded(&range.upper[..]),
                        direction,
                    ));
                }
                KeyRanges::Empty if stats.seeks == 0 => stats.seeks += 1,
                _ => {}
            }
        }
        let Some(scan) = &mut self.scan else { return Ok(None) };
        let entry = scan.next().transpose()?;
        if entry.is_none() {
            self.scan = None;
        }
        Ok(entry)
    }

    /// The predicates that bounds could not decide but a key can.
    fn key_matches(&self, parts: &Entry<'_>) -> Result<bool> {
        if self.plan.on_key.is_empty() {
            return Ok(true);
        }
        let mut decoder =
            KeyDecoder::new(parts.key, parts.type_bits).map_err(|_| corrupt(&self.plan.index))?;
        for (at, part) in self.plan.index.spec.key.iter().enumerate() {
            let collated = self.plan.index.spec.is_collated(at);
            let value = decoder.next_of(part.descending, collated).map_err(|_| corrupt(&self.plan.index))?;
            for test in self.plan.on_key.iter().filter(|test| test.part == at) {
                if !test.filter.matches_value(value.as_raw()) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

#[derive(PartialEq, Eq)]
enum Step {
    /// The next key may be another.
    Over,
    /// There are many like this one.
    Seek,
}

impl Skip {
    /// How to pass over a key; nothing where it is to be given.
    fn step(&mut self, key: &[u8]) -> Option<Step> {
        let last = self.last.as_ref()?;
        if !key.starts_with(last) {
            return None;
        }
        self.stepped += 1;
        Some(if self.stepped < STEPS_PER_SEEK { Step::Over } else { Step::Seek })
    }

    fn note(&mut self, index: &Index, key: &[u8]) -> Result<()> {
        let (mut end, mut null) = (0, false);
        for part in &index.spec.key[..=self.skipping.part] {
            let component = component_length(&key[end..], part.descending).map_err(|_| corrupt(index))?;
            null = is_nullish(&key[end..end + component], part.descending);
            end += component;
        }
        self.stepped = 0;
        self.last = (!(null && self.skipping.nulls_apart)).then(|| key[..end].to_vec());
        Ok(())
    }
}

/// Whether a key part is null, or the undefined that stands for an empty array.
fn is_nullish(component: &[u8], descending: bool) -> bool {
    [RawValue::Null, RawValue::Undefined].into_iter().any(|value| {
        let mut encoded = Vec::new();
        encode_value(&mut encoded, value, descending);
        encoded == component
    })
}

fn open(snapshot: &Snapshot, checker: &Checker, mut target: Vec<u8>, backward: bool) -> Scan {
    shorten_target(&mut target, backward);
    let whole = checker.whole();
    let (lower, upper) = if backward { (&whole.lower, &target) } else { (&target, &whole.upper) };
    // A target behind the index's last key leaves an empty range, which a store may refuse upside down.
    let upper = if upper < lower { lower } else { upper };
    snapshot.scan(Space::Index, Bound::Included(&lower[..]), Bound::Excluded(&upper[..]), direction(backward))
}

pub(super) fn direction(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}

pub(super) fn corrupt(index: &Index) -> Error {
    StorageError::Corrupt(format!("index {} holds a key that cannot be read", index.spec.name)).into()
}

/// A stored entry taken apart.
pub(super) struct Entry<'a> {
    pub key: &'a [u8],
    pub type_bits: &'a [u8],
    pub row: RowId,
    /// The key was shortened.
    pub is_long: bool,
}

impl<'a> Entry<'a> {
    pub(super) fn split(index: &Index, entry: &'a [u8], value: &'a [u8]) -> Result<Entry<'a>> {
        let id = |bytes: &[u8]| bytes.try_into().ok().map(|bytes| RecordId(u64::from_be_bytes(bytes)));
        let (key, record, type_bits_at) = if index.spec.unique {
            (entry.get(4..), value.get(..8).and_then(id), 8)
        } else {
            let end = entry.len().saturating_sub(8);
            (entry.get(4..end), entry.get(end..).and_then(id), 0)
        };
        let (Some(key), Some(record)) = (key, record) else { return Err(corrupt(index)) };
        let is_long = layout::is_long_key(key);
        Ok(Entry { key, type_bits: &value[type_bits_at..], row: record.into(), is_long })
    }

    /// The bytes of the key that are its own.
    pub(super) fn visible(&self) -> &'a [u8] {
        if self.is_long { &self.key[..layout::KEY_BYTES_MAX] } else { self.key }
    }
}
