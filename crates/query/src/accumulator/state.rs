//! One group's share of an accumulator: begun, added to, merged, finished.

use std::cmp::Ordering;

use kilim_bson::{ArrayBuilder, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};

use super::best::{self, End};
use super::held::{keep, keep_extreme, payload};
use super::list::Window;
use super::parse::evaluate_n;
use super::{Accumulator, Best, Deviation, Digest, Kind, List, Mean, Merged, Number, Set, Summation};
use crate::expression::show::show;
use crate::expression::{Bindings, Env, Evaluated, Expression, Place};

/// What one accumulator of one group may hold, as on MongoDB: it cannot be spilled in parts.
const STATE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// What an accumulator knows of a group so far.
pub enum State {
    Sum(Summation),
    Mean(Mean),
    Deviation(Deviation),
    /// The one value that `$min`, `$max`, `$first` and `$last` keep.
    Held(Option<Value>),
    List(Box<List>),
    Set(Box<Set>),
    Window(Box<Window>),
    Best(Box<Best>),
    Merged(Box<Merged>),
    Digest(Box<Digest>),
}

impl Accumulator {
    /// The state of a group that has seen nothing. Its id is what `n` may depend on.
    pub fn begin(&self, id: RawValue<'_>, bindings: &Bindings) -> Result<State> {
        let n = || self.n_of(id.as_document().unwrap_or(RawDocument::empty()), bindings);
        Ok(match self.kind {
            Kind::FirstN | Kind::LastN => State::Window(Box::new(Window::new(n()?))),
            Kind::MinN | Kind::Top | Kind::TopN => State::Best(Box::new(Best::new(n()?, End::Low))),
            Kind::MaxN | Kind::Bottom | Kind::BottomN => State::Best(Box::new(Best::new(n()?, End::High))),
            kind => State::empty(kind),
        })
    }

    /// How many values are kept, as an expression over the group's id says.
    pub(crate) fn n_of(&self, id: RawDocument<'_>, bindings: &Bindings) -> Result<u64> {
        match &self.n {
            Some(n) => evaluate_n(n, &Env::new(id, bindings)),
            None => Ok(1),
        }
    }

    /// Takes a document in; how many bytes the state grew.
    #[inline]
    pub fn accumulate(&self, state: &mut State, env: &Env<'_>) -> Result<isize> {
        if let (Some(order), State::Best(best)) = (&self.order, &mut *state) {
            // An output that can fail does so for every document, kept or not.
            let computed = match &self.input {
                Expression::Call(_) | Expression::Object(_) | Expression::Array(_) => {
                    Some(self.input.evaluate(env)?)
                }
                _ => None,
            };
            let output = || match computed {
                Some(computed) => Ok(best::output(computed)),
                None => Ok(best::output(self.input.evaluate(env)?)),
            };
            let grown = best.offer_document(order, env.root, output)?;
            self.check_bytes(best.bytes())?;
            return Ok(grown);
        }
        // What comes after the first is not even computed, so it cannot fail.
        let has_enough = match &*state {
            State::Held(Some(_)) => self.kind == Kind::First,
            State::Window(window) => window.is_closed(),
            _ => false,
        };
        if has_enough {
            return Ok(0);
        }
        self.add(state, &self.input.evaluate(env)?)
    }

    /// Takes a value in; how many bytes the state grew.
    #[inline]
    pub fn add(&self, state: &mut State, value: &Evaluated<'_>) -> Result<isize> {
        match state {
            State::Sum(sum) => {
                if let Some(number) = Number::of_evaluated(value) {
                    sum.add(number);
                }
                Ok(0)
            }
            State::Mean(mean) => {
                if let Some(number) = Number::of_evaluated(value) {
                    mean.add(number);
                }
                Ok(0)
            }
            State::Deviation(deviation) => {
                if let Some(number) = Number::of_evaluated(value) {
                    deviation.add(number.to_f64());
                }
                Ok(0)
            }
            State::Held(place) => Ok(match self.kind {
                Kind::First if place.is_some() => 0,
                Kind::First | Kind::Last => keep(place, value.raw_or_null()),
                _ if value.is_nullish() => 0,
                Kind::Min => keep_extreme(place, value.raw_or_null(), Ordering::Less, self.collator()),
                _ => keep_extreme(place, value.raw_or_null(), Ordering::Greater, self.collator()),
            }),
            _ => self.add_to_many(state, value),
        }
    }

    /// The same for states that hold more than one value.
    fn add_to_many(&self, state: &mut State, value: &Evaluated<'_>) -> Result<isize> {
        let (grown, bytes) = match (state, value.raw()) {
            (State::List(list), Some(value)) => (list.push(value), list.bytes()),
            (State::Set(set), Some(value)) => (set.insert(value, self.collator()), set.bytes()),
            (State::Window(window), _) if self.kind == Kind::FirstN && window.is_full() => {
                window.close();
                (0, 0)
            }
            (State::Window(window), value) => (window.push(value.unwrap_or(RawValue::Null)), window.bytes()),
            (State::Best(best), Some(raw)) if !value.is_nullish() => {
                (best.offer(raw, self.collator()), best.bytes())
            }
            (State::Merged(merged), Some(RawValue::Document(document))) => {
                (merged.lay(document), merged.bytes())
            }
            (State::Merged(_), Some(other)) if !value.is_nullish() => return Err(refuse_merge(other)),
            (State::Digest(digest), _) => match Number::of_evaluated(value) {
                Some(number) => (digest.add(number.to_f64()), 0),
                None => (0, 0),
            },
            _ => (0, 0),
        };
        self.check_bytes(bytes)?;
        Ok(grown)
    }

    /// Takes in what a state of a later part of the input has gathered; how many bytes the state grew.
    pub fn merge(&self, state: &mut State, later: State) -> Result<isize> {
        let grown = match (state, later) {
            (State::Sum(own), State::Sum(later)) => {
                own.merge(later);
                0
            }
            (State::Mean(own), State::Mean(later)) => {
                own.merge(later);
                0
            }
            (State::Deviation(own), State::Deviation(later)) => {
                own.merge(later);
                0
            }
            (own @ State::Held(_), State::Held(later)) => match later {
                // A state is stored only once it has seen a document, so what `$last` holds is its value.
                Some(later) => self.add(own, &Evaluated::Owned(later))?,
                None => 0,
            },
            (State::Best(own), State::Best(later)) => {
                let grown = later.entries().map(|(key, value)| own.offer_keyed(key, value.as_raw())).sum();
                self.check_bytes(own.bytes())?;
                grown
            }
            (State::Merged(own), State::Merged(later)) => own.lay(later.to_document().as_raw()),
            (State::Digest(own), State::Digest(later)) => own.merge(*later),
            (own @ (State::List(_) | State::Set(_) | State::Window(_)), later) => {
                let mut grown = 0;
                if let Value::Array(values) = self.finish(later) {
                    for value in values.as_raw().iter() {
                        crate::interrupt::tick()?;
                        grown += self.add(own, &Evaluated::Raw(value))?;
                    }
                }
                grown
            }
            _ => return Err(Error::bug("two states of one accumulator are of different kinds")),
        };
        Ok(grown)
    }

    /// The group's value.
    pub fn finish(&self, state: State) -> Value {
        match state {
            State::Sum(sum) => sum.total().to_value(),
            State::Mean(mean) => mean.result().to_value(),
            State::Deviation(deviation) if self.kind == Kind::StdDevSamp => deviation.sample().to_value(),
            State::Deviation(deviation) => deviation.population().to_value(),
            State::Held(value) => value.unwrap_or(Value::Null),
            State::List(list) => Value::Array(list.finish()),
            State::Set(set) => Value::Array(set.finish()),
            State::Window(window) => Value::Array(window.to_array()),
            State::Best(best) => self.finish_best(&best),
            State::Merged(merged) => Value::Document(merged.to_document()),
            State::Digest(mut digest) => self.percentiles_of(&mut digest),
        }
    }

    /// The value of what was taken in so far. More can be taken in afterwards.
    pub fn peek(&self, state: &mut State) -> Value {
        match state {
            State::Sum(sum) => self.finish(State::Sum(*sum)),
            State::Mean(mean) => self.finish(State::Mean(*mean)),
            State::Deviation(deviation) => self.finish(State::Deviation(*deviation)),
            State::Held(value) => value.clone().unwrap_or(Value::Null),
            State::List(list) => Value::Array(list.copied()),
            State::Set(set) => Value::Array(set.copied()),
            State::Window(window) => Value::Array(window.to_array()),
            State::Best(best) => self.finish_best(best),
            State::Merged(merged) => Value::Document(merged.to_document()),
            State::Digest(digest) => self.percentiles_of(digest),
        }
    }

    fn percentiles_of(&self, digest: &mut Digest) -> Value {
        let mut percentile = |p| digest.percentile(p).map_or(Value::Null, Value::Double);
        match self.kind {
            Kind::Median => percentile(0.5),
            _ => Value::Array(self.percentiles.iter().map(|p| percentile(*p)).collect()),
        }
    }

    /// Writes the group's value under a name.
    pub fn append(&self, state: State, name: &str, out: &mut Writer) {
        match state {
            State::Mean(mean) => out.append(name, mean.result()),
            state => Place::Field(name).append(self.finish(state).as_raw(), out),
        }
    }

    fn finish_best(&self, best: &Best) -> Value {
        let mut array = ArrayBuilder::new();
        match self.kind {
            Kind::Top | Kind::Bottom => return best.values().next().cloned().unwrap_or(Value::Null),
            Kind::MaxN => best.values().rev().for_each(|value| array.push(value.as_raw())),
            _ => best.values().for_each(|value| array.push(value.as_raw())),
        }
        Value::Array(array.finish())
    }

    fn check_bytes(&self, bytes: usize) -> Result<()> {
        if bytes <= STATE_BYTES_MAX {
            return Ok(());
        }
        let why = match self.kind {
            Kind::Push | Kind::AddToSet => "cannot spill to disk",
            _ => "spilling to disk cannot reduce memory consumption any further",
        };
        Err(Error::user(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "{} used too much memory and {why}. Memory limit: {STATE_BYTES_MAX} bytes",
                self.kind.name()
            ),
        ))
    }
}

impl State {
    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        let owned = match self {
            State::Sum(_) | State::Mean(_) | State::Deviation(_) | State::Held(None) => 0,
            State::Held(Some(value)) => payload(value.as_raw()),
            State::List(list) => list.bytes(),
            State::Set(set) => set.bytes(),
            State::Window(window) => window.bytes(),
            State::Best(best) => best.bytes(),
            State::Merged(merged) => merged.bytes(),
            State::Digest(digest) => digest.bytes(),
        };
        size_of::<State>() + owned
    }

    /// Of an accumulator that keeps no counted number of values.
    pub(super) fn empty(kind: Kind) -> State {
        match kind {
            Kind::Sum => State::Sum(Summation::new()),
            Kind::Avg => State::Mean(Mean::new()),
            Kind::StdDevPop | Kind::StdDevSamp => State::Deviation(Deviation::default()),
            Kind::Push => State::List(Box::default()),
            Kind::AddToSet => State::Set(Box::default()),
            Kind::MergeObjects => State::Merged(Box::default()),
            Kind::Median | Kind::Percentile => State::Digest(Box::default()),
            _ => State::Held(None),
        }
    }
}

/// `$mergeObjects` takes documents only.
fn refuse_merge(value: RawValue<'_>) -> Error {
    Error::location(
        40400,
        format!(
            "$mergeObjects requires object inputs, but input {} is of type {}",
            show(value),
            value.element_type().name()
        ),
    )
}
