//! `$densify` behind its `$sort`: walks each partition step by step and makes the documents that are missing.
//!
//! Of a partition it knows the place at which the next document must stand. A row that comes first has to wait until the
//! places before it are filled; a row between two places changes nothing. Where the range is common to all partitions,
//! or given, what is missing at their ends comes once all rows have come.

use std::collections::HashMap;
use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, compare, encode_value_with};
use kilim_error::{Error, Result};
use kilim_query::expression::Evaluated;
use kilim_query::stage::{self, DensifyBounds};

use super::budget::STAGE_BYTES_MAX;
use super::{Opening, Step, made};
use crate::limits::DENSIFIED_DOCUMENTS_MAX;
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
}

struct Partition {
    /// The fields that it goes by.
    fields: Document,
    /// Where the next document must stand.
    next: Value,
}

struct Waiting {
    row: Row,
    place: Value,
    partition: usize,
}

impl Densify {
    pub(super) fn new(stage: &Arc<stage::Densify>, input: Box<dyn Step>, _: &Opening<'_>) -> Densify {
        Densify {
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
        }
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
        self.waiting = Some(Waiting { row, place, partition });
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
        let needed = self.stage.partition_by.iter().map(|field| field.as_str());
        let fields = fields_of(row, needed);
        self.bytes += 2 * key.len() + fields.as_raw().as_bytes().len() + size_of::<Partition>();
        if self.bytes > STAGE_BYTES_MAX {
            return Err(Error::location(
                6_007_200,
                format!("$densify exceeded memory limit of {STAGE_BYTES_MAX}"),
            ));
        }
        let number = self.partitions.len();
        self.known.insert(key, number);
        self.partitions.push(Partition { fields, next });
        Ok(number)
    }

    /// Where a given range begins. mongod goes one step back and one on, which by months may lead elsewhere.
    fn first_place(&self) -> Result<Value> {
        match &self.stage.bounds {
            DensifyBounds::Between(lower, _) => self.stage.step.after(&self.stage.step.before(lower)?),
            _ => Err(Error::bug("a range of $densify that is not given has a beginning")),
        }
    }

    /// Whether a place is to be filled in any case.
    fn is_in_range(&self, place: &Value) -> bool {
        let at = |bound: &Value| compare(place.as_raw(), bound.as_raw());
        match &self.stage.bounds {
            DensifyBounds::Between(_, upper) => at(upper).is_lt(),
            DensifyBounds::Full => self.greatest.as_ref().is_some_and(|greatest| at(greatest).is_le()),
            DensifyBounds::Partition => true,
        }
    }

    /// What comes before the row that waits, then the row itself.
    fn next_waiting(&mut self) -> Result<Option<Row>> {
        let Some(waiting) = self.waiting.take() else { return Ok(None) };
        let next = &self.partitions[waiting.partition].next;
        let stands = compare(next.as_raw(), waiting.place.as_raw());
        if stands.is_lt() && self.is_in_range(next) {
            // What comes before a row looks like that row where a collation takes partitions for equal.
            let fields = fields_of(&waiting.row, self.stage.partition_by.iter().map(|field| field.as_str()));
            let number = waiting.partition;
            self.waiting = Some(waiting);
            return self.fill(number, Some(fields)).map(Some);
        }
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

    /// The document that is missing at the next place of a partition.
    fn fill(&mut self, number: usize, fields: Option<Document>) -> Result<Row> {
        self.made += 1;
        if self.made > DENSIFIED_DOCUMENTS_MAX {
            return Err(Error::location(
                5_897_900,
                format!(
                    "Generated {} documents in $densify, which is over the limit of {DENSIFIED_DOCUMENTS_MAX}. \
                     Increase the 'internalQueryMaxAllowedDensifyDocs' parameter to allow more generated documents",
                    self.made
                ),
            ));
        }
        let partition = &mut self.partitions[number];
        let fields = fields.as_ref().unwrap_or(&partition.fields);
        let document = self.stage.made(fields.as_raw(), &partition.next)?;
        partition.next = self.stage.step.after(&partition.next)?;
        made(document)
    }

    /// What is missing at the ends of partitions.
    fn next_of_tail(&mut self) -> Result<Option<Row>> {
        while let Some(number) = self.tail {
            let Some(partition) = self.partitions.get(number) else { return Ok(None) };
            if !matches!(self.stage.bounds, DensifyBounds::Partition) && self.is_in_range(&partition.next) {
                return self.fill(number, None).map(Some);
            }
            self.tail = Some(number + 1);
        }
        Ok(None)
    }
}

/// A document of the top-level fields that paths lead through.
fn fields_of<'a>(row: &Row, paths: impl Iterator<Item = &'a str>) -> Document {
    let mut fields = Document::new();
    for path in paths {
        let name = path.split('.').next().unwrap_or(path);
        if fields.get(name).is_none()
            && let Some(value) = row.document().get(name)
        {
            fields.push(name, RawValue::to_value(value));
        }
    }
    fields
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
                        self.partitions.push(Partition { fields: Document::new(), next });
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
