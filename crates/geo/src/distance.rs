//! Distances on the sphere, in radians, and the earth's radius.

use s2::point::Point;
use s2::r3::vector::Vector;

use crate::orientation::{cross, dot, robust_cross};

/// The radius that distances in metres are computed with, as MongoDB has it.
pub const EARTH_RADIUS_METRES: f64 = 6_378_100.0;

fn is_left(a: &Point, b: &Point, c: &Point) -> bool {
    dot(&cross(c, a), b) > 0.0
}

/// From a point to the nearest point of an edge.
pub fn to_edge(point: &Point, a: &Point, b: &Point) -> f64 {
    let normal = robust_cross(a, b);
    if is_left(&normal, a, point) && is_left(point, b, &normal) {
        let sine = dot(point, &normal).abs() / dot(&normal, &normal).sqrt();
        return sine.min(1.0).asin();
    }
    let square = |end: &Point| {
        let apart = Vector { x: point.0.x - end.0.x, y: point.0.y - end.0.y, z: point.0.z - end.0.z };
        apart.x * apart.x + apart.y * apart.y + apart.z * apart.z
    };
    2.0 * (0.5 * square(a).min(square(b)).sqrt()).min(1.0).asin()
}
