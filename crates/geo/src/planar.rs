//! Shapes of the plane: `$box`, `$polygon` and `$center`, for points as pairs of numbers.
//!
//! Boxes and circles include their boundary. A polygon includes the points from which a ray to the right crosses its edges an
//! odd number of times, and of its boundary the vertices and the edges along the axes. Of the other edges some are inside and
//! some are not, as on MongoDB.

/// A pair of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    pub x: f64,
    pub y: f64,
}

impl Pair {
    pub fn distance(self, other: Pair) -> f64 {
        let (x, y) = ((self.x - other.x).abs(), (self.y - other.y).abs());
        // Exact along the axes.
        if x == 0.0 {
            y
        } else if y == 0.0 {
            x
        } else {
            (x * x + y * y).sqrt()
        }
    }

    /// Whether it is a longitude and a latitude.
    pub fn is_on_earth(self) -> bool {
        (-180.0..=180.0).contains(&self.x) && (-90.0..=90.0).contains(&self.y)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rectangle {
    pub min: Pair,
    pub max: Pair,
}

impl Rectangle {
    /// Of two corners that lie opposite of each other.
    pub fn of(a: Pair, b: Pair) -> Rectangle {
        Rectangle {
            min: Pair { x: a.x.min(b.x), y: a.y.min(b.y) },
            max: Pair { x: a.x.max(b.x), y: a.y.max(b.y) },
        }
    }

    /// The smallest that holds all points; there is one at least.
    pub fn around(points: &[Pair]) -> Rectangle {
        let mut all = Rectangle::of(points[0], points[0]);
        for point in points {
            all.min = Pair { x: all.min.x.min(point.x), y: all.min.y.min(point.y) };
            all.max = Pair { x: all.max.x.max(point.x), y: all.max.y.max(point.y) };
        }
        all
    }

    pub fn contains(&self, point: Pair) -> bool {
        (self.min.x..=self.max.x).contains(&point.x) && (self.min.y..=self.max.y).contains(&point.y)
    }

    pub fn contains_rectangle(&self, other: &Rectangle) -> bool {
        self.contains(other.min) && self.contains(other.max)
    }

    pub fn intersects(&self, other: &Rectangle) -> bool {
        self.min.x <= other.max.x
            && other.min.x <= self.max.x
            && self.min.y <= other.max.y
            && other.min.y <= self.max.y
    }

    /// How far a point is from the nearest point of it; 0 within.
    pub fn distance(&self, point: Pair) -> f64 {
        let nearest =
            Pair { x: point.x.clamp(self.min.x, self.max.x), y: point.y.clamp(self.min.y, self.max.y) };
        point.distance(nearest)
    }

    /// How far a point is from the farthest point of it.
    pub fn reach(&self, point: Pair) -> f64 {
        let x = (point.x - self.min.x).abs().max((point.x - self.max.x).abs());
        let y = (point.y - self.min.y).abs().max((point.y - self.max.y).abs());
        (x * x + y * y).sqrt()
    }
}

/// A polygon of at least three points.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanarPolygon {
    points: Vec<Pair>,
    around: Rectangle,
}

impl PlanarPolygon {
    pub fn new(points: Vec<Pair>) -> PlanarPolygon {
        PlanarPolygon { around: Rectangle::around(&points), points }
    }

    pub fn around(&self) -> &Rectangle {
        &self.around
    }

    pub fn contains(&self, point: Pair) -> bool {
        let mut crossed = false;
        let next = self.points.iter().cycle().skip(1);
        for (a, b) in self.points.iter().zip(next) {
            let level = a.y == b.y && point.y == a.y && (a.x.min(b.x)..=a.x.max(b.x)).contains(&point.x);
            if level || *a == point {
                return true;
            }
            let beside = point.y > a.y.min(b.y) && point.y <= a.y.max(b.y) && point.x <= a.x.max(b.x);
            if beside && a.y != b.y {
                let crossing = (point.y - a.y) * (b.x - a.x) / (b.y - a.y) + a.x;
                // On a vertical edge.
                if a.x == point.x && point.x == b.x {
                    return true;
                }
                if a.x == b.x || point.x <= crossing {
                    crossed = !crossed;
                }
            }
        }
        crossed
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circle {
    pub centre: Pair,
    pub radius: f64,
}

impl Circle {
    pub fn contains(&self, point: Pair) -> bool {
        point.distance(self.centre) <= self.radius
    }

    pub fn around(&self) -> Rectangle {
        let Circle { centre, radius } = *self;
        Rectangle {
            min: Pair { x: centre.x - radius, y: centre.y - radius },
            max: Pair { x: centre.x + radius, y: centre.y + radius },
        }
    }
}

/// Rectangles of longitude and latitude, in degrees, that hold all points within `radius` radians of a centre.
pub fn cap_rectangles(centre: Pair, radius: f64) -> Vec<Rectangle> {
    // More than rounding and the leaf cells at the boundary make.
    const MARGIN: f64 = 1e-6;
    let degrees = radius.to_degrees() + MARGIN;
    let (south, north) = (centre.y - degrees, centre.y + degrees);
    let band = |west: f64, east: f64| Rectangle {
        min: Pair { x: west, y: south.max(-90.0) },
        max: Pair { x: east, y: north.min(90.0) },
    };
    // Around a pole there are all longitudes.
    if south <= -90.0 || north >= 90.0 {
        return vec![band(-180.0, 180.0)];
    }
    let reach =
        ((degrees.to_radians()).sin() / centre.y.to_radians().cos()).min(1.0).asin().to_degrees() + MARGIN;
    let (west, east) = (centre.x - reach, centre.x + reach);
    if west < -180.0 {
        vec![band(-180.0, east), band(west + 360.0, 180.0)]
    } else if east > 180.0 {
        vec![band(west, 180.0), band(-180.0, east - 360.0)]
    } else {
        vec![band(west, east)]
    }
}
