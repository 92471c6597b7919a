//! What runs for a stage of a pipeline: it pulls rows from its input, as operators do.

use kilim_bson::{Document, Writer};
use kilim_error::Result;

use super::{ExecContext, Row};
use crate::plan::StatsTree;

/// What runs for a stage.
pub trait Step: Send {
    /// The next row, or none once there are no more; whoever got none does not ask again, unless it is a `$facet`
    /// that has more for the step (`facet`).
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>>;

    /// Takes in what its input has for now, more being expected, and says whether it can: only a step that gives
    /// nothing before it has seen everything can.
    fn take_in(&mut self, _context: &mut ExecContext<'_>) -> Result<bool> {
        Ok(false)
    }

    /// The same of rows at hand instead of its input's.
    fn take_rows(&mut self, _rows: &[Row], _context: &mut ExecContext<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Where its rows come from.
    fn input(&self) -> Option<&dyn Step> {
        None
    }

    /// What explain shows of a run beside the number of rows: `usedDisk` and the like.
    fn report(&self, _out: &mut Writer) {}

    /// The stage as explain shows it behind a run, where that says more than the stage itself does.
    fn shown(&self) -> Option<Document> {
        None
    }

    /// What a read of a collection did.
    fn stats(&self) -> Option<StatsTree> {
        None
    }
}
