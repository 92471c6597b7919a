//! How edges meet: crossings, shared vertices, and wedges around them.
//!
//! After the S2 library (Apache License 2.0), as `orientation` says. An edge is the shorter arc between its ends.

use s2::point::Point;
use s2::r3::vector::Vector;

use crate::orientation::{angle, cross, dot, in_order, ortho, robust_cross, turn_across, unit};

/// Intersections are within this angle of both edges.
pub const INTERSECTION_TOLERANCE: f64 = 1.5e-15;

/// How two edges meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    Apart,
    /// A vertex of one is a vertex of the other.
    SharedVertex,
    Crossing,
}

/// Tests one edge against a chain of others.
pub struct Crosser<'p> {
    a: &'p Point,
    b: &'p Point,
    across: Point,
    c: &'p Point,
    acb: i32,
}

impl<'p> Crosser<'p> {
    pub fn new(a: &'p Point, b: &'p Point, first: &'p Point) -> Crosser<'p> {
        let across = cross(a, b);
        let acb = -turn_across(a, b, first, &across);
        Crosser { a, b, across, c: first, acb }
    }

    /// How the edge meets the one from the last vertex of the chain to `d`, which is the last vertex afterwards.
    pub fn meets(&mut self, d: &'p Point) -> Meeting {
        let bda = turn_across(self.a, self.b, d, &self.across);
        let meeting = if bda == 0 || self.acb == 0 {
            Meeting::SharedVertex
        } else if bda == -self.acb {
            // Both ends of the other edge are on one side. By far the most frequent case.
            Meeting::Apart
        } else {
            self.meets_across(d)
        };
        self.c = d;
        self.acb = -bda;
        meeting
    }

    fn meets_across(&self, d: &Point) -> Meeting {
        let across = cross(self.c, d);
        let cbd = -turn_across(self.c, d, self.b, &across);
        if cbd == self.acb && turn_across(self.c, d, self.a, &across) == self.acb {
            Meeting::Crossing
        } else {
            Meeting::Apart
        }
    }

    /// Whether the edge crosses the next one of the chain, where a crossing at a vertex counts for one of the edges there.
    pub fn crosses(&mut self, d: &'p Point) -> bool {
        let c = self.c;
        match self.meets(d) {
            Meeting::Apart => false,
            Meeting::Crossing => true,
            Meeting::SharedVertex => crosses_at_vertex(self.a, self.b, c, d),
        }
    }
}

/// Whether edges that share a vertex count as crossing: of the edges around a vertex of a loop, an odd number does if the other
/// edge passes through the loop's boundary.
pub fn crosses_at_vertex(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    if a == b || c == d {
        false
    } else if a == d {
        in_order(&ortho(a), c, b, a)
    } else if b == c {
        in_order(&ortho(b), d, a, b)
    } else if a == c {
        in_order(&ortho(a), d, b, a)
    } else {
        b == d && in_order(&ortho(b), c, a, b)
    }
}

/// Where edges that cross do so.
pub fn intersection(a0: &Point, a1: &Point, b0: &Point, b1: &Point) -> Point {
    let (normal_a, normal_b) = (unit(robust_cross(a0, a1)), unit(robust_cross(b0, b1)));
    let mut found = unit(robust_cross(&normal_a, &normal_b));
    let sum = |f: fn(&Vector) -> f64| (f(&a0.0) + f(&a1.0)) + (f(&b0.0) + f(&b1.0));
    let middle = Point(Vector { x: sum(|v| v.x), y: sum(|v| v.y), z: sum(|v| v.z) });
    if dot(&found, &middle) < 0.0 {
        found = Point(Vector { x: -found.0.x, y: -found.0.y, z: -found.0.z });
    }
    let within_a = |point: &Point| in_order(a0, point, a1, &normal_a);
    let within_b = |point: &Point| in_order(b0, point, b1, &normal_b);
    if within_a(&found) && within_b(&found) {
        return found;
    }
    // The great circles are nearly one: the nearest end of an edge that lies on the other edge.
    let ends = [(a0, within_b(a0)), (a1, within_b(a1)), (b0, within_a(b0)), (b1, within_a(b1))];
    let apart = |end: &Point| angle(end, &found);
    let nearest = ends.into_iter().filter(|(_, acceptable)| *acceptable).map(|(end, _)| end);
    nearest.min_by(|left, right| apart(left).total_cmp(&apart(right))).copied().unwrap_or(found)
}

/// How far a point of an edge is along it, from 0 to 1.
pub fn fraction(point: &Point, a0: &Point, a1: &Point) -> f64 {
    let (from, to) = (angle(point, a0), angle(point, a1));
    from / (from + to)
}

/// How the wedges of two loops at a shared vertex lie to each other. A wedge is what lies to the left of the edges into the
/// vertex and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WedgeRelation {
    Equal,
    Contains,
    Contained,
    Overlapping,
    Disjoint,
}

/// The edges around a vertex that two loops share: `a0` and `b0` lead to it, `a2` and `b2` away.
pub struct Wedges<'p> {
    pub a0: &'p Point,
    pub vertex: &'p Point,
    pub a2: &'p Point,
    pub b0: &'p Point,
    pub b2: &'p Point,
}

impl Wedges<'_> {
    pub fn a_contains_b(&self) -> bool {
        in_order(self.a2, self.b2, self.b0, self.vertex) && in_order(self.b0, self.a0, self.a2, self.vertex)
    }

    pub fn intersect(&self) -> bool {
        !(in_order(self.a0, self.b2, self.b0, self.vertex)
            && in_order(self.b0, self.a2, self.a0, self.vertex))
    }

    pub fn relation(&self) -> WedgeRelation {
        let Wedges { a0, vertex, a2, b0, b2 } = self;
        if a0 == b0 && a2 == b2 {
            WedgeRelation::Equal
        } else if in_order(a0, a2, b2, vertex) {
            if in_order(b2, b0, a0, vertex) {
                WedgeRelation::Contains
            } else if a2 == b2 {
                WedgeRelation::Contained
            } else {
                WedgeRelation::Overlapping
            }
        } else if in_order(a0, b0, b2, vertex) {
            WedgeRelation::Contained
        } else if in_order(a0, b0, a2, vertex) {
            WedgeRelation::Disjoint
        } else {
            WedgeRelation::Overlapping
        }
    }
}
