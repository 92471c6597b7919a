//! Geometries as documents hold them, and shapes as queries give them: containment, intersection, distance.
//!
//! A point is tested as its leaf cell, of about a centimetre, so that the points of an edge are inside. What is planar
//! (`$box`, `$polygon`, `$center`) knows points only.

use s2::cap::Cap;
use s2::cellid::CellID;
use s2::point::Point;
use s2::r3::vector::Vector;
use s2::region::Region;
use s2::s1::angle::{Angle, Rad};

use crate::leaf::leaf_cell;
use crate::orientation::angle;
use crate::planar::{Circle, Pair, PlanarPolygon, Rectangle};
use crate::polygon::{Polygon, StrictPolygon};
use crate::polyline::Polyline;

/// A point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    pub at: Pair,
    /// It was given as a legacy pair, of which nobody knows whether it is on the earth.
    pub is_flat: bool,
}

impl Place {
    pub fn flat(at: Pair) -> Place {
        Place { at, is_flat: true }
    }

    /// A longitude and a latitude.
    pub fn on_sphere(at: Pair) -> Place {
        Place { at, is_flat: false }
    }

    /// The point of the sphere; none if a pair has no such meaning.
    pub fn point(&self) -> Option<Point> {
        self.at.on_sphere()
    }
}

impl Pair {
    /// The point of the sphere at this longitude and latitude, if it is one.
    pub fn on_sphere(self) -> Option<Point> {
        if !self.is_on_earth() {
            return None;
        }
        let (lng, lat) = (self.x * (std::f64::consts::PI / 180.0), self.y * (std::f64::consts::PI / 180.0));
        let (sin_lng, cos_lng) = lng.sin_cos();
        let (sin_lat, cos_lat) = lat.sin_cos();
        Some(Point(Vector { x: cos_lng * cos_lat, y: sin_lng * cos_lat, z: sin_lat }))
    }
}

/// What a document holds, or `$geometry` gives.
#[derive(Debug, Clone)]
pub enum Geometry {
    Point(Place),
    Line(Polyline),
    Polygon(Polygon),
    /// In queries only: a polygon of strict winding that a document holds matches nothing.
    StrictPolygon(StrictPolygon),
    MultiPoint(Vec<Place>),
    MultiLine(Vec<Polyline>),
    MultiPolygon(Vec<Polygon>),
    Collection(Vec<Geometry>),
}

/// What a query asks about.
#[derive(Debug, Clone)]
pub enum Shape {
    Geometry(Geometry),
    Box(Rectangle),
    Polygon(PlanarPolygon),
    Circle(Circle),
    /// `$centerSphere`.
    Cap(SphericalCap),
}

#[derive(Debug, Clone)]
pub struct SphericalCap {
    pub cap: Cap,
    pub centre: Point,
    /// As given, for the plane of a 2d index.
    pub at: Pair,
    /// In radians.
    pub radius: f64,
}

/// One of the parts that geometries are made of.
#[derive(Clone, Copy)]
pub enum Part<'g> {
    Point(&'g Place),
    Line(&'g Polyline),
    Polygon(&'g Polygon),
    StrictPolygon(&'g StrictPolygon),
}

impl Geometry {
    /// Calls `test` with each part until it answers true; whether it did.
    pub fn any<'g>(&'g self, test: &mut dyn FnMut(Part<'g>) -> bool) -> bool {
        match self {
            Geometry::Point(place) => test(Part::Point(place)),
            Geometry::Line(line) => test(Part::Line(line)),
            Geometry::Polygon(polygon) => test(Part::Polygon(polygon)),
            Geometry::StrictPolygon(polygon) => test(Part::StrictPolygon(polygon)),
            Geometry::MultiPoint(places) => places.iter().any(|place| test(Part::Point(place))),
            Geometry::MultiLine(lines) => lines.iter().any(|line| test(Part::Line(line))),
            Geometry::MultiPolygon(polygons) => polygons.iter().any(|polygon| test(Part::Polygon(polygon))),
            Geometry::Collection(members) => members.iter().any(|member| member.any(test)),
        }
    }

    fn all<'g>(&'g self, test: &mut dyn FnMut(Part<'g>) -> bool) -> bool {
        !self.any(&mut |part| !test(part))
    }

    /// The pair of a lone point.
    pub fn pair(&self) -> Option<Pair> {
        match self {
            Geometry::Point(place) => Some(place.at),
            _ => None,
        }
    }

    /// Whether it can be asked what is on the sphere: a legacy pair may lie outside of it.
    pub fn is_on_sphere(&self) -> bool {
        !matches!(self, Geometry::Point(place) if !place.at.is_on_earth())
    }

    /// Whether something can be within it.
    pub fn has_inside(&self) -> bool {
        self.any(&mut |part| matches!(part, Part::Polygon(_) | Part::StrictPolygon(_)))
    }

    /// The least distance to a point, in radians; none if it is not on the sphere.
    pub fn distance(&self, point: &Point) -> Option<f64> {
        let mut least = None;
        self.any(&mut |part| {
            let distance = match part {
                Part::Point(place) => place.point().map(|place| angle(&place, point)),
                Part::Line(line) => Some(line.distance(point)),
                Part::Polygon(polygon) => Some(polygon.distance(point)),
                Part::StrictPolygon(_) => None,
            };
            if let Some(distance) = distance {
                least = Some(least.map_or(distance, |sofar: f64| sofar.min(distance)));
            }
            false
        });
        least
    }
}

impl Shape {
    pub fn cap(centre: Point, at: Pair, radius: f64) -> Shape {
        let cap = if radius >= std::f64::consts::PI {
            Cap::full()
        } else {
            Cap::from_center_angle(&centre, &Angle::from(Rad(radius)))
        };
        Shape::Cap(SphericalCap { cap, centre, at, radius })
    }

    /// Whether a stored geometry is within.
    pub fn contains(&self, stored: &Geometry) -> bool {
        match self {
            Shape::Box(rectangle) => stored.pair().is_some_and(|pair| rectangle.contains(pair)),
            Shape::Polygon(polygon) => stored.pair().is_some_and(|pair| polygon.contains(pair)),
            Shape::Circle(circle) => stored.pair().is_some_and(|pair| circle.contains(pair)),
            Shape::Cap(cap) => matches_documents(stored) && stored.all(&mut |part| cap.contains(part)),
            Shape::Geometry(geometry) => {
                matches_documents(stored)
                    && stored.all(&mut |part| geometry.any(&mut |outer| part_contains(outer, part)))
            }
        }
    }

    /// Whether a stored geometry has something in common with it. Only `$geometry` asks that.
    pub fn intersects(&self, stored: &Geometry) -> bool {
        match self {
            Shape::Geometry(geometry) => {
                matches_documents(stored)
                    && geometry.any(&mut |part| stored.any(&mut |other| parts_intersect(part, other)))
            }
            _ => false,
        }
    }

    /// Whether it is a shape of the plane.
    pub fn is_planar(&self) -> bool {
        matches!(self, Shape::Box(_) | Shape::Polygon(_) | Shape::Circle(_))
    }
}

/// Pairs outside of the earth and polygons of strict winding match nothing on the sphere.
fn matches_documents(stored: &Geometry) -> bool {
    stored.is_on_sphere() && !matches!(stored, Geometry::StrictPolygon(_))
}

impl SphericalCap {
    fn contains(&self, part: Part<'_>) -> bool {
        let outside = self.outside();
        match part {
            Part::Point(place) => place.point().is_some_and(|point| self.contains_leaf(&point)),
            Part::Line(line) => outside.is_none_or(|(centre, radius)| line.distance(&centre) >= radius),
            Part::Polygon(polygon) => {
                outside.is_none_or(|(centre, radius)| polygon.distance(&centre) >= radius)
            }
            Part::StrictPolygon(_) => false,
        }
    }

    /// Whether the leaf cell of a point touches it.
    pub fn contains_leaf(&self, point: &Point) -> bool {
        const LEAF_CELL_ANGLE: f64 = 1e-8;
        let distance = angle(&self.centre, point);
        if distance < self.radius - LEAF_CELL_ANGLE {
            return true;
        }
        distance < self.radius + LEAF_CELL_ANGLE && self.cap.intersects_cell(&leaf_cell(point))
    }

    /// The cap of all that is not within; none if there is nothing.
    fn outside(&self) -> Option<(Point, f64)> {
        let Vector { x, y, z } = self.centre.0;
        let radius = std::f64::consts::PI - self.radius;
        (radius > 0.0).then_some((Point(Vector { x: -x, y: -y, z: -z }), radius))
    }
}

fn part_contains(outer: Part<'_>, inner: Part<'_>) -> bool {
    match (outer, inner) {
        (Part::Polygon(polygon), Part::Point(place)) => {
            place.point().is_some_and(|point| polygon.contains_leaf(&point))
        }
        (Part::Polygon(polygon), Part::Line(line)) => polygon.contains_line(line),
        (Part::Polygon(polygon), Part::Polygon(other)) => polygon.contains(other),
        (Part::StrictPolygon(polygon), Part::Point(place)) => {
            place.point().is_some_and(|point| polygon.contains_leaf(&point))
        }
        (Part::StrictPolygon(polygon), Part::Line(line)) => polygon.contains_line(line),
        (Part::StrictPolygon(polygon), Part::Polygon(other)) => polygon.contains(other),
        (Part::Point(_) | Part::Line(_), _) | (_, Part::StrictPolygon(_)) => false,
    }
}

fn parts_intersect(asked: Part<'_>, stored: Part<'_>) -> bool {
    match (asked, stored) {
        (Part::Point(a), Part::Point(b)) => match (a.point(), b.point()) {
            (Some(a), Some(b)) => CellID::from(&a) == CellID::from(&b),
            _ => false,
        },
        (Part::Point(place), other) | (other, Part::Point(place)) => {
            let Some(point) = place.point() else { return false };
            match other {
                Part::Line(line) => line.intersects_cell(&leaf_cell(&point)),
                Part::Polygon(polygon) => polygon.intersects_leaf(&point),
                Part::StrictPolygon(polygon) => polygon.intersects_cell(&leaf_cell(&point)),
                Part::Point(_) => false,
            }
        }
        (Part::Line(line), Part::Line(other)) => other.intersects(line),
        (Part::Line(line), Part::Polygon(polygon)) | (Part::Polygon(polygon), Part::Line(line)) => {
            polygon.intersects_line(line)
        }
        (Part::Polygon(polygon), Part::Polygon(other)) => polygon.intersects(other),
        (Part::StrictPolygon(polygon), Part::Line(line)) => polygon.intersects_line(line),
        (Part::StrictPolygon(polygon), Part::Polygon(other)) => polygon.intersects(other),
        (_, Part::StrictPolygon(_)) => false,
    }
}
