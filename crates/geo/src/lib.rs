//! Geometry: what GeoJSON and legacy pairs mean, on the sphere and in the plane.
//!
//! Pure functions over BSON values. `parse` makes geometries and shapes of values, `geometry` answers whether one is within
//! another, meets it, and how far it is from a point. `covering` approximates them by cells of the sphere, `geohash` by cells of
//! the plane: that is what indexes hold.
//!
//! Cells, their unions and caps are those of the `s2` crate. Loops, polygons and lines are our own, because that crate has none
//! and because answers must be those of the S2 library in MongoDB (see `orientation`).

mod bounding;
mod complaint;
pub mod covering;
mod crossing;
pub mod distance;
pub mod geohash;
mod geometry;
mod leaf;
mod orientation;
pub mod parse;
pub mod planar;
mod polygon;
mod polyline;
mod spherical_loop;

pub use complaint::Complaint;
pub use distance::EARTH_RADIUS_METRES;
pub use geometry::{Geometry, Part, Place, Shape, SphericalCap};
pub use orientation::angle;
pub use planar::Pair;
pub use s2::cap::Cap;
pub use s2::cellid::CellID;
pub use s2::point::Point;
