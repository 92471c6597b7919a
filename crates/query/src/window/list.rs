//! `$push`, `$firstN`, `$lastN` and `$addToSet` over a frame that values leave.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kilim_bson::{Array, ArrayBuilder, RawValue, Value, encode_value_with};
use kilim_error::Result;

use super::Slide;
use super::accumulated::count_of;
use crate::accumulator::{Accumulator, Kind, payload};
use crate::expression::{Bindings, Env, Evaluated};

/// The values of the frame, in their order.
pub(super) struct SlidingList {
    accumulator: Arc<Accumulator>,
    /// None where a document gave nothing.
    values: VecDeque<Option<Value>>,
    /// How many are shown.
    n: usize,
    bytes: usize,
}

impl SlidingList {
    pub(super) fn new(accumulator: Arc<Accumulator>, bindings: &Bindings) -> Result<SlidingList> {
        let n = match accumulator.kind {
            Kind::Push => usize::MAX,
            _ => count_of(&accumulator, bindings)?,
        };
        Ok(SlidingList { accumulator, values: VecDeque::new(), n, bytes: 0 })
    }

    fn array(&self) -> Array {
        let mut array = ArrayBuilder::new();
        let skipped = match self.accumulator.kind {
            Kind::LastN => self.values.len().saturating_sub(self.n),
            _ => 0,
        };
        let shown = self.values.iter().skip(skipped).take(self.n);
        for value in shown {
            match (value, self.accumulator.kind) {
                (Some(value), _) => array.push(value.as_raw()),
                (None, Kind::Push) => {}
                (None, _) => array.push(RawValue::Null),
            }
        }
        array.finish()
    }
}

impl Slide for SlidingList {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let value = self.accumulator.input.evaluate(env)?.into_value();
        self.bytes += value.as_ref().map_or(0, |value| payload(value.as_raw()));
        self.values.push_back(value);
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some(Some(value)) = self.values.pop_front() {
            self.bytes -= payload(value.as_raw());
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(self.array().into())
    }

    fn bytes(&self) -> usize {
        self.bytes + self.values.len() * size_of::<Option<Value>>()
    }
}

/// The different values of the frame, in MongoDB's order. Of equals the oldest is shown.
pub(super) struct SlidingSet {
    accumulator: Arc<Accumulator>,
    /// Equal values by their sort key, from the oldest.
    values: BTreeMap<Arc<[u8]>, VecDeque<Value>>,
    /// The key of each document's value.
    keys: VecDeque<Option<Arc<[u8]>>>,
    bytes: usize,
}

impl SlidingSet {
    pub(super) fn new(accumulator: Arc<Accumulator>) -> SlidingSet {
        SlidingSet { accumulator, values: BTreeMap::new(), keys: VecDeque::new(), bytes: 0 }
    }
}

impl Slide for SlidingSet {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        let value = self.accumulator.input.evaluate(env)?;
        let Some(raw) = value.raw() else {
            self.keys.push_back(None);
            return Ok(());
        };
        let mut key = Vec::new();
        encode_value_with(&mut key, raw, false, self.accumulator.collator());
        let key: Arc<[u8]> = key.into();
        self.bytes += key.len() + payload(raw) + size_of::<Value>();
        self.values.entry(key.clone()).or_default().push_back(raw.to_value());
        self.keys.push_back(Some(key));
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if let Some(Some(key)) = self.keys.pop_front()
            && let Some(equals) = self.values.get_mut(&key)
        {
            if let Some(gone) = equals.pop_front() {
                self.bytes -= key.len() + payload(gone.as_raw()) + size_of::<Value>();
            }
            if equals.is_empty() {
                self.values.remove(&key);
            }
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let mut array = ArrayBuilder::new();
        let oldest = self.values.values().filter_map(VecDeque::front);
        oldest.for_each(|value| array.push(value.as_raw()));
        Ok(array.finish().into())
    }

    fn bytes(&self) -> usize {
        self.bytes + self.keys.len() * size_of::<Option<Arc<[u8]>>>()
    }
}
