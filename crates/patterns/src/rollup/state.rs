//! What is known of a group: enough to say its fields, and to take rows out again where that is possible.

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, Writer, array, doc};
use kilim_error::{Error, Result};
use kilim_query::accumulator::{Accumulator, Kind, Number, State};
use kilim_query::expression::{Bindings, Env};

use super::{Rollup, Row};
use crate::exact_sum::ExactSum;

/// A group, by its accumulators.
#[derive(Debug, Clone)]
pub struct GroupState {
    /// How many rows are in it.
    pub rows: i64,
    parts: Vec<Part>,
}

/// One accumulator's share.
#[derive(Debug, Clone)]
enum Part {
    Sum(ExactSum),
    /// The numbers and their squares.
    Deviation {
        sum: ExactSum,
        squares: ExactSum,
    },
    /// As the accumulator stores itself, from which rows cannot be taken out.
    Standing(Value),
}

/// How an accumulator is kept true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Rows are added and taken out.
    ByDelta,
    /// A row is added where it cannot be wrong; otherwise the group is read anew.
    ByReading,
}

/// What a change did to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// These accumulators lost rows, which [`Rollup::refill`] finds again; the others are done.
    Refill(Vec<usize>),
    /// The state is of no more use: make it again from all of the group's rows.
    ReadAnew,
}

/// An accumulator during a change.
enum Live {
    /// Kept by adding and taking out.
    Delta,
    Standing(State),
    /// What it keeps may not be what it should.
    Lost,
}

/// How each accumulator of a pattern is kept.
pub(super) fn kept(accumulator: &Accumulator) -> Kept {
    match accumulator.kind {
        Kind::Sum | Kind::Avg | Kind::StdDevPop | Kind::StdDevSamp => Kept::ByDelta,
        _ => Kept::ByReading,
    }
}

/// A row that an accumulator fails on is to it as one without the field: the child's write was possible before.
pub(super) fn pass_over(taken: Result<()>) -> Result<()> {
    match taken {
        Err(Error::User(_)) => Ok(()),
        other => other,
    }
}

/// Whether the order in which rows come makes a difference.
fn is_ordered(accumulator: &Accumulator) -> bool {
    matches!(
        accumulator.kind,
        Kind::First | Kind::Last | Kind::Push | Kind::FirstN | Kind::LastN | Kind::MergeObjects
    )
}

impl Rollup {
    /// A group without rows.
    pub fn empty_group(&self, key: RawValue<'_>) -> Result<GroupState> {
        let part = |accumulator: &Accumulator| {
            Ok(match (kept(accumulator), accumulator.kind) {
                (Kept::ByDelta, Kind::StdDevPop | Kind::StdDevSamp) => {
                    Part::Deviation { sum: ExactSum::default(), squares: ExactSum::default() }
                }
                (Kept::ByDelta, _) => Part::Sum(ExactSum::default()),
                (Kept::ByReading, _) => {
                    Part::Standing(accumulator.begin(key, Bindings::none())?.into_value())
                }
            })
        };
        let parts = self.group.fields.iter().map(|(_, accumulator)| part(accumulator));
        Ok(GroupState { rows: 0, parts: parts.collect::<Result<_>>()? })
    }

    /// The state of a group that has these rows, in this order.
    pub fn group_of<'r>(
        &self,
        key: RawValue<'_>,
        rows: impl IntoIterator<Item = &'r Row>,
    ) -> Result<GroupState> {
        let mut state = self.empty_group(key)?;
        let mut standing = self.standing(key, &state)?;
        for row in rows {
            state.rows += 1;
            let env = row.env();
            for (at, (_, accumulator)) in self.group.fields.iter().enumerate() {
                let taken = match &mut standing[at] {
                    Some(state) => accumulator.accumulate(state, &env).map(drop),
                    None => state.parts[at].take(accumulator, &env, 1),
                };
                pass_over(taken)?;
            }
        }
        state.put_back(standing);
        Ok(state)
    }

    /// Takes rows out of a group and puts others in. `newest`: what is put in comes behind everything that is
    /// there.
    pub fn change_group(
        &self,
        key: RawValue<'_>,
        state: &mut GroupState,
        out: &[Row],
        into: &[Row],
        newest: bool,
    ) -> Result<Outcome> {
        state.rows += into.len() as i64 - out.len() as i64;
        if state.rows < 0 {
            return Ok(Outcome::ReadAnew);
        }
        let mut lost = Vec::new();
        for (at, (_, accumulator)) in self.group.fields.iter().enumerate() {
            let mut live = match &state.parts[at] {
                Part::Standing(_) if state.rows == 0 => {
                    Live::Standing(accumulator.begin(key, Bindings::none())?)
                }
                Part::Standing(stored) => {
                    Live::Standing(accumulator.restore(key, Bindings::none(), stored.as_raw())?)
                }
                _ => Live::Delta,
            };
            if let Live::Standing(kept) = &mut live {
                if state.rows > 0 && !self.keep(accumulator, kept, out, into, newest)? {
                    live = Live::Lost;
                }
            } else {
                for (rows, sign) in [(out, -1), (into, 1)] {
                    for row in rows {
                        let env = row.env();
                        pass_over(state.parts[at].take(accumulator, &env, sign))?;
                    }
                }
            }
            match live {
                Live::Standing(kept) => state.set_standing(at, kept),
                Live::Lost => lost.push(at),
                Live::Delta => {}
            }
        }
        Ok(match lost.iter().all(|part| self.walk(*part).is_some()) {
            _ if lost.is_empty() => Outcome::Done,
            true => Outcome::Refill(lost),
            false => Outcome::ReadAnew,
        })
    }

    /// Changes a state from which rows cannot be taken out; false where it cannot know what it keeps now.
    fn keep(
        &self,
        accumulator: &Accumulator,
        kept: &mut State,
        out: &[Row],
        into: &[Row],
        newest: bool,
    ) -> Result<bool> {
        let env = Row::env;
        if let ([before], [after]) = (out, into)
            && matches!(accumulator.replace(kept, &env(before), &env(after)), Ok(true))
        {
            return Ok(true);
        }
        // What an accumulator fails on is not in it.
        let told = |told: Result<bool>| match told {
            Err(Error::User(_)) => Ok(false),
            told => told,
        };
        for row in out {
            if told(accumulator.may_hold(kept, &env(row)))? {
                return Ok(false);
            }
        }
        for row in into {
            let env = env(row);
            if !newest && (is_ordered(accumulator) || told(accumulator.depends_on_arrival(kept, &env))?) {
                return Ok(false);
            }
            pass_over(accumulator.accumulate(kept, &env).map(drop))?;
        }
        Ok(true)
    }

    /// The accumulators' own states where rows are not taken out.
    fn standing(&self, key: RawValue<'_>, state: &GroupState) -> Result<Vec<Option<State>>> {
        self.group
            .fields
            .iter()
            .zip(&state.parts)
            .map(|((_, accumulator), part)| match part {
                Part::Standing(stored) => {
                    accumulator.restore(key, Bindings::none(), stored.as_raw()).map(Some)
                }
                _ => Ok(None),
            })
            .collect()
    }

    /// The group's document: its `_id` and its fields, before the stages behind the group.
    pub(super) fn group_document(&self, key: RawValue<'_>, state: &GroupState) -> Result<Document> {
        let mut out = Writer::new();
        out.append("_id", key);
        for ((name, accumulator), part) in self.group.fields.iter().zip(&state.parts) {
            let value = match part {
                Part::Sum(sum) if accumulator.kind == Kind::Avg => {
                    sum.mean().map_or(Value::Null, |mean| mean.to_value())
                }
                Part::Sum(sum) => sum.total().to_value(),
                Part::Deviation { sum, squares } => {
                    deviation(sum, squares, accumulator.kind == Kind::StdDevSamp)
                }
                Part::Standing(stored) => {
                    accumulator.finish(accumulator.restore(key, Bindings::none(), stored.as_raw())?)
                }
            };
            out.append(name, value.as_raw());
        }
        Ok(out.finish())
    }

    /// What [`GroupState::to_document`] stored.
    pub fn restore_group(&self, stored: RawDocument<'_>) -> Result<GroupState> {
        let corrupt = || Error::bug("a stored group cannot be read");
        let rows = match stored.get("rows") {
            Some(RawValue::Int64(rows)) => rows,
            _ => return Err(corrupt()),
        };
        let parts = stored.get("parts").and_then(RawValue::as_array).ok_or_else(corrupt)?;
        let parts: Option<Vec<Part>> = parts.iter().map(Part::decode).collect();
        let parts = parts.filter(|parts| parts.len() == self.group.fields.len()).ok_or_else(corrupt)?;
        Ok(GroupState { rows, parts })
    }
}

impl GroupState {
    /// All of it, to be stored.
    pub fn to_document(&self) -> Document {
        let parts: Array = self.parts.iter().map(Part::encode).collect();
        doc! {"rows": self.rows, "parts": parts}
    }

    pub(super) fn set_standing(&mut self, part: usize, state: State) {
        self.parts[part] = Part::Standing(state.into_value());
    }

    fn put_back(&mut self, standing: Vec<Option<State>>) {
        for (part, state) in self.parts.iter_mut().zip(standing) {
            if let Some(state) = state {
                *part = Part::Standing(state.into_value());
            }
        }
    }
}

impl Part {
    fn take(&mut self, accumulator: &Accumulator, env: &Env<'_>, sign: i64) -> Result<()> {
        let value = accumulator.input.evaluate(env)?;
        let Some(number) = Number::of_evaluated(&value) else { return Ok(()) };
        let put =
            |sum: &mut ExactSum, number: Number| if sign > 0 { sum.add(number) } else { sum.remove(number) };
        match self {
            Part::Sum(sum) => put(sum, number),
            Part::Deviation { sum, squares } => {
                let value = number.to_f64();
                put(sum, Number::Double(value));
                // The square to its last bit: what the product loses stands beside it.
                let square = value * value;
                put(squares, Number::Double(square));
                let lost = value.mul_add(value, -square);
                if lost.is_finite() && square.is_finite() {
                    put(squares, Number::Double(lost));
                }
            }
            Part::Standing(_) => {}
        }
        Ok(())
    }

    fn encode(&self) -> Value {
        Value::Array(match self {
            Part::Sum(sum) => array![0, sum.to_array()],
            Part::Deviation { sum, squares } => array![1, sum.to_array(), squares.to_array()],
            Part::Standing(stored) => array![2, stored.clone()],
        })
    }

    fn decode(stored: RawValue<'_>) -> Option<Part> {
        let stored = stored.as_array()?;
        Some(match stored.get(0)? {
            RawValue::Int32(0) => Part::Sum(ExactSum::from_array(stored.get(1)?)?),
            RawValue::Int32(1) => Part::Deviation {
                sum: ExactSum::from_array(stored.get(1)?)?,
                squares: ExactSum::from_array(stored.get(2)?)?,
            },
            RawValue::Int32(2) => Part::Standing(stored.get(1)?.to_value()),
            _ => return None,
        })
    }
}

/// From exact sums: rounded at the end only.
fn deviation(sum: &ExactSum, squares: &ExactSum, sample: bool) -> Value {
    let count = sum.count();
    let over = if sample { count - 1 } else { count };
    if over <= 0 {
        return Value::Null;
    }
    let distance = sum.distance(squares);
    Value::Double((distance / count as f64 / over as f64).sqrt())
}
