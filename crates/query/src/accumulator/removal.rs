//! Whether a document can be taken out of a state without a trace.
//!
//! A state that keeps the best it has seen knows nothing of the rest. A document that is no part of what it
//! keeps can go, and the state is right without it; for the others the state has to be made anew, of which the first few
//! documents in the right order are enough.

use std::cmp::Ordering;

use kilim_bson::{RawValue, compare_with};
use kilim_error::Result;

use super::{Accumulator, Best, Kind, State};
use crate::expression::Env;

impl Accumulator {
    /// Whether what a document gave may be part of what the state keeps.
    pub fn may_hold(&self, state: &State, env: &Env<'_>) -> Result<bool> {
        if let (Some(order), State::Best(best)) = (&self.order, state) {
            let mut key = Vec::new();
            order.key_of(env.root, &mut key)?;
            return Ok(best.may_hold(&key));
        }
        let value = self.input.evaluate(env)?;
        let worse = |kept: RawValue<'_>, side: Ordering| {
            value.raw().is_some_and(|raw| compare_with(raw, kept, self.collator()) == side)
        };
        Ok(match (state, self.kind) {
            // Null is passed over, so it was never taken in.
            (State::Held(_) | State::Best(_), Kind::Min | Kind::Max | Kind::MinN | Kind::MaxN)
                if value.is_nullish() =>
            {
                false
            }
            (State::Held(Some(kept)), Kind::Min) => !worse(kept.as_raw(), Ordering::Greater),
            (State::Held(Some(kept)), Kind::Max) => !worse(kept.as_raw(), Ordering::Less),
            (State::Best(best), _) => best.may_hold(&Best::key_of(value.raw_or_null(), self.collator())),
            (State::List(_) | State::Set(_), _) => !value.is_missing(),
            _ => true,
        })
    }

    /// Whether it makes a difference to the state when the document came, among those taken in before: of equals the
    /// earlier stay.
    pub fn depends_on_arrival(&self, state: &State, env: &Env<'_>) -> Result<bool> {
        if let (Some(order), State::Best(best)) = (&self.order, state) {
            let mut key = Vec::new();
            order.key_of(env.root, &mut key)?;
            return Ok(best.depends_on_arrival(&key));
        }
        let value = self.input.evaluate(env)?;
        Ok(match state {
            State::Held(_) | State::Best(_)
                if matches!(self.kind, Kind::Min | Kind::Max | Kind::MinN | Kind::MaxN)
                    && value.is_nullish() =>
            {
                false
            }
            State::Held(kept) if matches!(self.kind, Kind::Min | Kind::Max) => {
                let equal = |kept: &kilim_bson::Value| {
                    compare_with(value.raw_or_null(), kept.as_raw(), self.collator()).is_eq()
                };
                kept.as_ref().is_some_and(equal)
            }
            State::Best(best) => best.depends_on_arrival(&Best::key_of(value.raw_or_null(), self.collator())),
            State::Set(_) | State::Sum(_) | State::Mean(_) => false,
            _ => true,
        })
    }

    /// Puts what a changed document gives now in the place of what it gave before, if it stands where it stood and
    /// nothing else can stand there, the order ending in `_id`.
    pub fn replace(&self, state: &mut State, before: &Env<'_>, after: &Env<'_>) -> Result<bool> {
        let (Some(order), State::Best(best)) = (&self.order, state) else { return Ok(false) };
        if !self.sort_parts().any(|(path, _)| path == "_id") {
            return Ok(false);
        }
        let (mut old, mut new) = (Vec::new(), Vec::new());
        order.key_of(before.root, &mut old)?;
        order.key_of(after.root, &mut new)?;
        if old != new {
            return Ok(false);
        }
        Ok(best.replace(&new, super::best::output(self.input.evaluate(after)?)))
    }

    /// By what `$top` and its kin sort: paths, and whether they descend.
    pub fn sort_parts(&self) -> impl Iterator<Item = (&str, bool)> {
        self.order.iter().flat_map(|order| order.parts())
    }

    /// Where a document stands in the accumulator's own order; `None` where it is passed over.
    pub fn sort_key(&self, env: &Env<'_>) -> Result<Option<Vec<u8>>> {
        let mut key = Vec::new();
        if let Some(order) = &self.order {
            order.key_of(env.root, &mut key)?;
            self.input.evaluate(env)?;
            return Ok(Some(key));
        }
        let value = self.input.evaluate(env)?;
        let passed_over = matches!(self.kind, Kind::Min | Kind::Max | Kind::MinN | Kind::MaxN);
        if passed_over && value.is_nullish() {
            return Ok(None);
        }
        Ok(Some(Best::key_of(value.raw_or_null(), self.collator())))
    }
}

impl State {
    /// How many values it keeps at most.
    pub fn capacity(&self) -> usize {
        match self {
            State::Held(_) => 1,
            State::Best(best) => best.capacity(),
            State::Window(window) => window.capacity(),
            _ => usize::MAX,
        }
    }
}
