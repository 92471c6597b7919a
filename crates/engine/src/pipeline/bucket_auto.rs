//! `$bucketAuto`: sorts all rows by a value, then cuts the sequence into buckets.
//!
//! A bucket takes its share of the rows, then every further row that must not be torn from it: those with
//! the value of its last row or, along preferred numbers, those below the boundary that its last row rounds
//! up to. Buckets touch: the upper boundary of one is the lower boundary of the next.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue, Value, Writer, compare, compare_with, doc, encode_value_with};
use kilim_collation::collator;
use kilim_error::{Error, Result};
use kilim_query::accumulator::State;
use kilim_query::expression::{Bindings, Env};
use kilim_query::stage;

use super::{Opening, Step, made};
use crate::operator::{ExecContext, Row, SortBuffer};

pub(super) struct BucketAuto {
    stage: Arc<stage::BucketAuto>,
    bindings: Bindings,
    input: Box<dyn Step>,
    buffer: SortBuffer,
    rows: u64,
    /// Buckets given so far.
    given: u32,
    /// The first row of the next bucket.
    next: Option<Sorted>,
    /// The upper boundary of the bucket before, along preferred numbers.
    boundary: Option<Value>,
}

/// A row in its place, with the value it has it by.
struct Sorted {
    value: Value,
    row: Row,
}

impl Sorted {
    fn document(&self) -> Result<RawDocument<'_>> {
        let document = self.row.document().get("document").and_then(RawValue::as_document);
        document.ok_or_else(|| Error::bug("a sorted row has no document"))
    }
}

struct Bucket {
    states: Vec<State>,
    greatest: Value,
}

impl BucketAuto {
    pub(super) fn new(
        stage: &Arc<stage::BucketAuto>,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> BucketAuto {
        BucketAuto {
            stage: stage.clone(),
            bindings: opening.bindings.clone(),
            input,
            buffer: SortBuffer::new(None, opening.reader.options().allow_disk_use),
            rows: 0,
            given: 0,
            next: None,
            boundary: None,
        }
    }

    /// Each row is wrapped with its value, which is computed once only.
    fn take_rows(&mut self, context: &mut ExecContext<'_>) -> Result<()> {
        let mut key = Vec::new();
        while let Some(row) = self.input.next(context)? {
            context.tick()?;
            let document = row.document();
            let mut env = Env::new(document, &self.bindings);
            row.describe_key(&mut env);
            let value = self.stage.group_by.evaluate(&env)?;
            if self.stage.granularity.is_some() {
                stage::check_granularity(value.raw())?;
            }
            key.clear();
            encode_value_with(&mut key, value.raw_or_null(), false, collator(&self.stage.collation));
            let mut writer = Writer::with_capacity(document.as_bytes().len() + 64);
            writer.append("value", value.raw_or_null());
            writer.append("document", RawValue::Document(document));
            let wrapped = Row {
                key: row.key.clone(),
                score: row.score,
                near: row.near.clone(),
                ..Row::of(writer.finish())
            };
            self.buffer.push(&key, wrapped)?;
            self.rows += 1;
        }
        Ok(())
    }

    fn pull(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Sorted>> {
        context.tick()?;
        let Some(row) = self.buffer.next()? else { return Ok(None) };
        let value = row.document().get("value").map_or(Value::Null, RawValue::to_value);
        Ok(Some(Sorted { value, row }))
    }

    fn add(&self, bucket: &mut Bucket, sorted: Sorted) -> Result<()> {
        let mut env = Env::new(sorted.document()?, &self.bindings);
        sorted.row.describe_key(&mut env);
        for ((_, accumulator), state) in self.stage.fields.iter().zip(&mut bucket.states) {
            accumulator.accumulate(state, &env)?;
        }
        bucket.greatest = sorted.value;
        Ok(())
    }

    fn fill(&mut self, first: Sorted, context: &mut ExecContext<'_>) -> Result<Row> {
        let stage = self.stage.clone();
        // Rounded, so that the last bucket is neither much smaller nor much larger than the others.
        let share = ((self.rows as f64 / f64::from(stage.buckets)).round() as u64).max(1);
        self.given += 1;
        let is_last = self.given == stage.buckets;
        let lower = match (stage.granularity, self.boundary.take()) {
            (Some(_), Some(boundary)) => boundary,
            (Some(granularity), None) => granularity.round_down(first.value.as_raw())?,
            (None, _) => first.value.clone(),
        };
        let states =
            stage.fields.iter().map(|(_, accumulator)| accumulator.begin(RawValue::Null, &self.bindings));
        let mut bucket = Bucket { states: states.collect::<Result<_>>()?, greatest: Value::Null };
        self.add(&mut bucket, first)?;
        let mut taken = 1;
        let mut next = self.pull(context)?;
        while taken < share || is_last {
            let Some(row) = next.take() else { break };
            self.add(&mut bucket, row)?;
            taken += 1;
            next = self.pull(context)?;
        }
        let upper = match stage.granularity {
            Some(granularity) => {
                let mut upper = granularity.round_up(bucket.greatest.as_raw())?;
                while let Some(row) = next.take_if(|row| compare(upper.as_raw(), row.value.as_raw()).is_gt())
                {
                    self.add(&mut bucket, row)?;
                    next = self.pull(context)?;
                }
                // Zero rounds to itself, so a bucket of zeros would end where it begins.
                if let Some(row) = &next
                    && compare(upper.as_raw(), RawValue::Int32(0)).is_eq()
                {
                    upper = granularity.round_down(row.value.as_raw())?;
                }
                self.boundary = Some(upper.clone());
                upper
            }
            None => {
                let greatest = bucket.greatest.clone();
                let collator = collator(&stage.collation);
                while let Some(row) =
                    next.take_if(|row| compare_with(greatest.as_raw(), row.value.as_raw(), collator).is_eq())
                {
                    self.add(&mut bucket, row)?;
                    next = self.pull(context)?;
                }
                next.as_ref().map_or(bucket.greatest, |row| row.value.clone())
            }
        };
        self.next = next;
        let mut writer = Writer::new();
        writer.append("_id", RawValue::Document(doc! {"min": lower, "max": upper}.as_raw()));
        for ((name, accumulator), state) in stage.fields.iter().zip(bucket.states) {
            accumulator.append(state, name, &mut writer);
        }
        made(writer.finish())
    }
}

impl Step for BucketAuto {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if !self.buffer.is_finished() {
            self.take_rows(context)?;
            self.buffer.finish()?;
            self.next = self.pull(context)?;
        }
        match self.next.take() {
            Some(first) => self.fill(first, context).map(Some),
            None => Ok(None),
        }
    }

    fn take_in(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        self.take_rows(context).map(|()| true)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
