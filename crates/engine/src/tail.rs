//! Tailable cursors: a capped collection read in the order of insertion, and on from there as documents arrive.
//!
//! Between two batches the cursor keeps the number of the record it saw last, and no snapshot. The next batch begins
//! behind that record, in the newest state; if the record is gone by then, so is the cursor's place.

use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::{Document, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_storage::{Direction, Scan, Snapshot, Space};

use crate::ids::{CollectionId, RecordId};
use crate::layout;
use crate::maintenance::Patches;
use crate::operator::{ExecContext, Row, RowData};
use crate::plan::{Hint, Keys, ReadRequest};

pub struct Tail {
    collection: CollectionId,
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
    scan: Option<Scan>,
    /// What is pending for the records that the scan reads.
    behind: Option<Arc<Patches>>,
}

impl Tail {
    pub fn new(collection: CollectionId, request: ReadRequest) -> Tail {
        Tail {
            collection,
            filter: request.filter,
            projection: request.projection,
            keys_only: matches!(request.keys, Keys::Returned { .. }),
            backwards: matches!(request.hint, Some(Hint::Natural { backward: true })),
            skip: request.skip,
            left: request.limit,
            last: None,
            scan: None,
            behind: None,
        }
    }

    /// Goes on in a newer state, in which no record comes before `oldest`.
    pub(crate) fn go_on(
        &mut self,
        behind: Option<Arc<Patches>>,
        oldest: RecordId,
        snapshot: &Snapshot,
    ) -> Result<()> {
        self.behind = behind;
        let (mut lower, mut upper) = (RecordId(0), RecordId(u64::MAX));
        match self.last {
            // It need not pass all that have gone.
            None if !self.backwards => lower = oldest,
            None => {}
            Some(last) => {
                if snapshot.get(Space::Records, &layout::record_key(self.collection, last))?.is_none() {
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
        let lower = layout::record_key(self.collection, lower);
        let upper = layout::record_key(self.collection, upper);
        self.scan = Some(snapshot.scan(
            Space::Records,
            Bound::Included(&lower[..]),
            Bound::Included(&upper[..]),
            if self.backwards { Direction::Backward } else { Direction::Forward },
        ));
        Ok(())
    }

    pub(crate) fn collection(&self) -> CollectionId {
        self.collection
    }

    /// Ends a batch: what it read from is let go of.
    pub fn rest(&mut self) {
        self.scan = None;
        self.behind = None;
    }

    /// Whether it has seen anything: a cursor over nothing has no place to wait at.
    pub fn has_place(&self) -> bool {
        self.last.is_some()
    }

    pub fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        while let Some((key, stored)) = self.scan.as_mut().and_then(Iterator::next).transpose()? {
            context.tick()?;
            let record = layout::record_id_of(&key);
            self.last = Some(record);
            let stored = match &self.behind {
                None => stored,
                Some(behind) => match behind.see_record(stored)? {
                    Some(stored) => stored,
                    None => continue,
                },
            };
            let row = Row::new(record, RowData::Record(stored));
            if !self.filter.matches(row.document())? {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left = self.left.map(|left| left - 1);
            if self.keys_only {
                return Ok(Some(Row::new(record, RowData::Document(Document::new()))));
            }
            return match &self.projection {
                None => Ok(Some(row)),
                Some(projection) => {
                    let position = projection.position(&self.filter, row.document());
                    let mut out = Writer::new();
                    let mut env = Env::new(row.document(), Bindings::none());
                    row.describe(&mut env);
                    projection.apply_in(&env, position, &mut out)?;
                    Ok(Some(Row::new(record, RowData::Document(out.finish()))))
                }
            };
        }
        Ok(None)
    }
}
