//! Indexes over measurements. Such an index is one over the bounds of their buckets.
//!
//! A search takes it that all values between the bounds of a bucket are of one type, and none of them an array. So a bucket
//! of which that is not true has no keys, and is refused. On MongoDB it is the same.

use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, canonical_type};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use kilim_query::time_series::{bounded, of_column};

use super::kind::geo::check_places;
use super::{Holds, KeyPart};

/// What an index over buckets is as one over their measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct OverMeasurements {
    /// The specification in the names of measurements.
    pub spec: Document,
    /// The paths in measurements that its key and its filter name.
    paths: Arc<[Path]>,
    /// The paths of places in measurements that its key names.
    places: Arc<[Path]>,
}

impl OverMeasurements {
    /// For an index with this specification, which over buckets has this key and this filter.
    pub fn new(spec: Document, key: &[KeyPart], partial: Option<&Filter>) -> OverMeasurements {
        let mut paths: Vec<Path> = Vec::new();
        let mut add = |path: &Path| {
            if let Some(path) = bounded(path.as_str()).map(Path::parse)
                && !paths.contains(&path)
            {
                paths.push(path);
            }
        };
        key.iter().for_each(|part| add(&part.path));
        partial.into_iter().for_each(|filter| each_path(filter, &mut add));
        let cells = key.iter().filter(|part| part.holds == Holds::Cell);
        let places = cells.filter_map(|part| of_column(part.path.as_str()).map(Path::parse)).collect();
        OverMeasurements { spec, paths: paths.into(), places }
    }

    /// The paths of places.
    pub fn places(&self) -> &[Path] {
        &self.places
    }

    /// The paths whose bounds tell of all values between them.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Refuses a measurement with an array on the way of one of the paths, or with something else than a point for a place, before
    /// it goes into a bucket.
    pub(crate) fn check_measurement(&self, measurement: RawDocument<'_>) -> Result<()> {
        let meets_array = |path: &Path| {
            let mut value = RawValue::Document(measurement);
            for component in path.components() {
                match value.as_document().and_then(|document| document.get(&component.name)) {
                    Some(RawValue::Array(_)) => return true,
                    Some(below) => value = below,
                    None => return false,
                }
            }
            false
        };
        match self.paths.iter().any(meets_array) {
            true => Err(array()),
            false => self.places.iter().try_for_each(|path| check_places(measurement, path)),
        }
    }

    /// Refuses a bucket of which the index cannot tell.
    pub(super) fn check(&self, bucket: RawDocument<'_>) -> Result<()> {
        let control = bucket.get("control").and_then(RawValue::as_document);
        let side = |name| control.and_then(|control| control.get(name));
        let (Some(min), Some(max)) = (side("min"), side("max")) else { return Err(mixed("control")) };
        self.paths.iter().try_for_each(|path| check_path(min, max, path))
    }
}

/// The paths that a filter names, as far as a partial index may have it.
fn each_path(filter: &Filter, add: &mut impl FnMut(&Path)) {
    match filter {
        Filter::And(children) | Filter::Or(children) => {
            children.iter().for_each(|child| each_path(child, add));
        }
        Filter::Field { path, .. } => add(path),
        _ => {}
    }
}

fn check_path(mut min: RawValue<'_>, mut max: RawValue<'_>, path: &Path) -> Result<()> {
    let kind = |value: RawValue<'_>| canonical_type(value.element_type());
    for component in path.components() {
        // Values of another type have nothing below them.
        let (RawValue::Document(below), RawValue::Document(above)) = (min, max) else { return Ok(()) };
        (min, max) = match (below.get(&component.name), above.get(&component.name)) {
            (Some(min), Some(max)) => (min, max),
            (None, None) => return Ok(()),
            _ => return Err(mixed(path.as_str())),
        };
        if matches!(min, RawValue::Array(_)) || matches!(max, RawValue::Array(_)) {
            return Err(array());
        }
        if kind(min) != kind(max) {
            return Err(mixed(path.as_str()));
        }
    }
    Ok(())
}

fn array() -> Error {
    Error::location(5_930_501, "Indexed measurement field contains an array value")
}

fn mixed(path: &str) -> Error {
    Error::user(
        ErrorCode::CannotBuildIndexKeys,
        format!(
            "a bucket has values of several types at '{path}', of which an index over measurements cannot tell"
        ),
    )
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    #[test]
    fn buckets_of_which_bounds_do_not_tell_are_refused() {
        let key = KeyPart::all_of(doc! {"meta": 1, "control.min.v.x": 1, "control.max.v.x": 1}.as_raw());
        let over = OverMeasurements::new(doc! {"key": {"k": 1, "v.x": 1}}, &key, None);
        assert_eq!(over.paths(), [Path::parse("v.x")]);
        for (min, max, code) in [
            (doc! {"v": {"x": 1}}, doc! {"v": {"x": 5.5}}, None),
            (doc! {"v": 1}, doc! {"v": 2}, None),
            (doc! {}, doc! {}, None),
            (doc! {"v": {"y": 1}}, doc! {"v": {"y": "a"}}, None),
            (doc! {"v": {"x": 1}}, doc! {"v": {"x": "a"}}, Some(ErrorCode::CannotBuildIndexKeys)),
            (doc! {"v": 1}, doc! {"v": {"x": 1}}, Some(ErrorCode::CannotBuildIndexKeys)),
            (doc! {"v": {"x": [1]}}, doc! {"v": {"x": [2]}}, Some(ErrorCode(5_930_501))),
            (doc! {"v": [{"x": 1}]}, doc! {"v": [{"x": 2}]}, Some(ErrorCode(5_930_501))),
        ] {
            let bucket = doc! {"control": {"version": 1, "min": min, "max": max}};
            let refused = over.check(bucket.as_raw()).err().map(|error| error.code());
            assert_eq!(refused, code, "{bucket:?}");
        }
    }
}
