//! What is known of a group: enough to say its fields, and to take rows out again where that is possible.

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, Result};
use kilim_query::accumulator::{Accumulator, Kind, Number, State};
use kilim_query::expression::{Bindings, Env};

use super::{Rollup, Row};
use crate::exact_sum::ExactSum;
use crate::packed;

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
            match part {
                Part::Sum(sum) if accumulator.kind == Kind::Avg => {
                    let mean = sum.mean().map_or(Value::Null, |mean| mean.to_value());
                    out.append(name, mean.as_raw());
                }
                Part::Sum(sum) => out.append(name, sum.total().to_value().as_raw()),
                Part::Deviation { sum, squares } => {
                    let deviation = deviation(sum, squares, accumulator.kind == Kind::StdDevSamp);
                    out.append(name, deviation.as_raw());
                }
                Part::Standing(stored) => {
                    accumulator.append_stored(key, Bindings::none(), stored.as_raw(), name, &mut out)?;
                }
            }
        }
        Ok(out.finish())
    }

    /// What [`GroupState::encode`] wrote; none where it cannot be read, so that the group is made again.
    pub fn restore_group(&self, stored: &[u8]) -> Option<GroupState> {
        let (&FORMAT, mut stored) = stored.split_first()? else { return None };
        let rows = packed::take_long(&mut stored)?;
        let part = |_| Part::decode(&mut stored);
        let parts: Vec<Part> = self.group.fields.iter().map(part).collect::<Option<_>>()?;
        stored.is_empty().then_some(GroupState { rows, parts })
    }
}

/// The first byte of a stored group. On disk.
const FORMAT: u8 = 1;

impl GroupState {
    /// All of it, to be stored. On disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        packed::push(&mut out, self.rows);
        for part in &self.parts {
            part.encode(&mut out);
        }
        out
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

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Part::Sum(sum) => {
                out.push(SUM);
                sum.encode(out);
            }
            Part::Deviation { sum, squares } => {
                out.push(DEVIATION);
                sum.encode(out);
                squares.encode(out);
            }
            Part::Standing(stored) => {
                out.push(STANDING);
                let mut writer = Writer::after(std::mem::take(out));
                writer.append("", stored.as_raw());
                *out = writer.finish_bytes();
            }
        }
    }

    fn decode(stored: &mut &[u8]) -> Option<Part> {
        let (kind, rest) = stored.split_first()?;
        *stored = rest;
        Some(match *kind {
            SUM => Part::Sum(ExactSum::decode(stored)?),
            DEVIATION => {
                Part::Deviation { sum: ExactSum::decode(stored)?, squares: ExactSum::decode(stored)? }
            }
            STANDING => {
                let length = usize::try_from(i32::from_le_bytes(*stored.first_chunk()?)).ok()?;
                let (document, rest) = stored.split_at_checked(length)?;
                *stored = rest;
                Part::Standing(RawDocument::parse(document).ok()?.get("")?.to_value())
            }
            _ => return None,
        })
    }
}

/// What a part is. On disk.
const SUM: u8 = 0;
const DEVIATION: u8 = 1;
const STANDING: u8 = 2;

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
