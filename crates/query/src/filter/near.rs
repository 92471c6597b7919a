//! `$near`, `$nearSphere` and `$geoNear` on a field.
//!
//! They order documents by their distance from a point, which only an index can do: evaluated on a document they are true. The
//! planner sees to the rest. A filter has one of them at most, at its top.

use kilim_bson::{Document, Path, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_geo::{Place, parse};

use super::geo::complaint;
use super::{Filter, Predicate};
use crate::expression::FoundBy;
use crate::text;

#[derive(Debug, Clone)]
pub struct Near {
    pub centre: Place,
    /// Distances are measured along the sphere. A centre of GeoJSON is always on it.
    pub on_sphere: bool,
    /// In the unit of [`Near::unit`].
    pub min: f64,
    pub max: f64,
    /// The operators as they were given, for explain.
    written: Document,
}

/// What distances are given and told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DistanceUnit {
    /// On the sphere, around a point of GeoJSON.
    Metres,
    /// On the sphere, around a legacy pair.
    Radians,
    /// In the plane.
    Flat,
}

pub(super) fn is_near_operator(name: &str) -> bool {
    matches!(name, "$near" | "$nearSphere" | "$geoNear")
}

fn bad(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

impl Near {
    pub fn written(&self) -> &Document {
        &self.written
    }

    pub fn unit(&self) -> DistanceUnit {
        match (self.centre.is_flat, self.on_sphere) {
            (false, _) => DistanceUnit::Metres,
            (true, true) => DistanceUnit::Radians,
            (true, false) => DistanceUnit::Flat,
        }
    }

    /// The whole document of operators, of which the first must be one of these.
    pub(crate) fn parse(operators: RawDocument<'_>) -> Result<Near> {
        let (name, operand) = operators.iter().next().expect("operators begin with one");
        let misplaced = || bad(format!("near must be first in: {}", text::document(operators)));
        let argument = match operand {
            RawValue::Document(document) if is_near_operator(name) => document,
            RawValue::Array(array) if is_near_operator(name) => array.as_document(),
            _ => return Err(misplaced()),
        };
        let near = match Near::parse_beside(name, operators)? {
            Some(near) => near,
            None => Near::parse_within(argument, operators)?,
        };
        if near.on_sphere && near.centre.is_flat && !near.centre.at.is_on_earth() {
            return Err(bad("Legacy point is out of bounds for spherical query"));
        }
        Ok(near)
    }

    /// `{$near: [0, 0], $maxDistance: 1}`, or a point of GeoJSON in the same place. None where the operand is no point.
    fn parse_beside(name: &str, operators: RawDocument<'_>) -> Result<Option<Near>> {
        let mut found = None;
        let (mut min, mut max) = (0.0, f64::MAX);
        for (name, value) in operators.iter() {
            match name {
                name if is_near_operator(name) => {
                    found = match point(value) {
                        Some(centre) => Some(centre),
                        None => point_with_distance(value)?.map(|(centre, distance)| {
                            max = distance;
                            centre
                        }),
                    };
                }
                "$minDistance" => min = distance(name, value).map_err(|wrong| wrong.located(16893))?,
                "$maxDistance" => max = distance(name, value).map_err(|wrong| wrong.located(16895))?,
                "$uniqueDocs" => {}
                name => {
                    let message = format!("invalid argument in geo near query: {name}");
                    return Err(Error::location(34413, message));
                }
            }
        }
        Ok(found.map(|centre| {
            let on_sphere = name == "$nearSphere" || !centre.is_flat;
            Near { centre, on_sphere, min, max, written: operators.to_document() }
        }))
    }

    /// `{$near: {$geometry: …, $maxDistance: 1}}`.
    fn parse_within(argument: RawDocument<'_>, operators: RawDocument<'_>) -> Result<Near> {
        if let Some((name, value)) = operators.iter().nth(1) {
            return Err(bad(format!(
                "geo near accepts just one argument when querying for a GeoJSON point. Extra field found: {}",
                text::element(name, value)
            )));
        }
        let mut centre = None;
        let (mut min, mut max) = (0.0, f64::MAX);
        for (name, value) in argument.iter() {
            match (name, value) {
                ("$geometry", RawValue::Document(geometry)) if !begins_with_number(geometry) => {
                    let point = parse::geojson_point(geometry).map_err(|what| {
                        bad(format!(
                            "invalid point in geo near query $geometry argument: {}  {}",
                            text::document(geometry),
                            complaint(&what)
                        ))
                    })?;
                    centre = Some(point);
                }
                ("$geometry", RawValue::Document(geometry)) => {
                    return Err(bad(format!(
                        "$near requires geojson point, given {}",
                        text::document(geometry)
                    )));
                }
                ("$geometry", RawValue::Array(array)) => {
                    let given = text::document(array.as_document());
                    return Err(bad(format!("$near requires geojson point, given {given}")));
                }
                ("$geometry", _) => {}
                ("$minDistance", value) => {
                    min = distance(name, value).map_err(|wrong| bad(wrong.message()))?
                }
                ("$maxDistance", value) => {
                    max = distance(name, value).map_err(|wrong| bad(wrong.message()))?
                }
                (name, _) => return Err(bad(format!("invalid argument in geo near query: {name}"))),
            }
        }
        let centre = centre.ok_or_else(|| bad("$geometry is required for geo near query"))?;
        Ok(Near { centre, on_sphere: true, min, max, written: operators.to_document() })
    }
}

fn begins_with_number(document: RawDocument<'_>) -> bool {
    document.iter().next().is_some_and(|(_, first)| first.is_number())
}

/// A legacy pair or a point of GeoJSON.
fn point(value: RawValue<'_>) -> Option<Place> {
    match value {
        RawValue::Document(document) if !begins_with_number(document) => parse::geojson_point(document).ok(),
        value => parse::pair(value, false).ok().map(Place::flat),
    }
}

/// A legacy pair with a distance behind it.
fn point_with_distance(value: RawValue<'_>) -> Result<Option<(Place, f64)>> {
    let document = match value {
        RawValue::Document(document) => document,
        RawValue::Array(array) => array.as_document(),
        _ => return Ok(None),
    };
    let mut elements = document.iter().map(|(_, element)| element).skip(2);
    let Some(distance) = elements.next().and_then(parse::number) else { return Ok(None) };
    if elements.next().is_some() {
        return Ok(None);
    }
    let Ok(pair) = parse::pair(value, true) else { return Ok(None) };
    if distance.is_nan() || distance < 0.0 {
        return Err(Error::location(18522, "max distance must be non-negative"));
    }
    Ok(Some((Place::flat(pair), distance)))
}

/// What is wrong with a distance.
enum WrongDistance<'n> {
    NoNumber(&'n str),
    Negative(&'n str),
}

impl WrongDistance<'_> {
    fn message(&self) -> String {
        match self {
            WrongDistance::NoNumber(name) => format!("{name} must be a number"),
            WrongDistance::Negative(name) => format!("{name} must be non-negative"),
        }
    }

    /// With the code for something that is no number, or the one behind it.
    fn located(self, code: i32) -> Error {
        let code = code + i32::from(matches!(self, WrongDistance::Negative(_)));
        Error::location(code, self.message())
    }
}

fn distance<'n>(name: &'n str, value: RawValue<'_>) -> Result<f64, WrongDistance<'n>> {
    let distance = parse::number(value).ok_or(WrongDistance::NoNumber(name))?;
    if distance >= 0.0 && distance.is_finite() { Ok(distance) } else { Err(WrongDistance::Negative(name)) }
}

impl Filter {
    /// How the documents are found that it lets pass.
    pub fn found_by(&self) -> FoundBy {
        match (self.text(), self.near()) {
            (Some(_), _) => FoundBy::Text,
            (None, Some(_)) => FoundBy::Distance,
            (None, None) => FoundBy::Fields,
        }
    }

    /// The path and operand of `$near`, if the filter has it. It stands at the top or in a conjunction there.
    pub fn near(&self) -> Option<(&Path, &Near)> {
        match self {
            Filter::Field { path, predicate: Predicate::Near(near) } => Some((path, near)),
            Filter::And(children) => children.iter().find_map(|child| match child {
                Filter::Field { path, predicate: Predicate::Near(near) } => Some((path, &**near)),
                _ => None,
            }),
            _ => None,
        }
    }

    /// Refuses `$near` where documents cannot be ordered by it.
    pub(crate) fn check_near(self) -> Result<Filter> {
        let conjuncts = match &self {
            Filter::And(children) => &children[..],
            one => std::slice::from_ref(one),
        };
        let mut number = 0;
        for conjunct in conjuncts {
            match conjunct {
                Filter::Field { predicate: Predicate::Near(_), .. } => number += 1,
                other if has_near(other) => return Err(bad("geo $near must be top-level expr")),
                _ => {}
            }
        }
        if number > 1 {
            return Err(bad("Too many geoNear expressions"));
        }
        Ok(self)
    }
}

fn has_near(filter: &Filter) -> bool {
    match filter {
        Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => children.iter().any(has_near),
        Filter::Field { predicate, .. } => predicate_has_near(predicate),
        _ => false,
    }
}

fn predicate_has_near(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Near(_) => true,
        Predicate::Not(inner) => predicate_has_near(inner),
        Predicate::All(list) | Predicate::ElemMatchValue(list) => list.iter().any(predicate_has_near),
        Predicate::ElemMatchObject(filter) => has_near(filter),
        _ => false,
    }
}
