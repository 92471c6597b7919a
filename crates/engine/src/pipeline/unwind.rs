//! `$unwind`: one row for each element of an array.

use std::sync::Arc;

use kilim_error::Result;
use kilim_query::expression::{Bindings, Env};
use kilim_query::interrupt;
use kilim_query::stage::{self, Cut, Found, Stage};

use super::{Step, absorb};
use crate::operator::{ExecContext, Row, RowData};

pub(super) struct Unwind {
    stage: stage::Unwind,
    input: Box<dyn Step>,
    /// The document whose elements are being given, and how many were.
    current: Option<(Row, usize)>,
    /// Where those elements lie in it; kept from document to document for its memory.
    cut: Cut,
}

/// Tells each `$unwind` what the stages from it on read.
pub(super) fn narrow(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        if matches!(stages[at], Stage::Unwind(_)) {
            let read = absorb::narrowed(&stages[at..]).map(|(projection, _)| Arc::new(projection));
            if let Stage::Unwind(stage) = &mut stages[at] {
                stage.narrow = read;
            }
        }
    }
}

impl Unwind {
    pub(super) fn new(stage: &stage::Unwind, input: Box<dyn Step>) -> Unwind {
        Unwind { stage: stage.clone(), input, current: None, cut: Cut::default() }
    }
}

impl Unwind {
    /// A record without what nobody reads. What another step made has been narrowed, if it could be.
    fn narrowed(&self, row: Row) -> Result<Row> {
        match (&self.stage.narrow, &row.data) {
            (Some(projection), RowData::Record(_)) => {
                let document = projection.made_of(&Env::new(row.document(), Bindings::none()))?;
                Ok(row.with(RowData::Document(document)))
            }
            _ => Ok(row),
        }
    }
}

impl Step for Unwind {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        loop {
            if let Some((row, given)) = &mut self.current {
                context.tick()?;
                let document = self.stage.row(row.document(), &self.cut, *given);
                interrupt::copied(document.as_bytes().len())?;
                let made = row.with(RowData::Document(document));
                *given += 1;
                if *given == self.cut.len() {
                    self.current = None;
                }
                return Ok(Some(made));
            }
            let Some(row) = self.input.next(context)? else { return Ok(None) };
            let row = self.narrowed(row)?;
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
                Some(document) => row.with(RowData::Document(document)),
                None => row,
            }));
        }
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
