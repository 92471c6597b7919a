//! `$text`: the records of search terms with the sums of their scores, and the check of phrases and negations.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use kilim_bson::{KeyDecoder, Value};
use kilim_error::Result;
use kilim_query::filter::TextMatcher;
use kilim_storage::Bytes;

use super::index_scan::{Entry, corrupt};
use super::{ExecContext, Operator, ReadContext, Row, RowData, Stats, Worked};
use crate::index::{BoundSearch, Holds};
use crate::records::{Records, RowId};

/// Adds up what the terms of a search have for each record, then gives the records.
pub(super) struct TextOr {
    /// One for each term, in the terms' order: sums agree with mongod's to the last bit.
    pub(super) inputs: Vec<Operator>,
    search: Arc<BoundSearch>,
    records: Records,
    fetches: bool,
    term: usize,
    /// Where a record's sum is.
    places: HashMap<RowId, u32, foldhash::fast::FixedState>,
    sums: Vec<(RowId, f64)>,
    given: usize,
}

impl TextOr {
    pub(super) fn new(
        search: Arc<BoundSearch>,
        inputs: Vec<Operator>,
        fetches: bool,
        source: &ReadContext,
    ) -> TextOr {
        TextOr {
            inputs,
            search,
            records: source.records.clone(),
            fetches,
            term: 0,
            places: HashMap::default(),
            sums: Vec::new(),
            given: 0,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        if let Some(input) = self.inputs.get_mut(self.term) {
            match input.work(context)? {
                Worked::Row(row) => self.add(row)?,
                Worked::NeedTime => {}
                Worked::Eof => self.term += 1,
            }
            return Ok(Worked::NeedTime);
        }
        context.tick()?;
        let Some(&(id, score)) = self.sums.get(self.given) else { return Ok(Worked::Eof) };
        self.given += 1;
        let data = match self.fetches {
            false => RowData::Key { entry: Bytes::new(&[]), value: Bytes::new(&[]) },
            true => {
                stats.docs_examined += 1;
                context.figures.docs_examined += 1;
                match self.records.fetch(id)? {
                    Some(image) => RowData::Record(image),
                    None => return Ok(Worked::NeedTime),
                }
            }
        };
        Ok(Worked::Row(Row { score: Some(score), ..Row::new(id, data) }))
    }

    fn add(&mut self, row: Row) -> Result<()> {
        let Some(score) = self.score_of(&row)? else { return Ok(()) };
        match self.places.entry(row.id) {
            Slot::Occupied(place) => self.sums[*place.get() as usize].1 += score,
            Slot::Vacant(place) => {
                place.insert(self.sums.len() as u32);
                self.sums.push((row.id, score));
            }
        }
        Ok(())
    }

    /// The score in a row's key.
    fn score_of(&self, row: &Row) -> Result<Option<f64>> {
        let RowData::Key { entry, value } = &row.data else { return Ok(None) };
        let index = &self.search.index;
        let parts = Entry::split(index, entry, value)?;
        if parts.is_long {
            // The score is in the part that is not stored.
            let Some(term) = self.search.search.index_terms.iter().nth(self.term) else { return Ok(None) };
            let image = self.records.fetch_stored(row.id)?;
            return self.search.score_of(image.document(), term);
        }
        let mut decoder = KeyDecoder::new(parts.key, parts.type_bits).map_err(|_| corrupt(index))?;
        for part in &index.spec.key {
            let value = decoder.next_of(part.descending, false).map_err(|_| corrupt(index))?;
            if let (Holds::Score, Value::Double(score)) = (part.holds, &value) {
                return Ok(Some(*score));
            }
        }
        Err(corrupt(index))
    }
}

/// Lets candidates pass that have a search's phrases, and nothing that it negates.
pub(super) struct TextMatch {
    pub(super) input: Box<Operator>,
    search: Arc<BoundSearch>,
    needs_texts: bool,
}

impl TextMatch {
    pub(super) fn new(search: Arc<BoundSearch>, input: Box<Operator>) -> TextMatch {
        TextMatch { input, needs_texts: search.search.needs_texts(), search }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        match self.input.work(context)? {
            Worked::Row(row) if self.needs_texts && !self.search.matches(row.document())? => {
                stats.docs_rejected += 1;
                Ok(Worked::NeedTime)
            }
            other => Ok(other),
        }
    }
}
