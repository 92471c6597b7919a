//! `$sort` behind other stages.
//!
//! Where rows come nearly in order, as those of buckets do, they are given back as soon as none that is yet to come can
//! precede them.

use std::sync::Arc;

use kilim_bson::{RawValue, Writer};
use kilim_error::Result;
use kilim_query::stage::SortBy;

use super::{Opening, Step};
use crate::operator::{Bounded, ExecContext, Row, SortBuffer};

pub(super) struct Sort {
    sort: Arc<kilim_query::sort::Sort>,
    key: Vec<u8>,
    buffer: SortBuffer,
    /// What is held of rows that come nearly in order.
    bounded: Option<Bounded>,
    /// No row that is yet to come sorts before it.
    horizon: Vec<u8>,
    is_at_end: bool,
    allow_disk_use: bool,
    input: Box<dyn Step>,
}

impl Sort {
    pub(super) fn new(stage: &SortBy, input: Box<dyn Step>, opening: &Opening<'_>) -> Sort {
        let allow_disk_use = opening.reader.options().allow_disk_use;
        let buffer = SortBuffer::new(stage.limit, allow_disk_use);
        let bounded = stage.bounded.then(|| Bounded::new(stage.limit));
        Sort {
            sort: stage.sort.clone(),
            key: Vec::new(),
            buffer,
            bounded,
            horizon: Vec::new(),
            is_at_end: false,
            allow_disk_use,
            input,
        }
    }

    /// Makes the row's key, unless its beginning tells that the row is behind all that will be kept.
    fn is_wanted(&mut self, row: &Row) -> Result<bool> {
        self.key.clear();
        if self.buffer.is_full() {
            let told = self.sort.leading_key_of(row.document(), &mut self.key);
            if told && self.buffer.refuses(&self.key, row) {
                return Ok(false);
            }
            self.key.clear();
        }
        self.sort.key_with_score(row.document(), row.score, &mut self.key)?;
        Ok(true)
    }
}

impl Sort {
    /// The next row, as long as the input tells how far it is. Whether it still does.
    fn next_bounded(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Given>> {
        let Some(bounded) = &mut self.bounded else { return Ok(None) };
        context.figures.sorted = true;
        loop {
            context.tick()?;
            if let Some(row) = bounded.next_before(&self.horizon) {
                return Ok(Some(Given(Some(row))));
            }
            if self.is_at_end || bounded.is_done() {
                return Ok(Some(Given(bounded.next())));
            }
            let Some(row) = self.input.next(context)? else {
                self.is_at_end = true;
                continue;
            };
            self.key.clear();
            self.sort.key_with_score(row.document(), row.score, &mut self.key)?;
            bounded.push(&self.key, row);
            match self.input.horizon() {
                Some(horizon) if !bounded.is_too_large() => {
                    if horizon != self.horizon {
                        horizon.clone_into(&mut self.horizon);
                    }
                }
                _ => break,
            }
        }
        let held = self.bounded.take().unwrap_or_default();
        self.buffer = held.into_sort(self.allow_disk_use)?;
        Ok(None)
    }
}

/// What a bounded sort gave: a row, or that there is none left.
struct Given(Option<Row>);

impl Step for Sort {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if let Some(Given(row)) = self.next_bounded(context)? {
            return Ok(row);
        }
        if !self.buffer.is_finished() {
            self.take_in(context)?;
            self.buffer.finish()?;
        }
        context.figures.sorted = true;
        context.figures.used_disk |= self.buffer.spills > 0;
        context.tick()?;
        self.buffer.next()
    }

    fn take_in(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        while let Some(row) = self.input.next(context)? {
            context.tick()?;
            if self.is_wanted(&row)? {
                self.buffer.push(&self.key, row)?;
            }
        }
        Ok(true)
    }

    fn take_rows(&mut self, rows: &[Row], context: &mut ExecContext<'_>) -> Result<bool> {
        for row in rows {
            context.tick()?;
            if self.is_wanted(row)? {
                self.buffer.push_shared(&self.key, row)?;
            }
        }
        Ok(true)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }

    fn horizon(&self) -> Option<&[u8]> {
        None
    }

    fn report(&self, out: &mut Writer) {
        let bytes = self.bounded.as_ref().map_or(self.buffer.sorted_bytes, |bounded| bounded.sorted_bytes);
        out.append("totalDataSizeSortedBytesEstimate", RawValue::Int64(bytes as i64));
        out.append("usedDisk", RawValue::Bool(self.buffer.spills > 0));
        out.append("spills", RawValue::Int64(self.buffer.spills as i64));
    }
}
