//! On which side of a great circle a point lies.
//!
//! All questions about loops and lines come down to this one. It is answered as the S2 library of 2011 answers it (Apache
//! License 2.0), because that is what MongoDB contains: where points lie on one great circle, as they do on the equator
//! and on meridians, later versions of S2 decide otherwise.
//!
//! Invariant: `turn(a, b, c)` is 0 exactly if two of the points are equal, `turn(b, c, a)` is the same, and `turn(c, b, a)`
//! is the opposite.

use s2::point::Point;
use s2::r3::vector::Vector;

/// The sum of all rounding errors of a determinant of unit vectors is less than this.
const DETERMINANT_ERROR: f64 = 1.6e-15;

pub fn dot(a: &Point, b: &Point) -> f64 {
    a.0.x * b.0.x + a.0.y * b.0.y + a.0.z * b.0.z
}

pub fn cross(a: &Point, b: &Point) -> Point {
    let (a, b) = (&a.0, &b.0);
    Point(Vector { x: a.y * b.z - a.z * b.y, y: a.z * b.x - a.x * b.z, z: a.x * b.y - a.y * b.x })
}

/// The angle between two vectors, in radians. Precise for small angles too.
pub fn angle(a: &Point, b: &Point) -> f64 {
    let across = cross(a, b);
    dot(&across, &across).sqrt().atan2(dot(a, b))
}

fn plus(a: &Point, factor: f64, b: &Point) -> Point {
    Point(Vector { x: a.0.x + factor * b.0.x, y: a.0.y + factor * b.0.y, z: a.0.z + factor * b.0.z })
}

pub fn unit(a: Point) -> Point {
    let length = dot(&a, &a).sqrt();
    let factor = if length == 0.0 { 0.0 } else { 1.0 / length };
    Point(Vector { x: a.0.x * factor, y: a.0.y * factor, z: a.0.z * factor })
}

/// A cross product that is orthogonal to both even where they nearly coincide. Not of unit length.
pub fn robust_cross(a: &Point, b: &Point) -> Point {
    let across = cross(&plus(b, 1.0, a), &plus(b, -1.0, a));
    if across.0 == Vector::default() { ortho(a) } else { across }
}

/// A fixed direction at a point: from it the edges around a vertex are counted.
pub fn ortho(a: &Point) -> Point {
    let mut fixed = Vector { x: 0.012, y: 0.0053, z: 0.00457 };
    let (x, y, z) = (a.0.x.abs(), a.0.y.abs(), a.0.z.abs());
    // The component before the largest one.
    let before_largest = match (x > y, x > z, y > z) {
        (true, true, _) => &mut fixed.z,
        (false, _, true) => &mut fixed.x,
        _ => &mut fixed.y,
    };
    *before_largest = 1.0;
    unit(cross(a, &Point(fixed)))
}

/// 1 where `a`, `b`, `c` turn to the left, -1 to the right.
pub fn turn(a: &Point, b: &Point, c: &Point) -> i32 {
    turn_across(a, b, c, &cross(a, b))
}

/// [`turn`], given the cross product of `a` and `b`.
pub fn turn_across(a: &Point, b: &Point, c: &Point, across: &Point) -> i32 {
    let determinant = dot(across, c);
    if determinant > DETERMINANT_ERROR {
        1
    } else if determinant < -DETERMINANT_ERROR {
        -1
    } else {
        careful_turn(a, b, c)
    }
}

fn before(a: &Point, b: &Point) -> bool {
    let key = |point: &Point| (point.0.x, point.0.y, point.0.z);
    key(a) < key(b)
}

/// Takes the vertex opposite of the longest edge as the origin, so that differences of near points stay exact. Points that
/// are coplanar as far as numbers tell are moved by (e, e², e³), an e smaller than anything, and then compared.
fn careful_turn(a: &Point, b: &Point, c: &Point) -> i32 {
    if a == b || b == c || c == a {
        return 0;
    }
    let opposed = |a: &Point, b: &Point| if dot(a, b) > 0.0 { -1.0 } else { 1.0 };
    let (sign_ab, sign_bc, sign_ca) = (opposed(a, b), opposed(b, c), opposed(c, a));
    let (ab, bc, ca) = (plus(a, sign_ab, b), plus(b, sign_bc, c), plus(c, sign_ca, a));
    let (length_ab, length_bc, length_ca) = (dot(&ab, &ab), dot(&bc, &bc), dot(&ca, &ca));
    let shorter = |left: f64, right: f64, tie: bool| left < right || (left == right && tie);
    let sign = if shorter(length_ca, length_bc, before(a, b)) {
        if shorter(length_ab, length_bc, before(a, c)) {
            dot(&cross(&ab, &ca), a) * sign_ab
        } else {
            dot(&cross(&ca, &bc), c) * sign_ca
        }
    } else if shorter(length_ab, length_ca, before(b, c)) {
        dot(&cross(&bc, &ab), b) * sign_bc
    } else {
        dot(&cross(&ca, &bc), c) * sign_ca
    };
    if sign != 0.0 {
        return if sign > 0.0 { 1 } else { -1 };
    }
    type Plane = fn(&Point) -> (f64, f64);
    let planes: [Plane; 3] =
        [|point| (point.0.y, point.0.z), |point| (point.0.z, point.0.x), |point| (point.0.x, point.0.y)];
    planes
        .into_iter()
        .map(|plane| planar_turn(plane(a), plane(b), plane(c)))
        .find(|&turn| turn != 0)
        .unwrap_or(0)
}

/// Whether three points in a plane go around the origin to the left.
fn planar_turn(a: (f64, f64), b: (f64, f64), c: (f64, f64)) -> i32 {
    (planar_side(a, b) + planar_side(b, c) + planar_side(c, a)).signum()
}

fn planar_side(a: (f64, f64), b: (f64, f64)) -> i32 {
    let cross = |a: (f64, f64), b: (f64, f64)| a.0 * b.1 - a.1 * b.0;
    let square = |a: (f64, f64)| a.0 * a.0 + a.1 * a.1;
    let factor = if a.0 * b.0 + a.1 * b.1 > 0.0 { -1.0 } else { 1.0 };
    let difference = (a.0 + factor * b.0, a.1 + factor * b.1);
    let (length_a, length_b) = (square(a), square(b));
    let sign = if length_a < length_b || (length_a == length_b && a < b) {
        cross(a, difference) * factor
    } else {
        cross(difference, b)
    };
    if sign > 0.0 {
        1
    } else if sign < 0.0 {
        -1
    } else {
        0
    }
}

/// Whether the edges from `o` to `a`, `b`, `c` are met in this order when one goes around to the left. True if `a` is `b` or
/// `b` is `c`, else false if `a` is `c`.
pub fn in_order(a: &Point, b: &Point, c: &Point, o: &Point) -> bool {
    let sum = i32::from(turn(b, o, a) >= 0) + i32::from(turn(c, o, b) >= 0) + i32::from(turn(a, o, c) > 0);
    sum >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64, z: f64) -> Point {
        unit(Point(Vector { x, y, z }))
    }

    #[test]
    fn turning_is_rotated_and_reversed_with_its_points() {
        // All on the equator: nothing but the last resort decides.
        let points =
            [point(1.0, 0.0, 0.0), point(0.0, 1.0, 0.0), point(-1.0, 0.5, 0.0), point(1.0, 0.2, 0.0)];
        for a in &points {
            for b in &points {
                for c in &points {
                    assert_eq!(turn(a, b, c), turn(b, c, a));
                    assert_eq!(turn(a, b, c), -turn(c, b, a));
                    assert_eq!(turn(a, b, c) == 0, a == b || b == c || c == a);
                }
            }
        }
    }

    #[test]
    fn a_point_to_the_left_is_told_from_one_to_the_right() {
        let (a, b) = (point(1.0, 0.0, 0.0), point(0.0, 1.0, 0.0));
        assert_eq!(turn(&a, &b, &point(0.0, 0.0, 1.0)), 1);
        assert_eq!(turn(&a, &b, &point(0.0, 0.0, -1.0)), -1);
        // Far less above the equator than a determinant tells.
        assert_eq!(turn(&a, &b, &point(1.0, 1.0, 1e-17)), 1);
    }
}
