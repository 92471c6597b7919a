//! `$densify` behind its `$sort`: walks each partition step by step and makes the documents that are missing.
//!
//! Of a partition it knows the place at which the next document must stand. A row that comes first has to wait until the
//! places before it are filled; a row between two places changes nothing. Where the range is common to all partitions,
//! or given, what is missing at their ends comes once all rows have come.

use std::collections::HashMap;
use std::sync::Arc;

use kilim_bson::{Document, Value, compare, encode_value_with};
use kilim_error::{Error, Result};
use kilim_query::expression::Evaluated;
use kilim_query::stage::{self, DensifyBounds};

use super::budget::STAGE_BYTES_MAX;
use super::{Opening, Step, made};
use crate::operator::{ExecContext, Row};

pub(super) struct Densify {
    stage: Arc<stage::Densify>,
    input: Box<dyn Step>,
    /// Partitions by their keys.
    known: HashMap<Vec<u8>, usize>,
    partitions: Vec<Partition>,
    bytes: usize,
    /// The least and the greatest place that came.
    least: Option<Value>,
    greatest: Option<Value>,
    /// A row that waits for the places before it.
    waiting: Option<Waiting>,
    /// All rows have come; what is missing at the end of this partition is next.
    tail: Option<usize>,
    /// The given range is filled, so rows pass.
    passed: bool,
    made: u64,
    made_max: u64,
}

struct Partition {
    /// What documents that are made for it have beside their places.
    frame: Document,
    /// Where the next document must stand.
    next: Value,
}

struct Waiting {
    row: Row,
    place: Value,
    partition: usize,
    /// What documents that are made before it have beside their places: what comes before a row looks like that row where
    /// a collation takes partitions for equal. Made with the first of them.
    frame: Option<Document>,
}

impl Densify {
    pub(super) fn new(
        stage: &Arc<stage::Densify>,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> Result<Densify> {
        Ok(Densify {
            stage: stage.clone(),
            input,
            known: HashMap::new(),
            partitions: Vec::new(),
            bytes: 0,
            least: None,
            greatest: None,
            waiting: None,
            tail: None,
            passed: false,
            made: 0,
            made_max: opening.reader.engine()?.settings.densified_documents_max(),
        })
    }

    /// Takes a row in: it passes, or waits for the places before it.
    fn take(&mut self, row: Row) -> Result<Option<Row>> {
        let value = self.stage.field.evaluate(row.document());
        if self.passed || value.is_nullish() {
            return Ok(Some(row));
        }
        self.stage.check(value.raw_or_null())?;
        let place = value.into_value().unwrap_or(Value::Null);
        let partition = self.partition_of(&row, &place)?;
        self.greatest = Some(place.clone());
        self.waiting = Some(Waiting { row, place, partition, frame: None });
        Ok(None)
    }

    fn partition_of(&mut self, row: &Row, place: &Value) -> Result<usize> {
        let mut key = Vec::new();
        for field in &self.stage.partition_by {
            match field.evaluate(row.document()) {
                // What is missing is no null here.
                Evaluated::Missing => key.push(1),
                value => encode_value_with(&mut key, value.raw_or_null(), false, self.stage.collator()),
            }
        }
        let least = self.least.get_or_insert_with(|| place.clone()).clone();
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let next = match &self.stage.bounds {
            // The first place of another partition is one step back and one on, which may be of another type.
            DensifyBounds::Full if compare(least.as_raw(), place.as_raw()).is_lt() => {
                self.stage.step.after(&self.stage.step.before(&least)?)?
            }
            DensifyBounds::Full => place.clone(),
            DensifyBounds::Partition => place.clone(),
            DensifyBounds::Between(..) => self.first_place()?,
        };
        let frame = self.stage.frame_of(row.document());
        self.bytes += 2 * key.len() + frame.as_raw().as_bytes().len() + size_of::<Partition>();
        if self.bytes > STAGE_BYTES_MAX {
            return Err(Error::location(
                6_007_200,
                format!("$densify exceeded memory limit of {STAGE_BYTES_MAX}"),
            ));
        }
        let number = self.partitions.len();
        self.known.insert(key, number);
        self.partitions.push(Partition { frame, next });
        Ok(number)
    }

    /// Where a given range begins. mongod goes one step back and one on, which by months may lead elsewhere.
    fn first_place(&self) -> Result<Value> {
        match &self.stage.bounds {
            DensifyBounds::Between(lower, _) => self.stage.step.after(&self.stage.step.before(lower)?),
            _ => Err(Error::bug("a range of $densify that is not given has a beginning")),
        }
    }

    /// What comes before the row that waits, then the row itself.
    fn next_waiting(&mut self) -> Result<Option<Row>> {
        let Some(waiting) = &mut self.waiting else { return Ok(None) };
        let number = waiting.partition;
        let next = &self.partitions[waiting.partition].next;
        let stands = compare(next.as_raw(), waiting.place.as_raw());
        if stands.is_lt() && is_in_range(&self.stage.bounds, self.greatest.as_ref(), next) {
            let frame = match &waiting.frame {
                Some(frame) => frame,
                None => waiting.frame.insert(self.stage.frame_of(waiting.row.document())),
            };
            let document = self.stage.made(frame.as_raw(), next);
            return self.filled(number, document).map(Some);
        }
        let Some(waiting) = self.waiting.take() else { return Ok(None) };
        let next = &self.partitions[waiting.partition].next;
        let on_step = match &self.stage.bounds {
            DensifyBounds::Between(lower, upper) if compare(next.as_raw(), upper.as_raw()).is_lt() => {
                let from_lower = compare(waiting.place.as_raw(), lower.as_raw()).is_ge();
                let leads = self.stage.step.leads_to(lower, &waiting.place);
                from_lower && leads.unwrap_or(stands.is_eq())
            }
            _ => stands.is_eq(),
        };
        if on_step {
            let next = self.stage.step.after(&waiting.place)?;
            self.partitions[waiting.partition].next = next;
        }
        if let DensifyBounds::Between(_, upper) = &self.stage.bounds
            && self.stage.partition_by.is_empty()
            && compare(waiting.place.as_raw(), upper.as_raw()).is_ge()
        {
            self.passed = true;
        }
        Ok(Some(waiting.row))
    }

    /// The next place of a partition is filled by a document that was made.
    fn filled(&mut self, number: usize, document: Document) -> Result<Row> {
        self.made += 1;
        if self.made > self.made_max {
            return Err(Error::location(
                5_897_900,
                format!(
                    "Generated {} documents in $densify, which is over the limit of {}. \
                     Increase the 'internalQueryMaxAllowedDensifyDocs' parameter to allow more generated documents",
                    self.made, self.made_max
                ),
            ));
        }
        self.stage.check_makes()?;
        let partition = &mut self.partitions[number];
        partition.next = self.stage.step.after(&partition.next)?;
        match self.stage.field.names() {
            // What stands beside its place is as deep as in the document that it is of.
            [_] => Ok(Row::of(document)),
            _ => made(document),
        }
    }

    /// What is missing at the ends of partitions.
    fn next_of_tail(&mut self) -> Result<Option<Row>> {
        while let Some(number) = self.tail {
            let Some(partition) = self.partitions.get(number) else { return Ok(None) };
            if !matches!(self.stage.bounds, DensifyBounds::Partition)
                && is_in_range(&self.stage.bounds, self.greatest.as_ref(), &partition.next)
            {
                let document = self.stage.made(partition.frame.as_raw(), &partition.next);
                return self.filled(number, document).map(Some);
            }
            self.tail = Some(number + 1);
        }
        Ok(None)
    }
}

/// Whether a place is to be filled in any case.
fn is_in_range(bounds: &DensifyBounds, greatest: Option<&Value>, place: &Value) -> bool {
    let at = |bound: &Value| compare(place.as_raw(), bound.as_raw());
    match bounds {
        DensifyBounds::Between(_, upper) => at(upper).is_lt(),
        DensifyBounds::Full => greatest.is_some_and(|greatest| at(greatest).is_le()),
        DensifyBounds::Partition => true,
    }
}

impl Step for Densify {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        loop {
            context.tick()?;
            if let Some(row) = self.next_waiting()? {
                return Ok(Some(row));
            }
            if self.tail.is_some() {
                return self.next_of_tail();
            }
            match self.input.next(context)? {
                Some(row) => {
                    if let Some(row) = self.take(row)? {
                        return Ok(Some(row));
                    }
                }
                None => {
                    // A given range is filled even where no row told of a partition.
                    if self.partitions.is_empty() && matches!(self.stage.bounds, DensifyBounds::Between(..)) {
                        let next = self.first_place()?;
                        self.partitions.push(Partition { frame: Document::new(), next });
                    }
                    self.tail = Some(0);
                }
            }
        }
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
