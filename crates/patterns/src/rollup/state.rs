//! What is known of a group: enough to say its fields, and to take rows out again where that is possible.

use kilim_bson::{ArrayBuilder, Document, RawArray, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, Result};
use kilim_query::accumulator::{Accumulator, Kind, Number, State};
use kilim_query::expression::{Bindings, Env};

use super::{Rollup, Row};
use crate::exact_sum::ExactSum;
use crate::packed;
use crate::path::get;

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
    /// What it kept was to be found in the parent, and is not there.
    Lost,
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
        Kind::First
            | Kind::Last
            | Kind::Push
            | Kind::AddToSet
            | Kind::FirstN
            | Kind::LastN
            | Kind::MergeObjects
    )
}

/// A group on its way: what its accumulators keep of the rows so far, not the rows.
pub struct Gathering {
    state: GroupState,
    standing: Vec<Option<State>>,
}

impl Gathering {
    pub fn add(&mut self, rollup: &Rollup, row: &Row) -> Result<()> {
        self.state.rows += 1;
        let env = row.env();
        for (at, (_, accumulator)) in rollup.group.fields.iter().enumerate() {
            let taken = match &mut self.standing[at] {
                Some(state) => accumulator.accumulate(state, &env).map(drop),
                None => self.state.parts[at].take(accumulator, &env, 1),
            };
            pass_over(taken)?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> GroupState {
        self.state.put_back(self.standing);
        self.state
    }
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
        let mut gathering = self.gather(key)?;
        rows.into_iter().try_for_each(|row| gathering.add(self, row))?;
        Ok(gathering.finish())
    }

    /// Begins a group whose rows come one by one, in their order.
    pub fn gather(&self, key: RawValue<'_>) -> Result<Gathering> {
        let state = self.empty_group(key)?;
        let standing = self.standing(key, &state)?;
        Ok(Gathering { state, standing })
    }

    /// Whether the order in which rows come may make a difference.
    pub fn minds_order(&self) -> bool {
        self.group.fields.iter().any(|(_, accumulator)| kept(accumulator) == Kept::ByReading)
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
                Part::Standing(_) | Part::Lost if state.rows == 0 => {
                    Live::Standing(accumulator.begin(key, Bindings::none())?)
                }
                Part::Standing(stored) => {
                    Live::Standing(accumulator.restore(key, Bindings::none(), stored.as_raw())?)
                }
                Part::Lost => Live::Lost,
                _ => Live::Delta,
            };
            if let Live::Standing(kept) = &mut live {
                if state.rows > 0 && !self.keep(accumulator, kept, out, into, newest)? {
                    live = Live::Lost;
                }
            } else if let Live::Delta = live {
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
        Ok(self.outcome(lost))
    }

    /// What has to be done about accumulators that lost rows.
    fn outcome(&self, lost: Vec<usize>) -> Outcome {
        match lost.iter().all(|part| self.walk(*part).is_some()) {
            _ if lost.is_empty() => Outcome::Done,
            true => Outcome::Refill(lost),
            false => Outcome::ReadAnew,
        }
    }

    /// What has to be done about a state before it tells its group's fields.
    pub fn missing(&self, state: &GroupState) -> Outcome {
        let is_lost = |part: &usize| matches!(state.parts[*part], Part::Lost);
        self.outcome((0..state.parts.len()).filter(is_lost).collect())
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
                Part::Lost => return Err(Error::bug("a group is shown before it is whole")),
            }
        }
        Ok(out.finish())
    }

    /// What [`Rollup::encode_group`] wrote; none where it cannot be read, so that the group is made again. `parent` is as
    /// it was when the state was written.
    pub fn restore_group(&self, stored: &[u8], parent: Option<RawDocument<'_>>) -> Option<GroupState> {
        let (&FORMAT, mut stored) = stored.split_first()? else { return None };
        let rows = packed::take_long(&mut stored)?;
        let part = |at: usize| Part::decode(&mut stored, || self.shown_array(at, parent));
        let parts: Vec<Part> = (0..self.group.fields.len()).map(part).collect::<Option<_>>()?;
        stored.is_empty().then_some(GroupState { rows, parts })
    }

    /// A group's state, to be stored. What its parent shows is not stored a second time. On disk.
    pub fn encode_group(&self, state: &GroupState, parent: Option<RawDocument<'_>>) -> Vec<u8> {
        let mut out = vec![FORMAT];
        packed::push(&mut out, state.rows);
        for (at, part) in state.parts.iter().enumerate() {
            part.encode(&mut out, || self.shown_array(at, parent));
        }
        out
    }

    /// Where a parent shows the values that an accumulator keeps, as they are.
    fn shown_array<'p>(&self, part: usize, parent: Option<RawDocument<'p>>) -> Option<RawArray<'p>> {
        get(parent?, self.shown_at.get(part)?.as_ref()?)?.as_array()
    }
}

/// The first byte of a stored group. On disk.
const FORMAT: u8 = 1;

impl GroupState {
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
            Part::Standing(_) | Part::Lost => {}
        }
        Ok(())
    }

    fn encode<'p>(&self, out: &mut Vec<u8>, shown: impl FnOnce() -> Option<RawArray<'p>>) {
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
                if let (Some(entries), Some(shown)) = (stored.as_raw().as_array(), shown())
                    && encode_shown(entries, shown, out)
                {
                    return;
                }
                out.push(STANDING);
                let mut writer = Writer::after(std::mem::take(out));
                writer.append("", stored.as_raw());
                *out = writer.finish_bytes();
            }
            Part::Lost => out.push(LOST),
        }
    }

    fn decode<'p>(stored: &mut &[u8], shown: impl FnOnce() -> Option<RawArray<'p>>) -> Option<Part> {
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
            SHOWN => decode_shown(stored, shown())?,
            LOST => Part::Lost,
            _ => return None,
        })
    }
}

/// Stores the keys of values that a parent shows, and what the values look like together; false where it shows others.
fn encode_shown(entries: RawArray<'_>, shown: RawArray<'_>, out: &mut Vec<u8>) -> bool {
    let mut values = shown.iter();
    let mut keys = Vec::new();
    let mut entries = entries.iter();
    while let Some(key) = entries.next() {
        let (RawValue::Binary { bytes, .. }, Some(value), Some(shown)) = (key, entries.next(), values.next())
        else {
            return false;
        };
        if !is_identical(value, shown) {
            return false;
        }
        keys.push(bytes);
    }
    if values.next().is_some() {
        return false;
    }
    out.push(SHOWN);
    out.extend_from_slice(&fingerprint(shown.as_bytes()).to_le_bytes());
    packed::push(out, keys.len() as i64);
    for key in keys {
        packed::push(out, key.len() as i64);
        out.extend_from_slice(key);
    }
    true
}

/// Puts keys and the values that a parent shows together again.
fn decode_shown(stored: &mut &[u8], shown: Option<RawArray<'_>>) -> Option<Part> {
    let (known, rest) = stored.split_first_chunk()?;
    *stored = rest;
    let shown = shown.filter(|shown| fingerprint(shown.as_bytes()) == u64::from_le_bytes(*known));
    let mut values = shown.iter().flat_map(|shown| shown.iter());
    let mut entries = ArrayBuilder::new();
    for _ in 0..packed::take_long(stored)? {
        let length = usize::try_from(packed::take_long(stored)?).ok()?;
        let (key, rest) = stored.split_at_checked(length)?;
        *stored = rest;
        if let Some(value) = values.next() {
            entries.push(RawValue::Binary { subtype: 0, bytes: key });
            entries.push(value);
        }
    }
    Some(match shown {
        Some(_) => Part::Standing(Value::Array(entries.finish())),
        None => Part::Lost,
    })
}

/// Whether two values are the same to the last bit.
fn is_identical(left: RawValue<'_>, right: RawValue<'_>) -> bool {
    let container = |value: RawValue<'_>| value.as_container().is_some();
    match (left, right) {
        (RawValue::Document(left), RawValue::Document(right)) => left.as_bytes() == right.as_bytes(),
        (left, right) if container(left) || container(right) => false,
        (left, right) => {
            let bytes = |value| {
                let mut writer = Writer::with_capacity(32);
                writer.append("", value);
                writer.finish_bytes()
            };
            bytes(left) == bytes(right)
        }
    }
}

/// Tells whether an array is still the one that was there. On disk, so it never changes.
fn fingerprint(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(FACTOR).rotate_left(31);
    let mut words = bytes.chunks_exact(8);
    let mut hash = mix(FACTOR, bytes.len() as u64);
    for word in &mut words {
        hash = mix(hash, u64::from_le_bytes(word.try_into().expect("eight bytes")));
    }
    for byte in words.remainder() {
        hash = mix(hash, u64::from(*byte));
    }
    hash ^ hash >> 29
}

/// What a part is. On disk.
const SUM: u8 = 0;
const DEVIATION: u8 = 1;
const STANDING: u8 = 2;
const SHOWN: u8 = 3;
const LOST: u8 = 4;

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
