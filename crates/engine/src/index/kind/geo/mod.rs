//! Indexes of places: `2dsphere` over cells of the sphere, `2d` over cells of the plane, `2dsphere_bucket` over cells of the
//! sphere for the measurements of buckets.
//!
//! A part of the key holds cells. Bounds over it are the cells of a covering, and the record decides.

mod bucket;
mod plane;
mod sphere;

use kilim_bson::{Path, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::geo_complaint;
use kilim_query::text::document as shell_text;

pub use bucket::TwoDSphereBucket;
pub(crate) use bucket::check_places;
pub use plane::TwoD;
pub(crate) use plane::{outside, rectangle_squares, square_bounds};
pub use sphere::TwoDSphere;
pub(crate) use sphere::cell_bounds;

use crate::index::Multikey;

/// The values at a path, through arrays on the way but not at its end, and which components met an array.
pub(crate) fn values_at<'a>(document: RawDocument<'a>, path: &Path) -> (Vec<RawValue<'a>>, u64) {
    let (mut values, mut bits) = (Vec::new(), 0);
    collect(document, path, 0, &mut values, &mut bits);
    (values, bits)
}

/// Recursion is bounded by the length of the path.
fn collect<'a>(
    document: RawDocument<'a>,
    path: &Path,
    at: usize,
    values: &mut Vec<RawValue<'a>>,
    bits: &mut u64,
) {
    let Some(value) = document.get(&path.components()[at].name) else { return };
    collect_from(value, path, at, values, bits);
}

/// The same from a value on that the path has at a component.
fn collect_from<'a>(
    value: RawValue<'a>,
    path: &Path,
    at: usize,
    values: &mut Vec<RawValue<'a>>,
    bits: &mut u64,
) {
    let components = path.components();
    if at + 1 == components.len() {
        values.push(value);
        return;
    }
    match value {
        RawValue::Document(below) => collect(below, path, at + 1, values, bits),
        RawValue::Array(array) => {
            *bits |= Multikey::bit_of(at);
            // The next component may be a place in the array.
            if components[at + 1].index.is_some() {
                collect(array.as_document(), path, at + 1, values, bits);
            }
            for element in array.iter() {
                if let RawValue::Document(below) = element {
                    collect(below, path, at + 1, values, bits);
                }
            }
        }
        _ => {}
    }
}

/// A number among an index's options; none if it is not there.
fn option_number(spec: RawDocument<'_>, name: &str) -> Option<f64> {
    spec.get(name).and_then(kilim_geo::parse::number)
}

/// Refuses options that are no numbers.
fn check_numbers(spec: RawDocument<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        if let Some(value) = spec.get(name)
            && !value.is_number()
        {
            let message =
                format!("The field '{name}' must be a number, but got {}", value.element_type().name());
            return Err(Error::user(ErrorCode::TypeMismatch, message)
                .during(&format!("Error in specification {}", shell_text(spec))));
        }
    }
    Ok(())
}

/// The whole number of an option.
fn whole_number(spec: RawDocument<'_>, name: &str) -> Result<Option<i64>> {
    let Some(number) = option_number(spec, name) else { return Ok(None) };
    if number.fract() != 0.0 || number.abs() > 9.2e18 {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!(
                "Expected field \"{name}\" to have a value exactly representable as a 64-bit integer, but found \
                 {name}: {}",
                kilim_query::text::value(spec.get(name).unwrap_or(RawValue::Null))
            ),
        ));
    }
    Ok(Some(number as i64))
}

fn cannot_extract(document: RawDocument<'_>, reason: &str) -> Error {
    Error::location(16755, format!("Can't extract geo keys: {}  {reason}", shell_text(document)))
}

/// The geometry of an element that an index on the sphere is to hold.
fn indexed_geometry(
    document: RawDocument<'_>,
    path: &Path,
    value: RawValue<'_>,
) -> Result<kilim_geo::Geometry> {
    let name = path.components().last().map_or("", |component| &*component.name);
    let geometry = match kilim_geo::parse::stored(value) {
        Some(Ok(geometry)) => geometry,
        Some(Err(what)) => return Err(cannot_extract(document, &geo_complaint(&what))),
        None => {
            let shown = kilim_query::text::value(value);
            let reason = format!("geo element must be an array or object: {name}: {shown}");
            return Err(cannot_extract(document, &reason));
        }
    };
    if !geometry.is_on_sphere() {
        let shown = kilim_query::text::value(value);
        return Err(cannot_extract(document, &format!("can't project geometry into spherical CRS: {shown}")));
    }
    if matches!(geometry, kilim_geo::Geometry::StrictPolygon(_)) {
        return Err(cannot_extract(document, "can't index geometry with strict winding order"));
    }
    Ok(geometry)
}

/// Whether some part of a key is of this kind.
fn has_part(key: RawDocument<'_>, name: &str) -> bool {
    key.iter().any(|(_, direction)| matches!(direction, RawValue::String(given) if given == name))
}

/// An index is of one kind.
fn check_one_kind(key: RawDocument<'_>) -> Result<()> {
    let mut names = key.iter().filter_map(|(_, direction)| direction.as_str());
    let first = names.next();
    if names.any(|name| Some(name) != first) {
        let message = "Can't use more than one index plugin for a single index.";
        return Err(Error::user(ErrorCode::CannotCreateIndex, message));
    }
    Ok(())
}
