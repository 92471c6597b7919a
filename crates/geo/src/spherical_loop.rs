//! A closed chain of edges on the sphere, and what lies to the left of it.
//!
//! After `S2Loop` of the S2 library of 2011 (Apache License 2.0), without its index: documents have few vertices. Two
//! loops meet at shared vertices by the order of their edges there, so that loops which share an edge do not intersect.
//!
//! Invariant: no two vertices are equal, and no two edges cross ([`Loop::check`]).

use s2::cell::Cell;
use s2::point::Point;
use s2::r3::vector::Vector;

use crate::bounding::Bounding;
use crate::crossing::{Crosser, Meeting, WedgeRelation, Wedges};
use crate::distance;
use crate::orientation::{angle, dot, in_order, ortho, robust_cross, turn, unit};

/// Where all counts of crossings begin.
const ORIGIN: Point =
    Point(Vector { x: 0.004_567_654_123_455_122, y: 0.999_474_272_231_225_1, z: 0.032_083_083_454_612_12 });

/// More than the diagonal of a leaf cell, in radians.
const LEAF_CELL_ANGLE: f64 = 1e-8;

#[derive(Debug, Clone)]
pub struct Loop {
    vertices: Vec<Point>,
    /// Of each edge, of unit length: to tell from afar that a small cell is not near it.
    normals: Vec<Point>,
    origin_inside: bool,
    /// Around the boundary; around the interior too where that is the smaller part of the sphere.
    bounding: Bounding,
}

impl Loop {
    /// A loop of at least three vertices.
    pub fn new(vertices: Vec<Point>) -> Loop {
        let normals = normals(&vertices);
        let mut made = Loop::bare(vertices, normals);
        if made.turning_angle() < 0.0 {
            made.bounding = Bounding::WHOLE;
        }
        made
    }

    /// The boundary of a cell, which nobody asks how far it is from a point.
    pub fn of_cell(cell: &Cell) -> Loop {
        Loop::bare(cell.vertices().to_vec(), Vec::new())
    }

    fn bare(vertices: Vec<Point>, normals: Vec<Point>) -> Loop {
        let bounding = Bounding::of(vertices.iter());
        let mut made = Loop { normals, vertices, origin_inside: false, bounding };
        made.find_origin();
        made
    }

    /// A vertex is inside if a fixed direction from it leads between its edges. That decides on the origin.
    fn find_origin(&mut self) {
        let (before, vertex, behind) = (self.vertex(0), self.vertex(1), self.vertex(2));
        let vertex_inside = in_order(&ortho(vertex), before, behind, vertex);
        if vertex_inside != self.crossings_say_inside(vertex) {
            self.origin_inside = true;
        }
    }

    pub fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    pub fn bounding(&self) -> &Bounding {
        &self.bounding
    }

    fn len(&self) -> usize {
        self.vertices.len()
    }

    fn vertex(&self, at: usize) -> &Point {
        &self.vertices[at % self.vertices.len()]
    }

    /// Edges as pairs of vertices.
    pub fn edges(&self) -> impl Iterator<Item = (&Point, &Point)> {
        (0..self.len()).map(|at| (self.vertex(at), self.vertex(at + 1)))
    }

    /// What is wrong with it, if something is.
    pub fn check(&self) -> Result<(), String> {
        for (at, vertex) in self.vertices.iter().enumerate() {
            if let Some(first) = self.vertices[..at].iter().position(|other| other == vertex) {
                return Err(format!("Duplicate vertices: {first} and {at}"));
            }
        }
        for at in 0..self.len() {
            let (from, to) = (self.vertex(at), self.vertex(at + 1));
            let Some(start) = self.vertices.get(at + 2) else { continue };
            let mut crosser = Crosser::new(from, to, start);
            for other in at + 2..self.len() {
                let meeting = crosser.meets(self.vertex(other + 1));
                // The last edge and the first are neighbours.
                if meeting == Meeting::Crossing && (other + 1) % self.len() != at {
                    let place = |point: &Point| {
                        let (lng, lat) = degrees(point);
                        format!("[{lat:.7}, {lng:.7}]")
                    };
                    return Err(format!(
                        "Edges {at} and {other} cross. Edge locations in degrees: {}-{} and {}-{}",
                        place(from),
                        place(to),
                        place(self.vertex(other)),
                        place(self.vertex(other + 1)),
                    ));
                }
            }
        }
        Ok(())
    }

    /// The sum of the turns at all vertices: a full turn less the area inside.
    pub fn turning_angle(&self) -> f64 {
        let count = self.len();
        let turns = (0..count).map(|at| {
            let (a, b, c) = (self.vertex(at + count - 1), self.vertex(at), self.vertex(at + 1));
            let outgoing = angle(&robust_cross(b, a), &robust_cross(c, b));
            if turn(a, b, c) > 0 { outgoing } else { -outgoing }
        });
        turns.sum()
    }

    /// Whether it encloses no more than half of the sphere.
    pub fn is_normalised(&self) -> bool {
        self.turning_angle() >= -1e-14
    }

    /// The loop around everything else.
    pub fn inverted(mut self) -> Loop {
        self.vertices.reverse();
        Loop::new(self.vertices)
    }

    /// The loop that encloses no more than half of the sphere.
    pub fn normalised(self) -> Loop {
        if self.is_normalised() { self } else { self.inverted() }
    }

    pub fn contains(&self, point: &Point) -> bool {
        self.bounding.may_contain(point) && self.crossings_say_inside(point)
    }

    fn crossings_say_inside(&self, point: &Point) -> bool {
        let mut inside = self.origin_inside;
        let mut crosser = Crosser::new(&ORIGIN, point, self.vertex(0));
        for at in 1..=self.len() {
            inside ^= crosser.crosses(self.vertex(at));
        }
        inside
    }

    fn has_vertex(&self, point: &Point) -> bool {
        self.vertices.contains(point)
    }

    /// Whether all of another loop's inside is inside.
    pub fn contains_loop(&self, other: &Loop) -> bool {
        if !self.bounding.may_intersect(&other.bounding) {
            return false;
        }
        let first = other.vertex(0);
        if !self.contains(first) && !self.has_vertex(first) {
            return false;
        }
        let mut contains = true;
        let crosses = self.meets(other, |wedges| {
            contains = wedges.a_contains_b();
            !contains
        });
        // Together they may be the whole sphere, each with the other's boundary inside.
        let first = self.vertex(0);
        !crosses && contains && (other.has_vertex(first) || !other.contains(first))
    }

    /// Whether the insides have something in common.
    pub fn intersects(&self, other: &Loop) -> bool {
        // Rounding makes the question differ by who asks it: the loop of more vertices does.
        if other.len() > self.len() {
            return other.intersects(self);
        }
        if !self.bounding.may_intersect(&other.bounding) {
            return false;
        }
        let first = other.vertex(0);
        if self.contains(first) && !self.has_vertex(first) {
            return true;
        }
        let mut intersects = false;
        let crosses = self.meets(other, |wedges| {
            intersects = wedges.intersect();
            intersects
        });
        crosses || intersects || (other.contains(self.vertex(0)) && !other.has_vertex(self.vertex(0)))
    }

    /// Whether it contains another loop; none where their boundaries cross.
    pub fn contains_or_crosses(&self, other: &Loop) -> Option<bool> {
        if !self.bounding.may_intersect(&other.bounding) {
            return Some(false);
        }
        let (mut larger, mut smaller, mut disjoint, mut overlapping) = (false, false, false, false);
        let crosses = self.meets(other, |wedges| {
            match wedges.relation() {
                WedgeRelation::Overlapping => overlapping = true,
                WedgeRelation::Contains => larger = true,
                WedgeRelation::Contained => smaller = true,
                WedgeRelation::Disjoint => disjoint = true,
                WedgeRelation::Equal => {}
            }
            overlapping |= larger && smaller;
            overlapping
        });
        if crosses || overlapping {
            return None;
        }
        let first = other.vertex(0);
        Some(!disjoint && !smaller && (self.contains(first) || self.has_vertex(first)))
    }

    /// Whether an edge crosses one of another loop. Of each vertex that both have, `at_vertex` is told the edges there, until
    /// it answers that it has seen enough.
    fn meets(&self, other: &Loop, mut at_vertex: impl FnMut(&Wedges<'_>) -> bool) -> bool {
        for at in 0..other.len() {
            let (from, to) = (other.vertex(at), other.vertex(at + 1));
            let mut crosser = Crosser::new(from, to, self.vertex(0));
            for own in 0..self.len() {
                let vertex = self.vertex(own + 1);
                match crosser.meets(vertex) {
                    Meeting::Apart => {}
                    Meeting::Crossing => return true,
                    // Each shared vertex is looked at once: where both edges end in it.
                    Meeting::SharedVertex if vertex == to => {
                        let wedges = Wedges {
                            a0: self.vertex(own),
                            vertex,
                            a2: self.vertex(own + 2),
                            b0: from,
                            b2: other.vertex(at + 2),
                        };
                        if at_vertex(&wedges) {
                            return false;
                        }
                    }
                    Meeting::SharedVertex => {}
                }
            }
        }
        false
    }

    /// Whether no edge comes near a point: then a leaf cell there is inside exactly if the point is.
    pub fn is_far_from_edges(&self, point: &Point) -> bool {
        self.normals.iter().all(|normal| dot(normal, point).abs() > LEAF_CELL_ANGLE)
    }

    pub fn intersects_cell(&self, cell: &Cell) -> bool {
        self.bounding.may_intersect(&Bounding::of_cell(cell)) && Loop::of_cell(cell).intersects(self)
    }

    pub fn contains_cell(&self, cell: &Cell) -> bool {
        self.bounding.may_intersect(&Bounding::of_cell(cell)) && self.contains_loop(&Loop::of_cell(cell))
    }

    /// From a point to the nearest edge, in radians.
    pub fn distance_to_edges(&self, point: &Point) -> f64 {
        self.edges().map(|(a, b)| distance::to_edge(point, a, b)).fold(f64::INFINITY, f64::min)
    }
}

fn normals(vertices: &[Point]) -> Vec<Point> {
    let next = vertices.iter().cycle().skip(1);
    vertices.iter().zip(next).map(|(a, b)| unit(robust_cross(a, b))).collect()
}

/// Longitude and latitude of a point.
pub fn degrees(point: &Point) -> (f64, f64) {
    let Vector { x, y, z } = point.0;
    (y.atan2(x).to_degrees(), z.atan2((x * x + y * y).sqrt()).to_degrees())
}
