//! A chain of edges on the sphere.

use s2::cell::Cell;
use s2::point::Point;

use crate::bounding::{Bounding, cell_contains};
use crate::crossing::{Crosser, Meeting};
use crate::distance;

/// At least two vertices, of which no two neighbours are equal.
#[derive(Debug, Clone)]
pub struct Polyline {
    vertices: Vec<Point>,
    bounding: Bounding,
}

impl Polyline {
    pub fn new(vertices: Vec<Point>) -> Polyline {
        Polyline { bounding: Bounding::of(vertices.iter()), vertices }
    }

    pub fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    pub fn bounding(&self) -> &Bounding {
        &self.bounding
    }

    pub fn edges(&self) -> impl Iterator<Item = (&Point, &Point)> {
        self.vertices.windows(2).map(|pair| (&pair[0], &pair[1]))
    }

    /// Whether the lines cross, or have a vertex in common.
    pub fn intersects(&self, other: &Polyline) -> bool {
        self.bounding.may_intersect(&other.bounding)
            && self.edges().any(|(from, to)| meets_chain(from, to, &other.vertices))
    }

    pub fn intersects_cell(&self, cell: &Cell) -> bool {
        if !self.bounding.may_intersect(&Bounding::of_cell(cell)) {
            return false;
        }
        if self.vertices.iter().any(|vertex| cell_contains(cell, vertex)) {
            return true;
        }
        let corners = cell.vertices();
        (0..4).any(|at| meets_chain(&corners[at], &corners[(at + 1) % 4], &self.vertices))
    }

    /// From a point to the nearest point of the line, in radians.
    pub fn distance(&self, point: &Point) -> f64 {
        self.edges().map(|(a, b)| distance::to_edge(point, a, b)).fold(f64::INFINITY, f64::min)
    }
}

/// Whether an edge crosses an edge of a chain or shares a vertex with one.
fn meets_chain(from: &Point, to: &Point, chain: &[Point]) -> bool {
    let Some((first, rest)) = chain.split_first() else { return false };
    let mut crosser = Crosser::new(from, to, first);
    rest.iter().any(|vertex| crosser.meets(vertex) != Meeting::Apart)
}
