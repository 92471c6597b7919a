//! Tailable cursors: a capped collection read in the order of insertion, and on from there as documents arrive.
//!
//! Between two batches the cursor keeps the number of the record it saw last, and no snapshot. The next batch begins
//! behind that record, in the newest state; if the record is gone by then, so is the cursor's place.

use std::sync::Arc;

use kilim_bson::{Document, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_storage::{Direction, Snapshot};

use crate::ids::{CollectionId, RecordId};
use crate::operator::{ExecContext, Row, RowData};

use crate::plan::{Hint, Keys, ReadRequest};
use crate::records::{Home, Overlay, RecordScan, Records};

pub struct Tail {
    home: Home,
    filter: Arc<Filter>,
    projection: Option<Projection>,
    /// `returnKey`: no index is read, so that nothing is shown.
    keys_only: bool,
    /// Hinted to go against the order of insertion. It then ends at the first record, and what arrives is never seen.
    backwards: bool,
    skip: u64,
    /// How many may still be given, where there is a limit.
    left: Option<u64>,
    /// What was looked at last, whether it matched or not.
    last: Option<RecordId>,
    scan: Option<RecordScan>,
}

impl Tail {
    pub fn new(home: Home, request: ReadRequest) -> Tail {
        Tail {
            home,
            filter: request.filter,
            projection: request.projection,
            keys_only: matches!(request.keys, Keys::Returned { .. }),
            backwards: matches!(request.hint, Some(Hint::Natural { backward: true })),
            skip: request.skip,
            left: request.limit,
            last: None,
            scan: None,
        }
    }

    /// Goes on in a newer state, in which no record comes before `oldest`.
    pub(crate) fn go_on(
        &mut self,
        behind: Option<&Arc<impl Overlay + 'static>>,
        oldest: RecordId,
        snapshot: &Snapshot,
    ) -> Result<()> {
        let records = Records::new(self.home.clone(), snapshot).through(behind);
        let (mut lower, mut upper) = (RecordId(0), RecordId(u64::MAX));
        match self.last {
            // It need not pass all that have gone.
            None if !self.backwards => lower = oldest,
            None => {}
            Some(last) => {
                if !records.has(last)? {
                    return Err(Error::user(
                        ErrorCode::CappedPositionLost,
                        format!(
                            "CollectionScan died due to failure to restore tailable cursor position. Last seen \
                             record id: RecordId({})",
                            last.0
                        ),
                    ));
                }
                match self.backwards {
                    false => lower = RecordId(last.0 + 1),
                    true => upper = RecordId(last.0.saturating_sub(1)),
                }
            }
        }
        let direction = if self.backwards { Direction::Backward } else { Direction::Forward };
        self.scan = Some(records.scan(lower..=upper, direction));
        Ok(())
    }

    pub(crate) fn collection(&self) -> CollectionId {
        self.home.collection
    }

    /// Ends a batch: what it read from is let go of.
    pub fn rest(&mut self) {
        self.scan = None;
    }

    /// Whether it has seen anything: a cursor over nothing has no place to wait at.
    pub fn has_place(&self) -> bool {
        self.last.is_some()
    }

    pub fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        while let Some((id, image)) = self.scan.as_mut().and_then(Iterator::next).transpose()? {
            context.tick()?;
            self.last = Some(id.record);
            let row = Row::new(id, RowData::Record(image));
            if !self.filter.matches(row.document())? {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left = self.left.map(|left| left - 1);
            if self.keys_only {
                return Ok(Some(Row::new(id, RowData::Document(Document::new()))));
            }
            return match &self.projection {
                None => Ok(Some(row)),
                Some(projection) => {
                    let position = projection.position(&self.filter, row.document())?;
                    let mut out = Writer::new();
                    let mut env = Env::new(row.document(), Bindings::none());
                    row.describe(&mut env);
                    projection.apply_in(&env, position, &mut out)?;
                    Ok(Some(Row::new(id, RowData::Document(out.finish()))))
                }
            };
        }
        Ok(None)
    }
}
