//! `2dsphere`: a key for each cell of a geometry's covering, as a number. Documents without a geometry are not in the index,
//! unless it is of version 1.

use kilim_bson::{RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_geo::covering::{self, COARSEST_DEFAULT, FINEST_DEFAULT, LEVEL_MAX, Levels};
use kilim_geo::{CellID, Geometry};
use kilim_query::filter::Predicate;
use kilim_query::text::document as shell_text;

use super::{
    cannot_extract, check_numbers, check_one_kind, has_part, indexed_geometry, option_number, values_at,
    whole_number,
};
use crate::bounds::{Bounds, Cut, Interval, IntervalList, PartTraits, Tightness};
use crate::index::kind::ordered::value_bounds;
use crate::index::kind::{Kind, KindOptions};
use crate::index::{Holds, Index, IndexSpec, KeyPart, KeySet, Multikey};

const NAME: &str = "2dsphere";
pub(super) const VERSION: &str = "2dsphereIndexVersion";
const COARSEST: &str = "coarsestIndexedLevel";
const FINEST: &str = "finestIndexedLevel";

/// More keys than this a document has never: combinations of cells and of elements of arrays.
const KEYS_MAX: usize = 100_000;

#[derive(Debug, Clone, PartialEq)]
pub struct TwoDSphere {
    version: i32,
    /// As given, for listIndexes.
    coarsest: Option<i32>,
    finest: Option<i32>,
}

impl TwoDSphere {
    pub(crate) fn has_levels_of(&self, other: &TwoDSphere) -> bool {
        (self.coarsest, self.finest) == (other.coarsest, other.finest)
    }

    /// Version 1 knows points, lines and polygons alone.
    fn takes(&self, geometry: &Geometry) -> bool {
        self.version >= 2 || matches!(geometry, Geometry::Point(_) | Geometry::Line(_) | Geometry::Polygon(_))
    }

    pub(crate) fn levels(&self) -> Levels {
        let level = |given: Option<i32>, default: u8| given.map_or(default, |level| level as u8);
        Levels {
            coarsest: level(self.coarsest, COARSEST_DEFAULT),
            finest: level(self.finest, FINEST_DEFAULT),
            points_as_leaves: self.version >= 3,
        }
    }
}

/// Ranges of cells as bounds.
pub(crate) fn cell_bounds(ranges: &[(CellID, CellID)]) -> IntervalList {
    let number = |cell: CellID| Value::Int64(cell.0 as i64);
    let interval =
        |&(low, high): &(CellID, CellID)| Interval::new(Cut::before(number(low)), Cut::after(number(high)));
    IntervalList::union_of(ranges.iter().map(interval).collect())
}

impl Kind for TwoDSphere {
    const NAME: Option<&'static str> = Some(NAME);

    fn is_kind_of(key: RawDocument<'_>) -> bool {
        has_part(key, NAME)
    }

    fn of(_key: RawDocument<'_>, _projection: Option<RawDocument<'_>>) -> TwoDSphere {
        TwoDSphere { version: 3, coarsest: None, finest: None }
    }

    fn takes_option(name: &str) -> bool {
        matches!(name, VERSION | COARSEST | FINEST)
    }

    fn with_options(self, spec: RawDocument<'_>) -> TwoDSphere {
        let number = |name: &str| option_number(spec, name).map(|number| number as i32);
        TwoDSphere {
            version: number(VERSION).unwrap_or(3),
            coarsest: number(COARSEST),
            finest: number(FINEST),
        }
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
        if has_part(key, NAME) { check_one_kind(key) } else { Ok(()) }
    }

    fn check_options(
        _key: RawDocument<'_>,
        _projection: Option<RawDocument<'_>>,
        _options: &KindOptions<'_>,
        spec: RawDocument<'_>,
    ) -> Result<()> {
        check_numbers(spec, &[VERSION])?;
        for name in [COARSEST, FINEST] {
            if let Some(value) = spec.get(name)
                && !value.is_number()
            {
                let shown = kilim_query::text::value(value);
                let message =
                    format!("The field '{name} has value {name}: {shown}, which is not convertible to bool");
                return Err(Error::user(ErrorCode::TypeMismatch, message)
                    .during(&format!("Error in specification {}", shell_text(spec))));
            }
        }
        if let Some(version) = whole_number(spec, VERSION)?
            && !(1..=3).contains(&version)
        {
            let message = format!(
                "unsupported geo index version {{ {VERSION} : {VERSION}: {version} }}, only versions: [1,2,3] are supported"
            );
            let mut shown = spec.to_document();
            if spec.get("v").is_none() {
                shown.push("v", 2);
            }
            return Err(Error::user(ErrorCode::CannotCreateIndex, message)
                .during(&format!("Error in specification {}", shell_text(shown.as_raw()))));
        }
        let coarsest = whole_number(spec, COARSEST)?.unwrap_or(i64::from(COARSEST_DEFAULT));
        let finest = whole_number(spec, FINEST)?.unwrap_or(i64::from(FINEST_DEFAULT));
        if coarsest < 0 {
            return Err(Error::location(16747, "coarsestIndexedLevel must be >= 0"));
        }
        if finest > i64::from(LEVEL_MAX) {
            return Err(Error::location(16748, "finestIndexedLevel must be <= 30"));
        }
        if finest < coarsest {
            return Err(Error::location(16749, "finestIndexedLevel must be >= coarsestIndexedLevel"));
        }
        Ok(())
    }

    fn append_options(&self, out: &mut Writer) {
        out.append(VERSION, RawValue::Int32(self.version));
        if let Some(level) = self.coarsest {
            out.append(COARSEST, RawValue::Int32(level));
        }
        if let Some(level) = self.finest {
            out.append(FINEST, RawValue::Int32(level));
        }
    }

    fn add_keys(&self, spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
        let mut multikey = Multikey::default();
        let mut note = |part: usize, bits: u64| {
            if bits != 0 {
                multikey.bits.resize(spec.key.len(), 0);
                multikey.bits[part] |= bits;
            }
        };
        let mut values: Vec<Vec<RawValue<'_>>> = Vec::with_capacity(spec.key.len());
        let mut has_geometry = false;
        for (at, part) in spec.key.iter().enumerate() {
            let last = Multikey::bit_of(part.path.components().len() - 1);
            let (mut keys, mut bits) = (Vec::new(), 0);
            if part.holds == Holds::Cell {
                let (found, met) = values_at(document, &part.path);
                bits |= met;
                let is_nothing = |value: &RawValue<'_>| match value {
                    RawValue::Null | RawValue::Undefined => true,
                    RawValue::Document(document) => document.is_empty(),
                    RawValue::Array(array) => array.is_empty(),
                    _ => false,
                };
                // A lone value that says nothing is as good as none.
                let nothing = self.version >= 2 && found.len() == 1 && found.iter().all(is_nothing);
                for value in found.into_iter().filter(|_| !nothing) {
                    let geometry = indexed_geometry(document, &part.path, value)?;
                    if !self.takes(&geometry) {
                        let reason = "given geometry can't be indexed in the old index format";
                        return Err(cannot_extract(document, reason));
                    }
                    let cells = covering::document_cells(&geometry, self.levels());
                    keys.extend(cells.into_iter().map(|cell| RawValue::Int64(cell.0 as i64)));
                }
                has_geometry |= !keys.is_empty();
                if keys.len() > 1 {
                    bits |= last;
                }
            } else {
                add_values(document, part, &mut keys, &mut bits);
            }
            if keys.is_empty() {
                keys.push(RawValue::Null);
            }
            note(at, bits);
            values.push(keys);
        }
        if !has_geometry && self.version >= 2 {
            return Ok(Multikey::default());
        }
        combine(spec, &values, out)?;
        out.sort()?;
        Ok(multikey)
    }

    fn has_every_document(&self) -> bool {
        self.version < 2
    }

    fn leading_part(&self, index: &Index) -> usize {
        index.spec.key.iter().position(|part| part.holds == Holds::Cell).unwrap_or(0)
    }

    fn bounds(
        &self,
        index: &Index,
        part: usize,
        predicate: &Predicate,
        traits: PartTraits<'_>,
    ) -> Option<Bounds> {
        let part = &index.spec.key[part];
        if part.holds != Holds::Cell {
            return value_bounds(&part.path, predicate, traits);
        }
        match predicate {
            Predicate::Geo(geo) if geo.field_in_buckets().is_none() => {
                let cells = covering::query_cells(&geo.shape)?;
                let ranges = covering::key_ranges(&cells, self.levels());
                Some(Bounds { intervals: cell_bounds(&ranges), tightness: Tightness::InexactFetch })
            }
            // What reads the index in the order of distances sees to it.
            Predicate::Near(near) if near.on_sphere => {
                Some(Bounds { intervals: IntervalList::full(), tightness: Tightness::Exact })
            }
            _ => None,
        }
    }

    /// A geometry has several cells.
    fn may_repeat_records(&self, _index: &Index, _bounds: &[IntervalList]) -> bool {
        true
    }
}

/// Adds the values of a part that holds no places, and which components of its path met an array.
pub(super) fn add_values<'a>(
    document: RawDocument<'a>,
    part: &KeyPart,
    keys: &mut Vec<RawValue<'a>>,
    bits: &mut u64,
) {
    let last = Multikey::bit_of(part.path.components().len() - 1);
    let (found, met) = values_at(document, &part.path);
    *bits |= met;
    for value in found {
        match value {
            RawValue::Array(array) if array.is_empty() => {
                *bits |= last;
                keys.push(RawValue::Undefined);
            }
            RawValue::Array(array) => {
                *bits |= last;
                keys.extend(array.iter());
            }
            value => keys.push(value),
        }
    }
}

/// Every combination of the parts' values is a key.
pub(super) fn combine(spec: &IndexSpec, values: &[Vec<RawValue<'_>>], out: &mut KeySet) -> Result<()> {
    if values.iter().map(Vec::len).product::<usize>() > KEYS_MAX {
        let message = format!("more than {KEYS_MAX} keys of one document in the index {}", spec.name);
        return Err(Error::user(ErrorCode::CannotBuildIndexKeys, message));
    }
    let mut places = vec![0; values.len()];
    loop {
        out.push(spec, values.iter().zip(&places).map(|(list, &at)| list[at]))?;
        let next = (0..values.len()).rev().find(|&part| places[part] + 1 < values[part].len());
        let Some(part) = next else { return Ok(()) };
        places[part] += 1;
        places[part + 1..].fill(0);
    }
}
