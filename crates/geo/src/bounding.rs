//! Caps around points, for quick refusals.

use s2::cell::Cell;
use s2::point::Point;
use s2::r3::vector::Vector;

use crate::orientation::{angle, dot, unit};

/// More than the rounding errors of the angles below.
const MARGIN: f64 = 1e-12;

/// A cap that holds some points, and what lies between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounding {
    pub centre: Point,
    /// In radians. A half turn is the whole sphere.
    pub radius: f64,
}

impl Bounding {
    pub const WHOLE: Bounding =
        Bounding { centre: Point(Vector { x: 1.0, y: 0.0, z: 0.0 }), radius: std::f64::consts::PI };

    /// Around points and the edges between them. Caps of less than a quarter turn are convex; where the points need more, it
    /// is the whole sphere.
    pub fn of<'p>(points: impl Iterator<Item = &'p Point> + Clone) -> Bounding {
        let mut sum = Vector::default();
        points.clone().for_each(|point| {
            sum.x += point.0.x;
            sum.y += point.0.y;
            sum.z += point.0.z;
        });
        if dot(&Point(sum), &Point(sum)) < 1e-6 {
            return Bounding::WHOLE;
        }
        let centre = unit(Point(sum));
        let radius = points.map(|point| angle(&centre, point)).fold(0.0, f64::max) + MARGIN;
        if radius < 1.57 { Bounding { centre, radius } } else { Bounding::WHOLE }
    }

    pub fn of_cell(cell: &Cell) -> Bounding {
        Bounding::of(cell.vertices().iter())
    }

    pub fn may_contain(&self, point: &Point) -> bool {
        self.radius >= std::f64::consts::PI || angle(&self.centre, point) <= self.radius + MARGIN
    }

    pub fn may_intersect(&self, other: &Bounding) -> bool {
        angle(&self.centre, &other.centre) <= self.radius + other.radius + MARGIN
    }
}

/// Whether a point is in a cell or on its boundary. The crate's own test takes in points that lie beside it by rounding, which
/// S2 of MongoDB's vintage does not: it matters at the poles, where four leaf cells meet.
pub fn cell_contains(cell: &Cell, point: &Point) -> bool {
    let Vector { x, y, z } = point.0;
    let (in_front, u, v) = match cell.face() {
        0 => (x > 0.0, y / x, z / x),
        1 => (y > 0.0, -x / y, z / y),
        2 => (z > 0.0, -x / z, -y / z),
        3 => (x < 0.0, z / x, y / x),
        4 => (y < 0.0, z / y, -x / y),
        _ => (z < 0.0, -y / z, -x / z),
    };
    let bound = cell.bound_uv();
    in_front && (bound.x.lo..=bound.x.hi).contains(&u) && (bound.y.lo..=bound.y.hi).contains(&v)
}
