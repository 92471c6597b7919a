//! States as BSON, for the disk: what is written is read back by the same accumulator only.

use kilim_bson::{ArrayBuilder, RawValue, Value, Writer, array};
use kilim_error::{Error, Result};

use super::{Accumulator, Deviation, Digest, Kind, Mean, State, Summation};
use crate::expression::{Bindings, Evaluated};

impl State {
    /// All that the state knows.
    pub fn into_value(self) -> Value {
        match self {
            State::Sum(sum) => Value::Array(sum.to_array()),
            State::Mean(mean) => mean.to_value(),
            State::Deviation(deviation) => deviation.to_value(),
            State::Held(None) => Value::Array(array![]),
            State::Held(Some(value)) => Value::Array(array![value]),
            State::List(list) => Value::Array(list.finish()),
            State::Set(set) => Value::Array(set.finish()),
            State::Window(window) => Value::Array(window.to_array()),
            State::Best(best) => {
                let mut entries = ArrayBuilder::new();
                for (key, value) in best.entries() {
                    entries.push(RawValue::Binary { subtype: 0, bytes: key });
                    entries.push(value.as_raw());
                }
                Value::Array(entries.finish())
            }
            State::Merged(merged) => Value::Document(merged.to_document()),
            State::Digest(digest) => digest.to_value(),
        }
    }
}

impl Accumulator {
    /// A state that [`State::into_value`] wrote for a group of this id.
    pub fn restore(&self, id: RawValue<'_>, bindings: &Bindings, stored: RawValue<'_>) -> Result<State> {
        self.restored(id, bindings, stored)?
            .ok_or_else(|| Error::bug("a stored accumulator is not what was written"))
    }

    /// Writes the value of a group whose state [`State::into_value`] wrote, under a name.
    pub fn append_stored(
        &self,
        id: RawValue<'_>,
        bindings: &Bindings,
        stored: RawValue<'_>,
        name: &str,
        out: &mut Writer,
    ) -> Result<()> {
        match (self.kind, stored.as_array()) {
            // As they are stored, without the keys between them.
            (Kind::TopN | Kind::BottomN | Kind::MinN, Some(entries)) => {
                out.open_array(name);
                for (index, value) in entries.iter().skip(1).step_by(2).enumerate() {
                    out.append_index(index, value);
                }
                out.close();
            }
            (Kind::Min | Kind::Max | Kind::First | Kind::Last, Some(kept)) => {
                out.append(name, kept.get(0).unwrap_or(RawValue::Null));
            }
            _ => out.append(name, self.finish(self.restore(id, bindings, stored)?).as_raw()),
        }
        Ok(())
    }

    fn restored(&self, id: RawValue<'_>, bindings: &Bindings, stored: RawValue<'_>) -> Result<Option<State>> {
        Ok(match self.kind {
            Kind::Sum => Summation::from_array(stored).map(State::Sum),
            Kind::Avg => Mean::from_value(stored).map(State::Mean),
            Kind::StdDevPop | Kind::StdDevSamp => Deviation::from_value(stored).map(State::Deviation),
            Kind::Median | Kind::Percentile => {
                Digest::from_value(stored).map(|digest| State::Digest(digest.into()))
            }
            Kind::MergeObjects => {
                let mut state = State::empty(self.kind);
                self.add(&mut state, &Evaluated::Raw(stored))?;
                Some(state)
            }
            _ => {
                let Some(values) = stored.as_array() else { return Ok(None) };
                let mut state = self.begin(id, bindings)?;
                let mut values = values.iter();
                while let Some(value) = values.next() {
                    match (&mut state, value) {
                        (State::Held(place), value) => *place = Some(value.to_value()),
                        (State::Best(best), RawValue::Binary { bytes: key, .. }) => {
                            let Some(value) = values.next() else { return Ok(None) };
                            best.offer_keyed(key, value);
                        }
                        (state, value) => {
                            self.add(state, &Evaluated::Raw(value))?;
                        }
                    }
                }
                Some(state)
            }
        })
    }
}
