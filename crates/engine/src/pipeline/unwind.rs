//! `$unwind`: one row for each element of an array.

use kilim_error::Result;
use kilim_query::stage::{self, Cut, Found};

use super::Step;
use crate::operator::{ExecContext, Row, RowData};

pub(super) struct Unwind {
    stage: stage::Unwind,
    input: Box<dyn Step>,
    /// The document whose elements are being given, and how many were.
    current: Option<(Row, usize)>,
    /// Where those elements lie in it; kept from document to document for its memory.
    cut: Cut,
}

impl Unwind {
    pub(super) fn new(stage: &stage::Unwind, input: Box<dyn Step>) -> Unwind {
        Unwind { stage: stage.clone(), input, current: None, cut: Cut::default() }
    }
}

impl Step for Unwind {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        loop {
            if let Some((row, given)) = &mut self.current {
                context.tick()?;
                let document = self.stage.row(row.document(), &self.cut, *given);
                let made = Row { record: row.record, data: RowData::Document(document) };
                *given += 1;
                if *given == self.cut.len() {
                    self.current = None;
                }
                return Ok(Some(made));
            }
            let Some(row) = self.input.next(context)? else { return Ok(None) };
            let document = row.document();
            let made = match self.stage.find(document, &mut self.cut) {
                Found::Elements => {
                    self.current = Some((row, 0));
                    continue;
                }
                Found::Empty if self.stage.preserve => Some(self.stage.without(document, &self.cut)),
                Found::Value => self.stage.unindexed(document),
                Found::Nothing if self.stage.preserve => self.stage.unindexed(document),
                Found::Empty | Found::Nothing => {
                    context.tick()?;
                    continue;
                }
            };
            return Ok(Some(match made {
                Some(document) => Row { record: row.record, data: RowData::Document(document) },
                None => row,
            }));
        }
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
