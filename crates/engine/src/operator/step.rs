//! What runs for a stage of a pipeline: it pulls rows from its input, as operators do.

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::Result;

use super::{ExecContext, Row};
use crate::plan::StatsTree;

/// Looks at rows one by one and keeps none of them, so that they need not be made to be kept.
pub trait Viewer {
    /// Whether rows may be shown as the values of these fields and no documents. It is told of the names before the
    /// first such row.
    fn takes_fields(&mut self, _names: &[Box<str>]) -> bool {
        false
    }

    fn see(&mut self, row: Shown<'_>, context: &mut ExecContext<'_>) -> Result<()>;
}

/// A row that is only looked at.
#[derive(Clone, Copy)]
pub enum Shown<'a> {
    Row(&'a Row),
    /// A document that is no record.
    Document(RawDocument<'a>),
    /// The values of fields, in the places of the names that the viewer was told of.
    Fields(&'a [Option<RawValue<'a>>]),
}

/// What runs for a stage.
pub trait Step: Send {
    /// The next row, or none once there are no more; whoever got none does not ask again, unless it is a `$facet`
    /// that has more for the step (`facet`).
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>>;

    /// Shows all rows that are left: the same as [`Step::next`] would give.
    fn show(&mut self, viewer: &mut dyn Viewer, context: &mut ExecContext<'_>) -> Result<()> {
        while let Some(row) = self.next(context)? {
            viewer.see(Shown::Row(&row), context)?;
        }
        Ok(())
    }

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

    /// No row that is yet to come sorts before this key. None where its rows come in no order.
    fn horizon(&self) -> Option<&[u8]> {
        self.input()?.horizon()
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
