//! `$geoWithin`, `$within` and `$geoIntersects`.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_geo::{Complaint, Geometry, Shape, parse};

use super::number::short;
use crate::text;

/// How a stored geometry must lie to a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeoRelation {
    Within,
    Intersects,
}

#[derive(Debug, Clone)]
pub struct GeoPredicate {
    pub relation: GeoRelation,
    pub shape: Arc<Shape>,
    /// The operator and its operand as they were given, for explain.
    written: Document,
    /// It is asked of buckets, for measurements with such a place in this field. An index answers it; evaluated on a bucket it is
    /// true.
    of_buckets: Option<Box<str>>,
}

/// The message of a complaint.
pub fn complaint(complaint: &Complaint<'_>) -> String {
    complaint.text(text::value, short)
}

fn bad(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

impl GeoPredicate {
    /// One operator; `siblings` is the document that it stands in, where nothing else may.
    pub(super) fn parse(
        name: &str,
        operand: RawValue<'_>,
        siblings: RawDocument<'_>,
    ) -> Result<GeoPredicate> {
        if let Some((name, value)) = siblings.iter().nth(1) {
            return Err(bad(format!("can't parse extra field: {}", text::element(name, value))));
        }
        let shape = parse_shape(operand)?;
        let relation = match name {
            "$geoIntersects" => GeoRelation::Intersects,
            _ => GeoRelation::Within,
        };
        let refused = |operator: &str| {
            bad(format!("{operator} not supported with provided geometry: {}", text::document(siblings)))
        };
        match (relation, &shape) {
            (GeoRelation::Within, Shape::Geometry(geometry)) if !geometry.has_inside() => {
                return Err(refused("$within"));
            }
            (GeoRelation::Intersects, Shape::Geometry(geometry)) if geometry.is_on_sphere() => {}
            (GeoRelation::Intersects, Shape::Cap(_)) | (GeoRelation::Within, _) => {}
            (GeoRelation::Intersects, _) => return Err(refused("$geoIntersect")),
        }
        Ok(GeoPredicate {
            relation,
            shape: Arc::new(shape),
            written: siblings.to_document(),
            of_buckets: None,
        })
    }

    /// Asks the same of buckets with measurements that have such a place in a field.
    pub fn asked_of_buckets(&self, field: &str) -> GeoPredicate {
        GeoPredicate { of_buckets: Some(field.into()), ..self.clone() }
    }

    /// The field of measurements, where buckets are asked.
    pub fn field_in_buckets(&self) -> Option<&str> {
        self.of_buckets.as_deref()
    }

    pub fn written(&self) -> &Document {
        &self.written
    }

    pub(super) fn matches(&self, value: RawValue<'_>) -> bool {
        match parse::stored(value) {
            Some(Ok(stored)) => self.holds_for(&stored),
            // What is no geometry matches nothing.
            Some(Err(_)) | None => false,
        }
    }

    /// Whether a stored geometry satisfies it.
    pub fn holds_for(&self, stored: &Geometry) -> bool {
        match self.relation {
            GeoRelation::Within => self.shape.contains(stored),
            GeoRelation::Intersects => self.shape.intersects(stored),
        }
    }
}

/// Of several shapes the last one counts.
fn parse_shape(operand: RawValue<'_>) -> Result<Shape> {
    let operand = operand.as_document().ok_or_else(|| bad("geometry must be an object"))?;
    let mut shape = None;
    for (name, value) in operand.iter() {
        if name == "$uniqueDocs" {
            continue;
        }
        match parse::shape(name, value) {
            Some(parsed) => shape = Some(parsed.map_err(|what| bad(complaint(&what)))?),
            None => return Err(bad(format!("unknown geo specifier: {}", text::element(name, value)))),
        }
    }
    shape.ok_or_else(|| bad("geo query doesn't have any geometry"))
}
