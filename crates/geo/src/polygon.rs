//! A polygon on the sphere: a loop, and loops within it that are holes. Also the polygon of strict winding, which may be
//! larger than a hemisphere.
//!
//! After `S2Polygon` of the S2 library of 2011 (Apache License 2.0).
//!
//! Invariant: every loop encloses no more than half of the sphere, the first contains the others, no two cross or share an
//! edge. A point is inside if an odd number of loops contains it.

use s2::cell::Cell;
use s2::point::Point;

use crate::bounding::Bounding;
use crate::crossing::{Crosser, INTERSECTION_TOLERANCE, Meeting, crosses_at_vertex, fraction, intersection};
use crate::leaf::leaf_cell;
use crate::orientation::angle;
use crate::polyline::Polyline;
use crate::spherical_loop::Loop;

/// A line within a polygon comes back from clipping at most this far from where it was, in radians.
const CLIPPED_MAX: f64 = 1e-10 * std::f64::consts::PI / 180.0;

#[derive(Debug, Clone)]
pub struct Polygon {
    loops: Vec<Loop>,
}

impl Polygon {
    /// A polygon of one loop that was checked and normalised.
    pub fn simple(outer: Loop) -> Polygon {
        Polygon { loops: vec![outer] }
    }

    /// A polygon of loops that were checked and normalised, the first of which contains the others.
    pub fn new(loops: Vec<Loop>) -> Polygon {
        Polygon { loops }
    }

    /// What is wrong with loops as those of one polygon, if something is.
    pub fn check(loops: &[Loop]) -> Result<(), String> {
        for (number, one) in loops.iter().enumerate() {
            for (other, earlier) in loops[..number].iter().enumerate() {
                for (edge, (from, to)) in one.edges().enumerate() {
                    let same =
                        earlier.edges().position(|(a, b)| (a, b) == (from, to) || (a, b) == (to, from));
                    if let Some(first) = same {
                        return Err(format!(
                            "Duplicate edge: loop {number}, edge {edge} and loop {other}, edge {first}"
                        ));
                    }
                }
            }
        }
        for (number, one) in loops.iter().enumerate() {
            for (other, later) in loops.iter().enumerate().skip(number + 1) {
                if one.contains_or_crosses(later).is_none() {
                    return Err(format!("Loop {number} crosses loop {other}"));
                }
            }
        }
        Ok(())
    }

    /// Whether a hole lies within another.
    pub fn has_nested_holes(&self) -> bool {
        let holes = &self.loops[1..];
        holes.iter().enumerate().any(|(at, hole)| {
            holes.iter().enumerate().any(|(other, outer)| other != at && outer.contains_loop(hole))
        })
    }

    /// The number of a hole that has more than one vertex in common with the first loop.
    pub fn hole_sharing_vertices(&self) -> Option<usize> {
        let outer = self.loops[0].vertices();
        let shared = |hole: &Loop| hole.vertices().iter().filter(|vertex| outer.contains(vertex)).count();
        self.loops.iter().skip(1).position(|hole| shared(hole) > 1).map(|at| at + 1)
    }

    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    pub fn bounding(&self) -> &Bounding {
        self.loops[0].bounding()
    }

    fn has_holes(&self) -> bool {
        self.loops.len() > 1
    }

    pub fn contains_point(&self, point: &Point) -> bool {
        let mut loops = self.loops.iter();
        let outer = loops.next().is_some_and(|outer| outer.contains(point));
        outer && loops.fold(true, |inside, hole| inside ^ hole.contains(point))
    }

    /// Whether a point is inside, or its leaf cell touches the inside.
    pub fn contains_leaf(&self, point: &Point) -> bool {
        self.may_have_leaf(point)
            && (self.contains_point(point)
                || (!self.is_far_from_edges(point) && self.intersects_cell(&leaf_cell(point))))
    }

    /// Whether the leaf cell of a point touches the inside.
    pub fn intersects_leaf(&self, point: &Point) -> bool {
        self.may_have_leaf(point)
            && match self.is_far_from_edges(point) {
                true => self.contains_point(point),
                false => self.intersects_cell(&leaf_cell(point)),
            }
    }

    fn may_have_leaf(&self, point: &Point) -> bool {
        self.bounding().may_intersect(&Bounding { centre: *point, radius: 1e-8 })
    }

    fn is_far_from_edges(&self, point: &Point) -> bool {
        self.loops.iter().all(|one| one.is_far_from_edges(point))
    }

    pub fn intersects_cell(&self, cell: &Cell) -> bool {
        match &self.loops[..] {
            [outer] => outer.intersects_cell(cell),
            _ => self.intersects(&Polygon::simple(Loop::of_cell(cell))),
        }
    }

    pub fn contains_cell(&self, cell: &Cell) -> bool {
        match &self.loops[..] {
            [outer] => outer.contains_cell(cell),
            _ => self.contains(&Polygon::simple(Loop::of_cell(cell))),
        }
    }

    pub fn contains(&self, other: &Polygon) -> bool {
        if !self.has_holes() && !other.has_holes() {
            return self.loops[0].contains_loop(&other.loops[0]);
        }
        // The other's outer loop is inside, and our holes are outside of the other.
        self.contains_or_crosses(&other.loops[0]) == Some(true)
            && self.loops[1..].iter().all(|hole| other.contains_or_crosses(hole) == Some(false))
    }

    pub fn intersects(&self, other: &Polygon) -> bool {
        if !self.has_holes() && !other.has_holes() {
            return self.loops[0].intersects(&other.loops[0]);
        }
        self.contains_or_crosses(&other.loops[0]) != Some(false)
            || other.contains_or_crosses(&self.loops[0]) != Some(false)
    }

    /// Whether a loop is inside; none where boundaries cross.
    fn contains_or_crosses(&self, other: &Loop) -> Option<bool> {
        self.loops.iter().try_fold(false, |inside, one| Some(inside ^ one.contains_or_crosses(other)?))
    }

    pub fn contains_line(&self, line: &Polyline) -> bool {
        if !self.bounding().may_intersect(line.bounding()) {
            return false;
        }
        let parts = self.clip(line, false);
        let [(first, last)] = &parts[..] else { return false };
        let (Some(start), Some(end)) = (line.vertices().first(), line.vertices().last()) else {
            return false;
        };
        // Where a line leaves and comes back at one point, the parts before and behind become one. What it did outside
        // has a vertex.
        let is_inside = |vertex: &Point| self.distance(vertex) <= CLIPPED_MAX;
        angle(first, start) <= CLIPPED_MAX
            && angle(last, end) <= CLIPPED_MAX
            && line.vertices().iter().all(is_inside)
    }

    pub fn intersects_line(&self, line: &Polyline) -> bool {
        self.bounding().may_intersect(line.bounding()) && !self.clip(line, false).is_empty()
    }

    /// The ends of the parts of a line that are inside, or of those that are outside.
    fn clip(&self, line: &Polyline, outside: bool) -> Vec<(Point, Point)> {
        let mut parts: Vec<(Point, Point)> = Vec::new();
        let Some(start) = line.vertices().first() else { return parts };
        let mut inside = self.contains_point(start) ^ outside;
        let mut cuts: Vec<(f64, Point)> = Vec::new();
        for (from, to) in line.edges() {
            cuts.clear();
            self.cut(from, to, &mut cuts);
            if inside {
                cuts.push((0.0, *from));
            }
            inside = cuts.len() % 2 == 1;
            if inside {
                cuts.push((1.0, *to));
            }
            cuts.sort_by(|a, b| a.0.total_cmp(&b.0));
            for pair in cuts.chunks_exact(2) {
                let ((_, first), (_, last)) = (pair[0], pair[1]);
                if pair[0] == pair[1] {
                    continue;
                }
                match parts.last_mut() {
                    Some((_, end)) if angle(end, &first) <= INTERSECTION_TOLERANCE => *end = last,
                    _ => parts.push((first, last)),
                }
            }
        }
        parts
    }

    /// Where an edge crosses the boundary: how far along the edge, and the point.
    fn cut(&self, from: &Point, to: &Point, cuts: &mut Vec<(f64, Point)>) {
        for one in &self.loops {
            let Some(first) = one.vertices().first() else { continue };
            let mut crosser = Crosser::new(from, to, first);
            for (a, b) in one.edges() {
                match crosser.meets(b) {
                    Meeting::Apart => {}
                    Meeting::Crossing => {
                        let point = intersection(from, to, a, b);
                        cuts.push((fraction(&point, from, to), point));
                    }
                    Meeting::SharedVertex if crosses_at_vertex(from, to, a, b) => {
                        let at_start = from == a || from == b;
                        cuts.push(if at_start { (0.0, *from) } else { (1.0, *to) });
                    }
                    Meeting::SharedVertex => {}
                }
            }
        }
    }

    /// From a point to the nearest point of the polygon, in radians.
    pub fn distance(&self, point: &Point) -> f64 {
        if self.contains_point(point) { 0.0 } else { self.distance_to_edges(point) }
    }

    /// From a point to the nearest edge, in radians.
    pub fn distance_to_edges(&self, point: &Point) -> f64 {
        self.loops.iter().map(|one| one.distance_to_edges(point)).fold(f64::INFINITY, f64::min)
    }
}

/// What lies to the left of one loop, however large that is.
#[derive(Debug, Clone)]
pub struct StrictPolygon {
    boundary: Loop,
    /// The smaller part, which is the inside or the outside.
    smaller: Polygon,
    inside_is_smaller: bool,
    line: Polyline,
}

impl StrictPolygon {
    /// Of a checked loop.
    pub fn new(boundary: Loop) -> StrictPolygon {
        let closed = boundary.vertices().iter().chain(boundary.vertices().first()).copied().collect();
        StrictPolygon {
            inside_is_smaller: boundary.is_normalised(),
            smaller: Polygon::simple(boundary.clone().normalised()),
            line: Polyline::new(closed),
            boundary,
        }
    }

    pub fn bounding(&self) -> Bounding {
        if self.inside_is_smaller { *self.smaller.bounding() } else { Bounding::WHOLE }
    }

    pub fn contains_leaf(&self, point: &Point) -> bool {
        self.boundary.contains(point) || self.intersects_cell(&leaf_cell(point))
    }

    pub fn intersects_cell(&self, cell: &Cell) -> bool {
        self.boundary.intersects_cell(cell)
    }

    pub fn contains_cell(&self, cell: &Cell) -> bool {
        self.boundary.contains_cell(cell)
    }

    pub fn contains(&self, polygon: &Polygon) -> bool {
        if self.inside_is_smaller {
            self.smaller.contains(polygon)
        } else {
            !self.smaller.intersects(polygon)
        }
    }

    pub fn intersects(&self, polygon: &Polygon) -> bool {
        if self.inside_is_smaller {
            self.smaller.intersects(polygon)
        } else {
            !self.smaller.contains(polygon)
        }
    }

    pub fn contains_line(&self, line: &Polyline) -> bool {
        self.smaller.clip(line, self.inside_is_smaller).is_empty()
    }

    pub fn intersects_line(&self, line: &Polyline) -> bool {
        self.line.intersects(line)
            || line.vertices().first().is_some_and(|start| self.boundary.contains(start))
    }
}
