//! From index entries to records, and the predicates that the index could not decide.

use std::sync::Arc;

use kilim_error::Result;
use kilim_query::filter::Filter;

use super::{ExecContext, Operator, ReadContext, Row, RowData, Stats, Worked};
use crate::records::{Following, Records};

pub(super) struct Fetch {
    pub(super) input: Box<Operator>,
    records: Records,
    /// Where the last row lay.
    last: Following,
    filter: Option<Arc<Filter>>,
}

impl Fetch {
    pub(super) fn new(filter: Option<Arc<Filter>>, input: Box<Operator>, source: &ReadContext) -> Fetch {
        Fetch { input, records: source.records.clone(), last: Following::default(), filter }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        if self.input.is_finished() {
            return Ok(Worked::Eof);
        }
        let row = match self.input.work(context)? {
            Worked::Row(row) => row,
            other => return Ok(other),
        };
        let Row { id, data, key, score, near } = row;
        let image = match data {
            RowData::Record(image) => {
                stats.already_had_document += 1;
                image
            }
            _ => {
                stats.docs_examined += 1;
                context.figures.docs_examined += 1;
                match self.records.fetch_following(id, &mut self.last)? {
                    Some(image) => image,
                    None => return Ok(Worked::NeedTime),
                }
            }
        };
        if let Some(filter) = &self.filter
            && !self.records.matches(filter, id, &image)?
        {
            return Ok(Worked::NeedTime);
        }
        Ok(Worked::Row(Row { id, data: RowData::Record(image), key, score, near }))
    }
}
