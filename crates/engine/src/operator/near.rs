//! Documents in the order of their distance from a point.
//!
//! The index is read in rings around the point, from the inside to the outside. A ring is covered by cells, whose keys are
//! read as an index scan reads them; each document found is measured. When a ring has been read, everything up to its outer
//! edge is known and given in order. What lies farther waits for its ring. A ring that gave little is followed by one that is
//! much larger. How large the first one is follows from the keys next to the point's own, where these say something.
//!
//! Invariant: no document is given before one that is nearer.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::{KeyDecoder, Path, RawDocument, RawValue, Value, encode_value};
use kilim_error::{Error, Result};
use kilim_geo::covering::{key_ranges, ring_cells};
use kilim_geo::planar::cap_rectangles;
use kilim_geo::{CellID, EARTH_RADIUS_METRES, Point, angle, parse};
use kilim_query::filter::{DistanceUnit, Near};
use kilim_storage::{Direction, Space};

use super::index_scan::{Entry, IndexScanner, corrupt};
use super::key_ranges::BEHIND;
use super::{ExecContext, ReadContext, Row, RowData, Stats, Worked};
use crate::bounds::IntervalList;
use crate::index::{IndexKind, geo};
use crate::layout;
use crate::plan::{IndexScan, NearScan};
use crate::records::{Image, Records, RowId};

/// The first ring where neighbours say nothing, as a part of the radius of all: about ten metres.
const FIRST_RING: f64 = 1.5e-6;
/// So many keys are looked at on either side of the point's own.
const NEIGHBOURS: usize = 12;
/// How much larger each ring is, and a ring after one in which nothing was.
const GROWTH: f64 = 2.0;
const GROWTH_IF_EMPTY: f64 = 5.0;
/// A ring that gave more than this is followed by one of the same width.
const ROWS_PER_RING: usize = 300;
/// Inner edges are moved in by this part, so that rounding loses nothing.
const RING_MARGIN: f64 = 1e-9;

/// How far a document is, and which of its places that was.
#[derive(Debug, Clone)]
pub struct Measured {
    pub distance: f64,
    pub place: Value,
}

pub(super) struct NearScanner {
    plan: Arc<NearScan>,
    records: Records,
    centre: Option<Point>,
    /// Distances in radians or in the units of the plane.
    min: f64,
    max: f64,
    /// The ring that is being read, or the last one.
    inner: f64,
    outer: f64,
    /// Everything up to here was found.
    complete: f64,
    scan: Option<IndexScanner>,
    in_ring: usize,
    seen: HashSet<RowId>,
    waiting: BinaryHeap<Waiting>,
}

struct Waiting {
    distance: f64,
    id: RowId,
    image: Image,
    measured: Arc<Measured>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    /// The heap gives the greatest first, so the nearest is the greatest; of equals the one written first.
    fn cmp(&self, other: &Waiting) -> Ordering {
        other.distance.total_cmp(&self.distance).then_with(|| other.id.cmp(&self.id))
    }
}

impl NearScanner {
    pub(super) fn new(plan: Arc<NearScan>, source: &ReadContext) -> NearScanner {
        let near = &plan.near;
        let scale = |distance: f64| match near.unit() {
            DistanceUnit::Metres => distance / EARTH_RADIUS_METRES,
            DistanceUnit::Radians | DistanceUnit::Flat => distance,
        };
        let whole = match (near.unit(), &plan.index.spec.kind) {
            (DistanceUnit::Flat, IndexKind::TwoD(kind)) => {
                let grid = kind.grid();
                // From one corner to the other.
                (grid.max - grid.min) * 1.5
            }
            _ => std::f64::consts::PI,
        };
        let (min, max) = (scale(near.min), scale(near.max).min(whole));
        NearScanner {
            records: source.records.clone(),
            centre: near.centre.point().filter(|_| near.on_sphere),
            min,
            max,
            inner: 0.0,
            outer: min * (1.0 - RING_MARGIN),
            complete: -1.0,
            scan: None,
            in_ring: 0,
            seen: HashSet::new(),
            waiting: BinaryHeap::new(),
            plan,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        context.tick()?;
        if self.waiting.peek().is_some_and(|nearest| nearest.distance <= self.complete) {
            let Some(Waiting { id, image, measured, .. }) = self.waiting.pop() else {
                return Err(Error::bug("a document that waits is gone"));
            };
            return Ok(Worked::Row(Row {
                id,
                data: RowData::Record(image),
                key: None,
                score: Some(measured.distance),
                near: Some(measured),
            }));
        }
        if let Some(scan) = &mut self.scan {
            match scan.work(stats, context)? {
                Worked::Row(row) => self.measure(row.id, stats, context)?,
                Worked::NeedTime => {}
                Worked::Eof => {
                    self.scan = None;
                    self.complete = self.outer;
                }
            }
            return Ok(Worked::NeedTime);
        }
        if self.complete >= self.max {
            return Ok(Worked::Eof);
        }
        self.next_ring()?;
        Ok(Worked::NeedTime)
    }

    fn next_ring(&mut self) -> Result<()> {
        let width = self.outer - self.inner;
        let first = FIRST_RING / std::f64::consts::PI * self.whole();
        let wider = match self.in_ring {
            _ if self.complete < 0.0 => self.reach_of_neighbours()?.unwrap_or(first).max(first),
            0 => (width * GROWTH_IF_EMPTY).max(first),
            rows if rows > ROWS_PER_RING => width,
            _ => width * GROWTH,
        };
        self.inner = self.outer;
        self.outer = (self.inner + wider).min(self.max);
        // A maximum of nothing is one place.
        if self.max - self.outer < first {
            self.outer = self.max;
        }
        self.in_ring = 0;
        let mut bounds = self.plan.bounds.clone();
        let ring = self.ring_bounds()?;
        let part = self.plan.part;
        bounds[part] = if bounds[part].is_full() { ring } else { bounds[part].intersection(&ring) };
        let scan = IndexScan {
            index: self.plan.index.clone(),
            bounds,
            backward: false,
            on_key: Vec::new(),
            shown: None,
            recheck: self.plan.recheck.clone(),
            skipping: None,
            tells_key: false,
            range: None,
        };
        let source = ReadContext { records: self.records.clone(), allow_disk_use: false };
        self.scan = Some(IndexScanner::new(Arc::new(scan), &source));
        Ok(())
    }

    /// How far the nearer half of the keys next to the point's own lie from it: as many documents at least are within that.
    /// Keys that are near each other belong to places that are, though not the other way round.
    fn reach_of_neighbours(&self) -> Result<Option<f64>> {
        let (IndexKind::TwoDSphere(_), Some(centre), 0) =
            (&self.plan.index.spec.kind, &self.centre, self.plan.part)
        else {
            return Ok(None);
        };
        let index = &self.plan.index;
        let (descending, prefix) = (index.spec.key[0].descending, layout::index_prefix(index.id));
        let mut own = prefix.to_vec();
        encode_value(&mut own, RawValue::Int64(CellID::from(centre).0 as i64), descending);
        let last = [&prefix[..], &[BEHIND]].concat();
        let mut distances = Vec::with_capacity(2 * NEIGHBOURS);
        for (lower, upper, direction) in
            [(&own[..], &last[..], Direction::Forward), (&prefix[..], &own[..], Direction::Backward)]
        {
            let (lower, upper) = (Bound::Included(lower), Bound::Excluded(upper));
            let entries = self.records.snapshot().scan(Space::Index, lower, upper, direction);
            for entry in entries.take(NEIGHBOURS) {
                let (entry, value) = entry?;
                let parts = Entry::split(index, &entry, &value)?;
                let decoded = KeyDecoder::new(parts.key, parts.type_bits)
                    .and_then(|mut decoder| decoder.next(descending))
                    .map_err(|_| corrupt(index))?;
                // Version 1 holds nulls too.
                if let Value::Int64(cell) = decoded {
                    distances.push(angle(&Point::from(CellID(cell as u64)), centre));
                }
            }
        }
        if distances.len() < NEIGHBOURS {
            // That is all there is.
            return Ok(Some(std::f64::consts::PI));
        }
        distances.sort_unstable_by(f64::total_cmp);
        Ok(distances.get(NEIGHBOURS - 1).map(|reach| (reach - self.min).max(0.0)))
    }

    /// The largest distance there is.
    fn whole(&self) -> f64 {
        match &self.plan.index.spec.kind {
            IndexKind::TwoD(kind) if self.centre.is_none() => kind.grid().max - kind.grid().min,
            _ => std::f64::consts::PI,
        }
    }

    fn ring_bounds(&self) -> Result<IntervalList> {
        let inner = self.inner * (1.0 - RING_MARGIN);
        let at = self.plan.near.centre.at;
        match (&self.plan.index.spec.kind, &self.centre) {
            (IndexKind::TwoDSphere(kind), Some(centre)) => {
                let outer = self.outer * (1.0 + RING_MARGIN) + 1e-12;
                let cells = ring_cells(centre, inner, outer);
                Ok(geo::cell_bounds(&key_ranges(&cells, kind.levels())))
            }
            (IndexKind::TwoD(kind), Some(_)) => {
                let rectangles = cap_rectangles(at, self.outer);
                Ok(geo::square_bounds(&geo::rectangle_squares(&kind.grid(), &rectangles)))
            }
            (IndexKind::TwoD(kind), None) => {
                let grid = kind.grid();
                if !grid.contains(at) {
                    let pair = [Value::Double(at.x), Value::Double(at.y)];
                    let shown: kilim_bson::Document = ["0", "1"].into_iter().zip(pair).collect();
                    return Err(geo::outside(&grid, 16433, &kilim_query::text::document(shown.as_raw()))
                        .during("Executor error during find command"));
                }
                let squares = grid.covering(
                    |square| square.distance(at) <= self.outer && square.reach(at) >= inner,
                    |square| square.reach(at) <= self.outer && square.distance(at) >= inner,
                );
                Ok(geo::square_bounds(&squares))
            }
            _ => Err(Error::bug("an index that holds no places is read in rings")),
        }
    }

    fn measure(&mut self, id: RowId, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<()> {
        if !self.seen.insert(id) {
            stats.dups_dropped += 1;
            return Ok(());
        }
        stats.docs_examined += 1;
        context.figures.docs_examined += 1;
        let Some(image) = self.records.fetch(id)? else { return Ok(()) };
        let path = &self.plan.index.spec.key[self.plan.part].path;
        let is_plane = matches!(self.plan.index.spec.kind, IndexKind::TwoD(_));
        let centre = self.centre.as_ref();
        let found = nearest(image.document(), path, &self.plan.near, centre, is_plane);
        let Some((distance, place)) = found else { return Ok(()) };
        if distance < self.min || distance > self.max {
            return Ok(());
        }
        self.in_ring += 1;
        let told = match self.plan.near.unit() {
            DistanceUnit::Metres => distance * EARTH_RADIUS_METRES,
            DistanceUnit::Radians | DistanceUnit::Flat => distance,
        };
        let measured = Arc::new(Measured { distance: told, place: place.to_value() });
        self.waiting.push(Waiting { distance, id, image, measured });
        Ok(())
    }
}

/// The nearest place at a path of a document and its distance, in radians or in the units of the plane. `centre`: the point that
/// distances along the sphere are measured from.
fn nearest<'a>(
    document: RawDocument<'a>,
    path: &Path,
    near: &Near,
    centre: Option<&Point>,
    is_plane: bool,
) -> Option<(f64, RawValue<'a>)> {
    let (values, _) = geo::values_at(document, path);
    let places = values.into_iter().flat_map(|value| places(value, is_plane));
    let measured = places.filter_map(|place| Some((distance(place, near, centre)?, place)));
    measured.min_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// The nearest place at a path of a document, where it is neither too near nor too far.
pub(crate) fn measured(document: RawDocument<'_>, path: &Path, near: &Near) -> Option<Measured> {
    let scale = match near.unit() {
        DistanceUnit::Metres => EARTH_RADIUS_METRES,
        DistanceUnit::Radians | DistanceUnit::Flat => 1.0,
    };
    let centre = near.centre.point().filter(|_| near.on_sphere);
    let (distance, place) = nearest(document, path, near, centre.as_ref(), !near.on_sphere)?;
    let is_asked = distance >= near.min / scale && distance <= near.max / scale;
    is_asked.then(|| Measured { distance: distance * scale, place: place.to_value() })
}

/// The places in a value: in a 2d index it may be an array of pairs.
fn places(value: RawValue<'_>, is_plane: bool) -> Vec<RawValue<'_>> {
    let inner = match value {
        RawValue::Document(inner) => inner,
        RawValue::Array(array) => array.as_document(),
        _ => return Vec::new(),
    };
    let is_pair = |inner: RawDocument<'_>| inner.iter().next().is_some_and(|(_, first)| first.is_number());
    match is_plane && !is_pair(inner) {
        true => inner.iter().map(|(_, element)| element).collect(),
        false => vec![value],
    }
}

/// In radians, or in the units of the plane.
fn distance(place: RawValue<'_>, near: &Near, centre: Option<&Point>) -> Option<f64> {
    match centre {
        Some(centre) => match parse::stored(place)?.ok()? {
            kilim_geo::Geometry::Point(place) => place.point().map(|point| angle(&point, centre)),
            geometry => geometry.distance(centre),
        },
        None => {
            let pair = parse::pair(place, true).ok();
            let pair = pair.or_else(|| parse::stored(place)?.ok()?.pair())?;
            Some(pair.distance(near.centre.at))
        }
    }
}
