//! Cells of the sphere that cover a geometry: what a `2dsphere` index holds, and what it is asked for.
//!
//! A document has a key for each cell of its covering. A query looks for keys within the cells of its own covering, and for the
//! cells that these lie in: a large document may have one of those. Levels run from 0, a face of the cube around the earth, to
//! 30, a leaf of about a centimetre.

use s2::cap::Cap;
use s2::cell::Cell;
use s2::cellid::CellID;
use s2::cellunion::CellUnion;
use s2::point::Point;
use s2::region::{Region, RegionCoverer};
use s2::s1::angle::{Angle, Rad};

use crate::bounding::Bounding;
use crate::geometry::{Geometry, Part, Shape, SphericalCap};

/// The finest cells that a query looks for.
const QUERY_LEVEL_MAX: u8 = 23;
/// Cells of a covering: more of them fit better and take longer to look for.
const QUERY_CELLS_MAX: usize = 20;
const DOCUMENT_CELLS_MAX: usize = 20;

pub const LEVEL_MAX: u8 = 30;
/// Cells of about 2000 km, and of about 100 m.
pub const COARSEST_DEFAULT: u8 = 2;
pub const FINEST_DEFAULT: u8 = 16;

/// The levels of the cells that an index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    pub coarsest: u8,
    pub finest: u8,
    /// Points are held as leaves, whatever the finest level is.
    pub points_as_leaves: bool,
}

/// A geometry as cells see it. The coverer asks for something that owns itself, hence the copy.
#[derive(Clone)]
struct Covered(Geometry);

fn part_bounding(part: Part<'_>) -> Bounding {
    match part {
        Part::Point(place) => match place.point() {
            Some(point) => Bounding { centre: point, radius: 1e-12 },
            None => Bounding::WHOLE,
        },
        Part::Line(line) => *line.bounding(),
        Part::Polygon(polygon) => *polygon.bounding(),
        Part::StrictPolygon(polygon) => polygon.bounding(),
    }
}

impl Region for Covered {
    fn cap_bound(&self) -> Cap {
        let mut all: Option<Cap> = None;
        self.0.any(&mut |part| {
            let Bounding { centre, radius } = part_bounding(part);
            let cap = if radius >= std::f64::consts::PI {
                Cap::full()
            } else {
                Cap::from_center_angle(&centre, &Angle::from(Rad(radius)))
            };
            all = Some(match all.take() {
                None => cap,
                Some(sofar) if sofar.is_full() || cap.is_full() => Cap::full(),
                Some(sofar) => sofar.union(&cap),
            });
            false
        });
        all.unwrap_or_else(Cap::empty)
    }

    fn contains_cell(&self, cell: &Cell) -> bool {
        self.0.any(&mut |part| match part {
            Part::Polygon(polygon) => polygon.contains_cell(cell),
            Part::StrictPolygon(polygon) => polygon.contains_cell(cell),
            Part::Point(_) | Part::Line(_) => false,
        })
    }

    fn intersects_cell(&self, cell: &Cell) -> bool {
        self.0.any(&mut |part| match part {
            Part::Point(place) => place.point().is_some_and(|point| cell.id.contains(&CellID::from(&point))),
            Part::Line(line) => line.intersects_cell(cell),
            Part::Polygon(polygon) => polygon.intersects_cell(cell),
            Part::StrictPolygon(polygon) => polygon.intersects_cell(cell),
        })
    }
}

/// The cells that a document's geometry has in an index. It is on the sphere.
pub fn document_cells(geometry: &Geometry, levels: Levels) -> Vec<CellID> {
    match geometry {
        Geometry::Point(place) if levels.points_as_leaves => {
            place.point().map(|point| CellID::from(&point)).into_iter().collect()
        }
        Geometry::Point(place) => {
            let cell = place.point().map(|point| CellID::from(&point).parent(u64::from(levels.finest)));
            cell.into_iter().collect()
        }
        _ => {
            let coverer = RegionCoverer {
                min_level: levels.coarsest,
                max_level: levels.finest,
                level_mod: 1,
                max_cells: DOCUMENT_CELLS_MAX,
            };
            coverer.covering(&Covered(geometry.clone())).0
        }
    }
}

/// The cells that an index has for many points together: the points themselves where they are few, otherwise the smallest cells of
/// one level that are few. They are in order, each of them once.
pub fn points_cells(points: &[Point], levels: Levels) -> Vec<CellID> {
    let mut leaves: Vec<CellID> = points.iter().map(CellID::from).collect();
    leaves.sort_unstable_by_key(|cell| cell.0);
    leaves.dedup();
    if levels.points_as_leaves && leaves.len() <= DOCUMENT_CELLS_MAX {
        return leaves;
    }
    let at_level = |level: u8| {
        let mut cells: Vec<CellID> = leaves.iter().map(|leaf| leaf.parent(u64::from(level))).collect();
        cells.dedup();
        cells
    };
    // A coarser level has no more cells than a finer one.
    let (mut coarse, mut fine) = (levels.coarsest, levels.finest);
    while coarse < fine {
        let middle = coarse + (fine - coarse).div_ceil(2);
        match at_level(middle).len() <= DOCUMENT_CELLS_MAX {
            true => coarse = middle,
            false => fine = middle - 1,
        }
    }
    at_level(coarse)
}

/// The cells that cover what a query asks about.
pub fn query_cells(shape: &Shape) -> Option<CellUnion> {
    let coverer =
        RegionCoverer { min_level: 0, max_level: QUERY_LEVEL_MAX, level_mod: 1, max_cells: QUERY_CELLS_MAX };
    Some(match shape {
        Shape::Geometry(geometry) => coverer.covering(&Covered(geometry.clone())),
        Shape::Cap(SphericalCap { cap, .. }) => coverer.covering(cap),
        Shape::Box(_) | Shape::Polygon(_) | Shape::Circle(_) => return None,
    })
}

/// The cells that cover a ring around a point: farther than `inner` radians, and not farther than `outer`.
pub fn ring_cells(centre: &Point, inner: f64, outer: f64) -> CellUnion {
    let coverer =
        RegionCoverer { min_level: 0, max_level: LEVEL_MAX, level_mod: 1, max_cells: QUERY_CELLS_MAX };
    let cap = |radius: f64| match radius {
        radius if radius >= std::f64::consts::PI => Cap::full(),
        radius => Cap::from_center_angle(centre, &Angle::from(Rad(radius))),
    };
    coverer.covering(&Ring { inner: (inner > 0.0).then(|| cap(inner)), outer: cap(outer) })
}

#[derive(Clone)]
struct Ring {
    inner: Option<Cap>,
    outer: Cap,
}

impl Region for Ring {
    fn cap_bound(&self) -> Cap {
        self.outer.clone()
    }

    fn contains_cell(&self, cell: &Cell) -> bool {
        self.outer.contains_cell(cell) && self.inner.as_ref().is_none_or(|inner| !inner.intersects_cell(cell))
    }

    fn intersects_cell(&self, cell: &Cell) -> bool {
        self.outer.intersects_cell(cell) && self.inner.as_ref().is_none_or(|inner| !inner.contains_cell(cell))
    }
}

/// Ranges of cell ids, both ends included, in which an index has the keys of what may meet some cells: all that is within a
/// cell, and the cells that it is within, of the levels that the index holds. In order, none overlapping.
pub fn key_ranges(cells: &CellUnion, levels: Levels) -> Vec<(CellID, CellID)> {
    let mut ranges: Vec<(CellID, CellID)> =
        cells.0.iter().map(|cell| (cell.range_min(), cell.range_max())).collect();
    for cell in &cells.0 {
        let mut level = cell.level().min(u64::from(levels.finest) + 1);
        while level > u64::from(levels.coarsest) {
            level -= 1;
            let parent = cell.parent(level);
            ranges.push((parent, parent));
        }
    }
    // Keys are signed numbers.
    ranges.sort_unstable_by_key(|(low, _)| low.0 as i64);
    ranges.dedup();
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planar::Pair;

    #[test]
    fn many_points_have_few_cells_in_which_each_of_them_lies() {
        let levels = Levels { coarsest: COARSEST_DEFAULT, finest: FINEST_DEFAULT, points_as_leaves: true };
        let point = |x: f64, y: f64| Pair { x, y }.on_sphere().unwrap();
        let few = [point(1.0, 1.0), point(2.0, 2.0), point(1.0, 1.0)];
        let cells = points_cells(&few, levels);
        assert_eq!(cells.len(), 2);
        assert!(cells.iter().all(CellID::is_leaf));
        for (step, level_min) in [(1e-7, 16), (1e-3, 8), (0.1, 2)] {
            let many: Vec<Point> = (0..1000)
                .map(|at| point(7.0 + step * f64::from(at % 31), 7.0 + step * f64::from(at / 31)))
                .collect();
            let cells = points_cells(&many, levels);
            assert!(cells.len() <= DOCUMENT_CELLS_MAX, "{}", cells.len());
            assert!(
                cells.iter().all(|cell| (level_min..=16).contains(&cell.level())),
                "{:?}",
                cells[0].level()
            );
            assert!(many.iter().all(|point| cells.iter().any(|cell| cell.contains(&CellID::from(point)))));
        }
        // A level that no cell may be coarser than has as many as it has.
        let fine = Levels { coarsest: 20, finest: 25, points_as_leaves: true };
        let far: Vec<Point> = (0..100).map(|at| point(f64::from(at), 1.0)).collect();
        assert_eq!(points_cells(&far, fine).len(), 100);
    }
}
