//! `2dsphere_bucket`: an index over the places of measurements. It has keys for the buckets that hold them.
//!
//! A bucket has a key for each of a few cells in which all places of its column lie. The record is unpacked and its measurements
//! decide. Measurements have points only, as on MongoDB.

use kilim_bson::{Path, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_geo::covering::{self, Levels};
use kilim_geo::{Geometry, Point, parse};
use kilim_query::filter::{Predicate, geo_complaint};
use kilim_query::text::document as shell_text;
use kilim_query::time_series::{of_column, values_of_field};

use super::sphere::{self, TwoDSphere};
use super::{check_one_kind, collect_from, has_part, values_at, whole_number};
use crate::bounds::{Bounds, IntervalList, PartTraits, Tightness};
use crate::index::kind::ordered::value_bounds;
use crate::index::kind::{Kind, KindOptions};
use crate::index::{Holds, Index, IndexSpec, KeyPart, KeySet, Multikey};

const NAME: &str = "2dsphere_bucket";

#[derive(Debug, Clone, PartialEq)]
pub struct TwoDSphereBucket(TwoDSphere);

impl TwoDSphereBucket {
    pub(crate) fn has_levels_of(&self, other: &TwoDSphereBucket) -> bool {
        self.0.has_levels_of(&other.0)
    }

    fn levels(&self) -> Levels {
        self.0.levels()
    }
}

/// The point that a value of a measurement is; none where it says nothing of a place.
fn point_of(name: &str, value: RawValue<'_>) -> Result<Option<Point>> {
    match value {
        RawValue::Null | RawValue::Undefined => return Ok(None),
        RawValue::Document(document) if document.is_empty() => return Ok(None),
        RawValue::Array(array) if array.is_empty() => return Ok(None),
        _ => {}
    }
    let refused = |reason: &str| Err(Error::location(183_934, format!("Can't extract geo keys: {reason}")));
    match parse::stored(value) {
        Some(Ok(Geometry::Point(place))) => match place.point() {
            Some(point) => Ok(Some(point)),
            None => refused(&format!(
                "longitude/latitude is out of bounds, lng: {} lat: {}",
                place.at.x, place.at.y
            )),
        },
        Some(Ok(_)) => Err(Error::location(
            183_493,
            "Time-series collections '2dsphere' indexes only support point data",
        )),
        Some(Err(what)) => refused(&geo_complaint(&what)),
        None => {
            let shown = kilim_query::text::value(value);
            refused(&format!("geo element must be an array or object: {name}: {shown}"))
        }
    }
}

/// Refuses a measurement of which an index over the places at a path cannot tell.
pub(crate) fn check_places(measurement: RawDocument<'_>, path: &Path) -> Result<()> {
    let (values, _) = values_at(measurement, path);
    let components = path.components();
    let name = match components {
        [_] => "0",
        components => components.last().map_or("", |last| &*last.name),
    };
    values.into_iter().try_for_each(|value| point_of(name, value).map(|_| ()))
}

/// The points that the measurements of a bucket have at a path.
fn points_of(bucket: RawDocument<'_>, path: &Path) -> Result<Vec<Point>> {
    let components = path.components();
    let mut points = Vec::new();
    values_of_field(bucket, &components[0].name, &mut |number, value| {
        let (mut values, mut bits) = (Vec::new(), 0);
        collect_from(value, path, 0, &mut values, &mut bits);
        let name = if components.len() == 1 { number } else { &components[components.len() - 1].name };
        for value in values {
            points.extend(point_of(name, value)?);
        }
        Ok(())
    })?;
    Ok(points)
}

impl Kind for TwoDSphereBucket {
    const NAME: Option<&'static str> = Some(NAME);

    fn is_kind_of(key: RawDocument<'_>) -> bool {
        has_part(key, NAME)
    }

    fn of(key: RawDocument<'_>, projection: Option<RawDocument<'_>>) -> TwoDSphereBucket {
        TwoDSphereBucket(TwoDSphere::of(key, projection))
    }

    fn takes_option(name: &str) -> bool {
        TwoDSphere::takes_option(name)
    }

    fn with_options(self, spec: RawDocument<'_>) -> TwoDSphereBucket {
        TwoDSphereBucket(self.0.with_options(spec))
    }

    fn parts(key: RawDocument<'_>) -> Vec<KeyPart> {
        let mut parts = KeyPart::fields_of(key);
        for (part, (_, direction)) in parts.iter_mut().zip(key.iter()) {
            if matches!(direction, RawValue::String(NAME)) {
                part.holds = Holds::Cell;
            }
        }
        parts
    }

    fn check_key(key: RawDocument<'_>) -> Result<()> {
        if !has_part(key, NAME) {
            return Ok(());
        }
        check_one_kind(key)?;
        let is_column = |(path, direction): (&str, RawValue<'_>)| {
            !matches!(direction, RawValue::String(NAME))
                || of_column(path).is_some_and(|path| !path.is_empty())
        };
        match key.iter().all(is_column) {
            true => Ok(()),
            false => Err(Error::user(
                ErrorCode::NotImplemented,
                format!("{NAME} indexes over other fields than those of 'data' are not supported by Kilim"),
            )),
        }
    }

    fn check_options(
        key: RawDocument<'_>,
        projection: Option<RawDocument<'_>>,
        options: &KindOptions<'_>,
        spec: RawDocument<'_>,
    ) -> Result<()> {
        let refused = |message: String| {
            Err(Error::user(ErrorCode::CannotCreateIndex, message)
                .during(&format!("Error in specification {}", shell_text(spec))))
        };
        if let Some(collation) = options.collation {
            return refused(format!(
                "Index type '{NAME}' does not support collation: {}",
                shell_text(collation)
            ));
        }
        let version = sphere::VERSION;
        if let Some(given) = whole_number(spec, version)?
            && given != 3
        {
            return refused(format!(
                "unsupported geo index version {{ {version} : {version}: {given} }}, only versions: [3] are supported"
            ));
        }
        TwoDSphere::check_options(key, projection, options, spec)
    }

    fn append_options(&self, out: &mut Writer) {
        self.0.append_options(out);
    }

    fn add_keys(&self, spec: &IndexSpec, bucket: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
        let mut multikey = Multikey::default();
        let mut values: Vec<Vec<RawValue<'_>>> = Vec::with_capacity(spec.key.len());
        let mut has_place = false;
        for (at, part) in spec.key.iter().enumerate() {
            let last = Multikey::bit_of(part.path.components().len() - 1);
            let (mut keys, mut bits) = (Vec::new(), 0);
            match of_column(part.path.as_str()).filter(|_| part.holds == Holds::Cell) {
                Some(path) => {
                    let points = points_of(bucket, &Path::parse(path))?;
                    let cells = covering::points_cells(&points, self.levels());
                    keys.extend(cells.into_iter().map(|cell| RawValue::Int64(cell.0 as i64)));
                    has_place |= !keys.is_empty();
                    if keys.len() > 1 {
                        bits |= last;
                    }
                }
                None => sphere::add_values(bucket, part, &mut keys, &mut bits),
            }
            if keys.is_empty() {
                keys.push(RawValue::Null);
            }
            if bits != 0 {
                multikey.bits.resize(spec.key.len(), 0);
                multikey.bits[at] |= bits;
            }
            values.push(keys);
        }
        if !has_place {
            return Ok(Multikey::default());
        }
        sphere::combine(spec, &values, out)?;
        out.sort()?;
        Ok(multikey)
    }

    fn has_every_document(&self) -> bool {
        false
    }

    fn leading_part(&self, index: &Index) -> usize {
        self.0.leading_part(index)
    }

    fn bounds(
        &self,
        index: &Index,
        part: usize,
        predicate: &Predicate,
        traits: PartTraits<'_>,
    ) -> Option<Bounds> {
        let part = &index.spec.key[part];
        match predicate {
            _ if part.holds != Holds::Cell => value_bounds(&part.path, predicate, traits),
            Predicate::Geo(geo) if geo.field_in_buckets().is_some() => {
                let cells = covering::query_cells(&geo.shape)?;
                let ranges = covering::key_ranges(&cells, self.levels());
                Some(Bounds { intervals: sphere::cell_bounds(&ranges), tightness: Tightness::InexactFetch })
            }
            _ => None,
        }
    }

    /// A bucket has several cells.
    fn may_repeat_records(&self, _index: &Index, _bounds: &[IntervalList]) -> bool {
        true
    }
}
