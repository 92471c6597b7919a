//! `2d`: a key for each pair of numbers in a field, as a hash of its cell in a square of the plane. The field comes first in the
//! key; the values behind it are held whole. Documents without a pair are not in the index.

use kilim_bson::{RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_geo::geohash::{Grid, Square};
use kilim_geo::planar::{Pair, Rectangle, cap_rectangles};
use kilim_geo::{Shape, parse};
use kilim_query::filter::{GeoRelation, Predicate};
use kilim_query::text::document as shell_text;

use super::{check_numbers, check_one_kind, has_part, option_number, values_at};
use crate::bounds::{Bounds, Cut, Interval, IntervalList, PartTraits, Tightness};
use crate::index::keys::value_at;
use crate::index::kind::{Kind, KindOptions};
use crate::index::{Holds, Index, IndexSpec, KeyPart, KeySet, Multikey};

const NAME: &str = "2d";
const BITS_DEFAULT: u32 = 26;
/// Hashes are binaries of a subtype that users do not have.
const HASH_SUBTYPE: u8 = 128;

#[derive(Debug, Clone, PartialEq)]
pub struct TwoD {
    /// As given, for listIndexes.
    bits: Option<i32>,
    min: Option<f64>,
    max: Option<f64>,
}

impl TwoD {
    pub(crate) fn grid(&self) -> Grid {
        Grid {
            min: self.min.unwrap_or(-180.0),
            max: self.max.unwrap_or(180.0),
            bits: self.bits.map_or(BITS_DEFAULT, |bits| bits as u32),
        }
    }
}

/// Squares of the grid as bounds.
pub(crate) fn square_bounds(squares: &[Square]) -> IntervalList {
    let value = |hash: u64| Value::Binary { subtype: HASH_SUBTYPE, bytes: hash.to_be_bytes().to_vec() };
    let interval =
        |square: &Square| Interval::new(Cut::before(value(square.hash)), Cut::after(value(square.last())));
    IntervalList::union_of(squares.iter().map(interval).collect())
}

/// The pairs in a field: one, or an array of them.
fn pairs(document: RawDocument<'_>, value: RawValue<'_>) -> Result<Vec<Pair>> {
    let inner = match value {
        RawValue::Document(inner) => inner,
        RawValue::Array(array) => array.as_document(),
        _ => return Ok(Vec::new()),
    };
    match inner.iter().next() {
        None => Ok(Vec::new()),
        Some((_, first)) if first.is_number() => Ok(vec![pair(document, value)?]),
        Some(_) => inner
            .iter()
            .map(|(_, element)| match element {
                RawValue::Document(_) | RawValue::Array(_) => pair(document, element),
                _ => {
                    let message = "location object expected, location array not in correct format";
                    Err(Error::location(16804, message))
                }
            })
            .collect(),
    }
}

fn pair(document: RawDocument<'_>, value: RawValue<'_>) -> Result<Pair> {
    let refused = |code: i32, message: &str| {
        Err(Error::location(code, format!("{message} :: caused by :: {}", shell_text(document))))
    };
    let inner = match value {
        RawValue::Document(inner) => inner,
        RawValue::Array(array) => array.as_document(),
        _ => return refused(13026, NOT_LEGACY),
    };
    let mut elements = inner.iter().map(|(_, element)| element);
    let (Some(x), Some(y)) = (elements.next(), elements.next()) else {
        return refused(13068, "geo field only has 1 element");
    };
    match (parse::number(x), parse::number(y)) {
        (Some(x), Some(y)) => Ok(Pair { x, y }),
        _ => refused(13026, NOT_LEGACY),
    }
}

const NOT_LEGACY: &str = "geo values must be 'legacy coordinate pairs' for 2d indexes";

/// What is said of a pair that the grid does not have.
pub(crate) fn outside(grid: &Grid, code: i32, shown: &str) -> Error {
    let text = |number: f64| {
        let shown = kilim_query::text::value(RawValue::Double(number));
        shown.strip_suffix(".0").unwrap_or(&shown).to_owned()
    };
    let (min, max) = (text(grid.min), text(grid.max));
    Error::location(code, format!("point not in interval of [ {min}, {max} ] :: caused by :: {shown}"))
}

impl Kind for TwoD {
    const NAME: Option<&'static str> = Some(NAME);

    fn is_kind_of(key: RawDocument<'_>) -> bool {
        has_part(key, NAME)
    }

    fn of(_key: RawDocument<'_>, _projection: Option<RawDocument<'_>>) -> TwoD {
        TwoD { bits: None, min: None, max: None }
    }

    fn takes_option(name: &str) -> bool {
        matches!(name, "bits" | "min" | "max")
    }

    fn with_options(self, spec: RawDocument<'_>) -> TwoD {
        TwoD {
            bits: option_number(spec, "bits").map(|bits| bits as i32),
            min: option_number(spec, "min"),
            max: option_number(spec, "max"),
        }
    }

    fn parts(key: RawDocument<'_>) -> Vec<KeyPart> {
        let mut parts = KeyPart::fields_of(key);
        parts[0].holds = Holds::Cell;
        // The values behind it are whole arrays too, of which bounds know nothing.
        parts[1..].iter_mut().for_each(|part| part.holds = Holds::Whole);
        parts
    }

    fn check_key(key: RawDocument<'_>) -> Result<()> {
        if has_part(key, NAME) { check_one_kind(key) } else { Ok(()) }
    }

    fn check_options(
        key: RawDocument<'_>,
        _projection: Option<RawDocument<'_>>,
        _options: &KindOptions<'_>,
        spec: RawDocument<'_>,
    ) -> Result<()> {
        let is_plane = |direction: RawValue<'_>| matches!(direction, RawValue::String(NAME));
        if key.iter().filter(|(_, direction)| is_plane(*direction)).count() > 1 {
            return Err(Error::location(16800, "can't have 2 geo fields"));
        }
        if !key.iter().next().is_some_and(|(_, direction)| is_plane(direction)) {
            return Err(Error::location(16801, "2d has to be first in index"));
        }
        check_numbers(spec, &["bits", "min", "max"])?;
        if let Some(collation) = spec.get("collation").and_then(RawValue::as_document)
            && !matches!(collation.get("locale"), Some(RawValue::String("simple")))
        {
            let message = format!("Index type '2d' does not support collation: {}", shell_text(collation));
            return Err(Error::user(ErrorCode::CannotCreateIndex, message)
                .during(&format!("Error in specification {}", shell_text(spec))));
        }
        let bits = option_number(spec, "bits").map_or(BITS_DEFAULT as i64, |bits| bits as i64);
        if !(1..=32).contains(&bits) {
            let message = format!("bits for hash must be > 0 and <= 32, but {bits} bits were specified");
            return Err(Error::user(ErrorCode::InvalidOptions, message));
        }
        let min = option_number(spec, "min").unwrap_or(-180.0);
        let max = option_number(spec, "max").unwrap_or(180.0);
        let is_region = min < max && (max - min).is_finite();
        if !is_region {
            let message = format!(
                "region for hash must be valid and have positive area, but [{min}, {max}] was specified"
            );
            return Err(Error::user(ErrorCode::InvalidOptions, message.to_lowercase()));
        }
        // mongod computes the area, too.
        if !((max - min) * (max - min)).is_finite() {
            return Err(Error::location(4_799_400, "the region for hash is too large"));
        }
        Ok(())
    }

    fn append_options(&self, out: &mut Writer) {
        if let Some(bits) = self.bits {
            out.append("bits", RawValue::Int32(bits));
        }
        if let Some(min) = self.min {
            out.append("min", RawValue::Double(min));
        }
        if let Some(max) = self.max {
            out.append("max", RawValue::Double(max));
        }
    }

    fn add_keys(&self, spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
        let grid = self.grid();
        let path = &spec.key[0].path;
        let (found, mut bits) = values_at(document, path);
        let mut hashes = Vec::new();
        for value in found {
            for pair in pairs(document, value)? {
                if !grid.contains(pair) {
                    return Err(outside(&grid, 13027, &shell_text(document)));
                }
                hashes.push(grid.hash(pair).to_be_bytes());
            }
        }
        if hashes.len() > 1 {
            bits |= Multikey::bit_of(path.components().len() - 1);
        }
        let behind =
            spec.key[1..].iter().map(|part| value_at(document, &part.path).unwrap_or(RawValue::Null));
        let behind: Vec<RawValue<'_>> = behind.collect();
        for hash in &hashes {
            let hash = RawValue::Binary { subtype: HASH_SUBTYPE, bytes: hash };
            out.push(spec, std::iter::once(hash).chain(behind.iter().copied()))?;
        }
        out.sort()?;
        Ok(match bits {
            0 => Multikey::default(),
            bits => Multikey::default().with_bits(vec![bits]),
        })
    }

    fn has_every_document(&self) -> bool {
        false
    }

    fn bounds(
        &self,
        index: &Index,
        part: usize,
        predicate: &Predicate,
        _traits: PartTraits<'_>,
    ) -> Option<Bounds> {
        if index.spec.key[part].holds != Holds::Cell {
            return None;
        }
        match predicate {
            Predicate::Geo(geo)
                if geo.relation == GeoRelation::Within && geo.field_in_buckets().is_none() =>
            {
                let squares = squares(&self.grid(), &geo.shape)?;
                Some(Bounds { intervals: square_bounds(&squares), tightness: Tightness::InexactFetch })
            }
            Predicate::Near(near) if near.centre.is_flat => {
                Some(Bounds { intervals: IntervalList::full(), tightness: Tightness::Exact })
            }
            _ => None,
        }
    }

    /// A field may have several pairs.
    fn may_repeat_records(&self, _index: &Index, _bounds: &[IntervalList]) -> bool {
        true
    }
}

/// The squares that cover a shape; none if it is not one of the plane.
fn squares(grid: &Grid, shape: &Shape) -> Option<Vec<Square>> {
    Some(match shape {
        Shape::Box(rectangle) => grid
            .covering(|square| square.intersects(rectangle), |square| rectangle.contains_rectangle(square)),
        Shape::Polygon(polygon) => grid.covering(|square| square.intersects(polygon.around()), |_| false),
        Shape::Circle(circle) => grid.covering(
            |square| square.distance(circle.centre) <= circle.radius,
            |square| square.reach(circle.centre) <= circle.radius,
        ),
        Shape::Cap(cap) => rectangle_squares(grid, &cap_rectangles(cap.at, cap.radius)),
        Shape::Geometry(_) => return None,
    })
}

/// The squares that cover some rectangles.
pub(crate) fn rectangle_squares(grid: &Grid, rectangles: &[Rectangle]) -> Vec<Square> {
    grid.covering(
        |square| rectangles.iter().any(|rectangle| square.intersects(rectangle)),
        |square| rectangles.iter().any(|rectangle| rectangle.contains_rectangle(square)),
    )
}
