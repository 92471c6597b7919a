//! `$geoNear`: documents by their distance from a point, with the distance in a field.
//!
//! The read finds and measures them, as for `$near`; the stage itself puts down what was measured. Measurements of a time series are
//! in no index by themselves, so there the stage measures, and a `$match` before it and a `$sort` behind it do the rest
//! ([`GeoNear::over_measurements`]).

use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Value, Writer, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_geo::EARTH_RADIUS_METRES;
use kilim_geo::parse::number;

use super::{Behaviour, Context, Match, SortBy, Stage};
use crate::filter::parse::is_true;
use crate::filter::{DistanceUnit, Filter, Near, Predicate};
use crate::sort::Sort;

#[derive(Debug, Clone)]
pub struct GeoNear {
    pub near: Near,
    /// The field that holds the places; none if that is left to the collection's indexes.
    pub key: Option<Path>,
    pub query: Arc<Filter>,
    distance_field: Path,
    include_locs: Option<Path>,
    multiplier: f64,
    /// It measures by itself, and leaves out what is too near or too far.
    pub measures: bool,
    written: Document,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(options) = value else {
        return Err(Error::location(10065, "invalid parameter: expected an object ($geoNear)"));
    };
    for (name, code, message) in [
        ("limit", 50858, "$geoNear no longer supports the 'limit' parameter. Use a $limit stage instead."),
        ("num", 50857, "$geoNear no longer supports the 'num' parameter. Use a $limit stage instead."),
        ("start", 50856, "$geoNear no longer supports the 'start' argument."),
    ] {
        if options.get(name).is_some() {
            return Err(Error::location(code, message));
        }
    }
    let near = match options.get("near") {
        None => return Err(Error::location(5_860_400, "$geoNear requires a 'near' argument")),
        Some(near @ (RawValue::Document(_) | RawValue::Array(_))) => near,
        Some(_) => {
            let message = "$geoNear requires near argument to be a GeoJSON object or a legacy point(array)";
            return Err(Error::location(5_860_401, message));
        }
    };
    let distance_field = match options.get("distanceField") {
        Some(RawValue::String(name)) => field(name)?,
        _ => return Err(Error::location(16606, "$geoNear requires a 'distanceField' option as a String")),
    };
    let include_locs = match options.get("includeLocs") {
        None => None,
        Some(RawValue::String(name)) => Some(field(name)?),
        Some(_) => {
            return Err(Error::location(16607, "$geoNear requires that 'includeLocs' option is a String"));
        }
    };
    let key = match options.get("key") {
        None => None,
        Some(RawValue::String("")) => {
            return Err(Error::user(
                ErrorCode::BadValue,
                "$geoNear parameter 'key' cannot be the empty string",
            ));
        }
        Some(RawValue::String(name)) => Some(field(name)?),
        Some(other) => {
            let message = format!(
                "$geoNear parameter 'key' must be of type string but found type: {}",
                other.element_type().name()
            );
            return Err(Error::user(ErrorCode::TypeMismatch, message));
        }
    };
    let query = match options.get("query") {
        None => Filter::True,
        Some(RawValue::Document(query)) => Filter::parse_in(query, context.scope)?,
        Some(_) => return Err(Error::user(ErrorCode::TypeMismatch, "query must be an object")),
    };
    let multiplier = distance(options, "distanceMultiplier")?.unwrap_or(1.0);
    let (min, max) = (distance(options, "minDistance")?, distance(options, "maxDistance")?);
    let spherical = options.get("spherical").is_some_and(is_true);
    let mut asked = Writer::new();
    asked.append(if spherical { "$nearSphere" } else { "$near" }, near);
    for (name, distance) in [("$minDistance", min), ("$maxDistance", max)] {
        if let Some(distance) = distance {
            asked.append(name, RawValue::Double(distance));
        }
    }
    let near = Near::parse(asked.finish().as_raw())?;
    out.push(Stage::GeoNear(Box::new(GeoNear {
        near,
        key,
        query: Arc::new(query),
        distance_field,
        include_locs,
        multiplier,
        measures: false,
        written: options.to_document(),
    })));
    Ok(())
}

/// A field that may be written.
fn field(name: &str) -> Result<Path> {
    if name.is_empty() {
        return Err(Error::location(40352, "FieldPath cannot be constructed with empty string"));
    }
    for part in name.split('.') {
        if part.is_empty() {
            return Err(Error::location(15998, "FieldPath field names may not be empty strings."));
        }
        if part.starts_with('$') {
            let message =
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.";
            return Err(Error::location(16410, message));
        }
    }
    Ok(Path::parse(name))
}

fn distance(options: RawDocument<'_>, name: &str) -> Result<Option<f64>> {
    let Some(value) = options.get(name) else { return Ok(None) };
    let Some(distance) = number(value) else {
        return Err(Error::user(ErrorCode::TypeMismatch, format!("{name} must be a number")));
    };
    if distance >= 0.0 {
        return Ok(Some(distance));
    }
    Err(Error::user(ErrorCode::BadValue, format!("{name} must be nonnegative")))
}

impl GeoNear {
    /// What the read filters by, given the field that holds the places.
    pub fn filter(&self, key: &Path) -> Result<Filter> {
        let predicate = Predicate::Near(Box::new(self.near.clone()));
        let near = Filter::Field { path: key.clone(), predicate };
        Filter::all_of(vec![(*self.query).clone(), near]).check_near()
    }

    /// The stages that do the same over the measurements of a time-series collection, behind the one that unpacks them.
    pub fn over_measurements(&self, meta_field: Option<&str>) -> Result<Vec<Stage>> {
        let refused = |code: i32, message: &str| {
            Err(Error::location(code, message).during("Failed to optimize pipeline"))
        };
        let Some(key) = &self.key else {
            return refused(5_892_921, "Must specify 'key' option for $geoNear on a time-series collection");
        };
        if !self.query.is_trivial() {
            let message =
                "Must not specify 'query' for $geoNear on a time-series collection; use $match instead";
            return refused(1_938_439, message);
        }
        let is_meta = meta_field.is_some_and(|meta| *key.components()[0].name == *meta);
        if self.include_locs.is_some() && !is_meta {
            return refused(5_860_208, "$geoNear 'includeLocs' is not supported on time-series metrics");
        }
        let mut stages = Vec::new();
        let max = match self.near.unit() {
            DistanceUnit::Metres => Some(self.near.max / EARTH_RADIUS_METRES),
            DistanceUnit::Radians => Some(self.near.max),
            DistanceUnit::Flat => None,
        };
        // A circle is asked about leaf cells, of about a centimetre. The distance decides.
        if let Some(radius) = max.map(|max| max * (1.0 + 1e-9) + 1e-8).filter(|radius| *radius < 3.0) {
            let at = self.near.centre.at;
            let centre = Value::from(vec![Value::Double(at.x), Value::Double(at.y)]);
            let circle = vec![centre, Value::Double(radius)];
            let mut filter = Document::new();
            filter.push(key.as_str(), doc! {"$geoWithin": {"$centerSphere": circle}});
            stages.push(Stage::Match(Match { filter: Arc::new(Filter::parse(filter.as_raw())?) }));
        }
        stages.push(Stage::GeoNear(Box::new(GeoNear { measures: true, ..self.clone() })));
        let mut order = Document::new();
        order.push(self.distance_field.as_str(), 1);
        stages.push(Stage::Sort(SortBy::new(Arc::new(Sort::parse(order.as_raw())?))));
        Ok(stages)
    }

    /// The document with what was measured of it.
    pub fn apply(&self, document: RawDocument<'_>, distance: f64, place: &Value) -> Document {
        let distance = RawValue::Double(distance * self.multiplier);
        let with_distance = with_value(document, &self.distance_field, distance);
        match &self.include_locs {
            None => with_distance,
            Some(path) => with_value(with_distance.as_raw(), path, place.as_raw()),
        }
    }
}

/// A document with a value at a path. What is on the way and is no document becomes one.
fn with_value(document: RawDocument<'_>, path: &Path, value: RawValue<'_>) -> Document {
    let names: Vec<&str> = path.components().iter().map(|component| &*component.name).collect();
    let mut out = Writer::new();
    write_with(&mut out, document, &names, value);
    out.finish()
}

/// Recursion is bounded by the length of the path.
fn write_with(out: &mut Writer, document: RawDocument<'_>, names: &[&str], value: RawValue<'_>) {
    let Some((name, rest)) = names.split_first() else { return };
    let write_here = |out: &mut Writer, below: RawDocument<'_>| match rest.is_empty() {
        true => out.append(name, value),
        false => {
            out.open_document(name);
            write_with(out, below, rest, value);
            out.close();
        }
    };
    let mut written = false;
    for (own, element) in document.iter() {
        if own == *name && !written {
            write_here(out, element.as_document().unwrap_or(RawDocument::empty()));
            written = true;
        } else {
            out.append(own, element);
        }
    }
    if !written {
        write_here(out, RawDocument::empty());
    }
}

impl Behaviour for GeoNear {
    fn to_document(&self) -> Document {
        doc! {"$geoNear": self.written.clone()}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_put_where_its_path_leads() {
        let given = doc! {"_id": 1, "a": {"b": 1, "c": 2}, "d": 5};
        let put = |path: &str| with_value(given.as_raw(), &Path::parse(path), RawValue::Int32(7));
        assert_eq!(put("x"), doc! {"_id": 1, "a": {"b": 1, "c": 2}, "d": 5, "x": 7});
        assert_eq!(put("a.b"), doc! {"_id": 1, "a": {"b": 7, "c": 2}, "d": 5});
        assert_eq!(put("a.x"), doc! {"_id": 1, "a": {"b": 1, "c": 2, "x": 7}, "d": 5});
        assert_eq!(put("d.e"), doc! {"_id": 1, "a": {"b": 1, "c": 2}, "d": {"e": 7}});
    }
}
