//! The smallest cells. MongoDB tests a point as the leaf cell that it lies in.

use s2::cell::Cell;
use s2::cellid::CellID;
use s2::point::Point;

/// The leaf cell of a point.
pub(crate) fn leaf_cell(point: &Point) -> Cell {
    Cell::from(CellID::from(point))
}
