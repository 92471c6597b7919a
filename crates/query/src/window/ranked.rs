//! `$minN`, `$maxN`, `$top`, `$topN`, `$bottom` and `$bottomN` over a frame that documents leave.
//!
//! All of the frame stands in order, by sort key and arrival, because what is not shown now may be shown once better
//! ones have left.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kilim_bson::{ArrayBuilder, Value};
use kilim_error::Result;

use super::Slide;
use super::accumulated::count_of;
use crate::accumulator::{Accumulator, Kind, payload};
use crate::expression::{Bindings, Env, Evaluated};

type Place = (Arc<[u8]>, u64);

pub(super) struct SlidingRanked {
    accumulator: Arc<Accumulator>,
    n: usize,
    values: BTreeMap<Place, Value>,
    /// Where each document of the frame stands; none where it gave nothing to show.
    places: VecDeque<Option<Place>>,
    arrivals: u64,
    bytes: usize,
}

impl SlidingRanked {
    pub(super) fn new(accumulator: Arc<Accumulator>, bindings: &Bindings) -> Result<SlidingRanked> {
        let n = match accumulator.kind {
            Kind::Top | Kind::Bottom => 1,
            _ => count_of(&accumulator, bindings)?,
        };
        Ok(SlidingRanked {
            accumulator,
            n,
            values: BTreeMap::new(),
            places: VecDeque::new(),
            arrivals: 0,
            bytes: 0,
        })
    }
}

impl Slide for SlidingRanked {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let Some(key) = self.accumulator.sort_key(env)? else {
            self.places.push_back(None);
            return Ok(());
        };
        let value = self.accumulator.input.evaluate(env)?.into_value().unwrap_or(Value::Null);
        self.bytes += key.len() + payload(value.as_raw());
        let place: Place = (key.into(), self.arrivals);
        self.arrivals += 1;
        self.values.insert(place.clone(), value);
        self.places.push_back(Some(place));
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some(Some(place)) = self.places.pop_front()
            && let Some(value) = self.values.remove(&place)
        {
            self.bytes -= place.0.len() + payload(value.as_raw());
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let mut array = ArrayBuilder::new();
        let skipped = self.values.len().saturating_sub(self.n);
        match self.accumulator.kind {
            Kind::Top => return Ok(self.values.values().next().map_or(Evaluated::NULL, one)),
            Kind::Bottom => return Ok(self.values.values().next_back().map_or(Evaluated::NULL, one)),
            Kind::MaxN => {
                self.values.values().rev().take(self.n).for_each(|value| array.push(value.as_raw()))
            }
            Kind::BottomN => self.values.values().skip(skipped).for_each(|value| array.push(value.as_raw())),
            _ => self.values.values().take(self.n).for_each(|value| array.push(value.as_raw())),
        }
        Ok(array.finish().into())
    }

    fn bytes(&self) -> usize {
        self.bytes + self.places.len() * (2 * size_of::<Place>() + size_of::<Value>())
    }
}

fn one(value: &Value) -> Evaluated<'_> {
    Evaluated::Raw(value.as_raw())
}
