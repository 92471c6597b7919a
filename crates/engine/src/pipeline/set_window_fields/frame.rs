//! A window function at work: its slide, and where its frame stands in the partition.

use std::cmp::Ordering;
use std::collections::VecDeque;

use kilim_bson::{RawValue, Value, compare};
use kilim_error::{Error, Result};
use kilim_query::expression::{Bindings, Env, Evaluated};
use kilim_query::sort::Sort;
use kilim_query::window::{Frame, RangeBound, RangeBounds, Slide};

use super::Partition;
use crate::operator::{ExecContext, Row};

pub(super) struct Running {
    slide: Box<dyn Slide>,
    frame: Frame,
    /// The path that ranges go by.
    by: Option<kilim_query::expression::FieldPath>,
    /// Ranges go by values that ascend.
    descending: bool,
    /// How many rows have entered the frame, and how many of them have left: places in the partition.
    entered: u64,
    left: u64,
    /// What ranges compare, of each row in the frame.
    places: VecDeque<Value>,
}

impl Running {
    pub(super) fn new(slide: Box<dyn Slide>, frame: Frame, sort: Option<&Sort>) -> Running {
        let part = sort.and_then(|sort| sort.parts().first());
        let by = part.and_then(|part| kilim_query::expression::FieldPath::parse(part.path.as_str()).ok());
        let descending = part.is_some_and(|part| part.descending);
        Running { slide, frame, by, descending, entered: 0, left: 0, places: VecDeque::new() }
    }

    pub(super) fn entered(&self) -> u64 {
        self.entered
    }

    pub(super) fn bytes(&self) -> usize {
        self.slide.bytes() + self.places.len() * size_of::<Value>()
    }

    pub(super) fn value(&mut self) -> Result<Evaluated<'_>> {
        self.slide.value()
    }

    /// Moves the frame to the current row.
    pub(super) fn advance(
        &mut self,
        current: u64,
        partition: &mut Partition,
        bindings: &Bindings,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        match &self.frame {
            Frame::Documents { lower, upper } => {
                let (lower, upper) = (*lower, *upper);
                let place = |by: i64| current as i64 + by;
                // What is out of the frame before it enters does not enter.
                if let Some(lower) = lower
                    && self.left == self.entered
                    && place(lower) > self.entered as i64
                {
                    self.entered = place(lower) as u64;
                    self.left = self.entered;
                }
                while upper.is_none_or(|upper| (self.entered as i64) <= place(upper)) {
                    if !self.enter(partition, bindings, context)? {
                        break;
                    }
                }
                if let Some(lower) = lower {
                    while self.left < self.entered && (self.left as i64) < place(lower) {
                        self.slide.leave()?;
                        self.left += 1;
                    }
                }
                Ok(())
            }
            Frame::UntilKnown => {
                while self.entered <= current || self.slide.is_waiting() {
                    if !self.enter(partition, bindings, context)? {
                        break;
                    }
                }
                Ok(())
            }
            Frame::Range(bounds) => {
                let bounds = bounds.clone();
                self.advance_range(&bounds, current, partition, bindings, context)
            }
        }
    }

    fn advance_range(
        &mut self,
        bounds: &RangeBounds,
        current: u64,
        partition: &mut Partition,
        bindings: &Bindings,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        if self.descending {
            return Err(Error::location(5_429_404, "Missing _sortExpr with range-based bounds"));
        }
        let place = self.place_of(&*partition.rows.get(current)?);
        check_place(bounds, &place)?;
        let upper = threshold(bounds, &bounds.upper, &place)?;
        let lower = threshold(bounds, &bounds.lower, &place)?;
        loop {
            let wanted = match &bounds.upper {
                RangeBound::Unbounded => true,
                RangeBound::Current => self.entered <= current,
                RangeBound::At(_) => true,
            };
            if !wanted {
                break;
            }
            let Some(next) = partition.row(self.entered, context)? else { break };
            let value = self.place_of(&*next);
            drop(next);
            let stands = |bound: &Option<Value>| match bound {
                Some(bound) => order(&value, bound),
                None => Ordering::Equal,
            };
            if stands(&upper).is_gt() {
                break;
            }
            // What is out of the frame before it enters does not enter.
            let gone = match bounds.lower {
                RangeBound::Current => self.entered < current,
                _ => stands(&lower).is_lt(),
            };
            if gone && self.left == self.entered {
                self.entered += 1;
                self.left += 1;
                continue;
            }
            self.enter(partition, bindings, context)?;
            self.places.push_back(value.into_value().unwrap_or(Value::Null));
        }
        while self.left < self.entered {
            let out = match (&bounds.lower, &lower) {
                (RangeBound::Unbounded, _) => false,
                (RangeBound::Current, _) => self.left < current,
                (_, Some(lower)) => {
                    self.places.front().is_some_and(|value| compare(value.as_raw(), lower.as_raw()).is_lt())
                }
                _ => false,
            };
            if !out {
                break;
            }
            self.slide.leave()?;
            self.places.pop_front();
            self.left += 1;
        }
        // A frame that only grows never looks at them.
        if matches!(bounds.lower, RangeBound::Unbounded) {
            self.places.clear();
        }
        Ok(())
    }

    /// Lets the next row of the partition enter; whether there is one.
    fn enter(
        &mut self,
        partition: &mut Partition,
        bindings: &Bindings,
        context: &mut ExecContext<'_>,
    ) -> Result<bool> {
        context.tick()?;
        let Some(row) = partition.row(self.entered, context)? else { return Ok(false) };
        let mut env = Env::new(row.document(), bindings);
        row.describe(&mut env);
        self.slide.enter(&env)?;
        self.entered += 1;
        Ok(true)
    }

    fn place_of(&self, row: &Row) -> Evaluated<'static> {
        match &self.by {
            Some(by) => by.evaluate(row.document()).into_owned(),
            None => Evaluated::Missing,
        }
    }
}

fn order(value: &Evaluated<'_>, bound: &Value) -> Ordering {
    compare(value.raw_or_null(), bound.as_raw())
}

/// Refuses a row from which no range can be measured.
fn check_place(bounds: &RangeBounds, place: &Evaluated<'_>) -> Result<()> {
    let found = place.type_name();
    match (place.raw(), bounds.unit) {
        (Some(RawValue::DateTime(_)), Some(_)) => Ok(()),
        (Some(RawValue::DateTime(_)), None) => Err(Error::location(
            5_429_413,
            "Invalid range: For windows that involve date or time ranges, a unit must be provided.",
        )),
        (_, Some(_)) => Err(Error::location(
            5_429_513,
            format!("Invalid range: Expected the sortBy field to be a Date, but it was {found}"),
        )),
        (Some(value), None) if value.is_number() => Ok(()),
        (_, None) => Err(Error::location(
            5_429_414,
            format!("Invalid range: Expected the sortBy field to be a number, but it was {found}"),
        )),
    }
}

/// How far a range reaches from the current row; none where values do not decide.
fn threshold(bounds: &RangeBounds, bound: &RangeBound, place: &Evaluated<'_>) -> Result<Option<Value>> {
    match bound {
        RangeBound::Unbounded | RangeBound::Current => Ok(None),
        RangeBound::At(distance) => bounds.reach(place, distance).map(Some),
    }
}
