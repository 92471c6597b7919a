//! Accumulators over a window: `$sum`, `$push`, `$topN` and the others that `$group` has too.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::Result;

use super::bounds::Frame;
use super::deviation::SlidingDeviation;
use super::extreme::SlidingExtreme;
use super::growing::Growing;
use super::list::{SlidingList, SlidingSet};
use super::percentile::SlidingPercentile;
use super::ranked::SlidingRanked;
use super::sum::SlidingSum;
use super::{Asked, Function, Parsed, Slide, failed, unknown_argument};
use crate::accumulator::{Accumulator, Kind};
use crate::expression::{Bindings, Dependencies, Expression};

#[derive(Debug)]
struct Accumulated {
    accumulator: Arc<Accumulator>,
}

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    let no_arguments = matches!(asked.operand, RawValue::Document(operand) if operand.is_empty());
    if asked.name == "$count" && !no_arguments {
        return Err(failed("$count only accepts an empty object as input"));
    }
    asked.check_others(unknown_argument)?;
    let bounds = asked.bounds()?;
    let accumulator = Accumulator::parse_named(asked.name, asked.operand, asked.scope)?;
    let frame = bounds.frame();
    Ok((Arc::new(Accumulated { accumulator: Arc::new(accumulator) }), Some(bounds), frame))
}

impl Function for Accumulated {
    fn begin(&self, frame: &Frame, bindings: &Bindings) -> Result<Box<dyn Slide>> {
        let accumulator = self.accumulator.clone();
        if frame.only_grows() {
            return Ok(Box::new(Growing::new(accumulator, bindings)?));
        }
        Ok(match accumulator.kind {
            Kind::Sum | Kind::Avg => Box::new(SlidingSum::new(accumulator)),
            Kind::StdDevPop | Kind::StdDevSamp => Box::new(SlidingDeviation::new(accumulator)),
            Kind::Min | Kind::Max => Box::new(SlidingExtreme::new(accumulator)),
            Kind::AddToSet => Box::new(SlidingSet::new(accumulator)),
            Kind::Push | Kind::FirstN | Kind::LastN => Box::new(SlidingList::new(accumulator, bindings)?),
            Kind::Median | Kind::Percentile => Box::new(SlidingPercentile::new(accumulator)),
            Kind::MinN | Kind::MaxN | Kind::Top | Kind::TopN | Kind::Bottom | Kind::BottomN => {
                Box::new(SlidingRanked::new(accumulator, bindings)?)
            }
            // These have functions of their own, or none.
            Kind::First | Kind::Last | Kind::MergeObjects => Box::new(Growing::new(accumulator, bindings)?),
        })
    }

    fn operand(&self) -> Value {
        Value::Null
    }

    /// A count is shown as the sum that it is.
    fn to_document(&self, _: &'static str) -> Document {
        match self.accumulator.to_value() {
            Value::Document(document) => document,
            _ => Document::new(),
        }
    }

    fn expressions(&self) -> Vec<&Expression> {
        self.accumulator.expressions().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) {
        self.accumulator.dependencies(needed);
    }
}

/// How many values a function keeps; its expression sees no document.
pub(super) fn count_of(accumulator: &Accumulator, bindings: &Bindings) -> Result<usize> {
    let n = accumulator.n_of(RawDocument::empty(), bindings)?;
    Ok(usize::try_from(n).unwrap_or(usize::MAX))
}
