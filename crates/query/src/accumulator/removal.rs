//! Whether a document can be taken out of a state without a trace.
//!
//! A state that keeps the best it has seen knows nothing of the rest. A document that is no part of what it
//! keeps can go, and the state is right without it; for the others the state has to be made anew.

use std::cmp::Ordering;

use kilim_bson::{RawValue, compare};
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
        let worse =
            |kept: RawValue<'_>, side: Ordering| value.raw().is_some_and(|raw| compare(raw, kept) == side);
        Ok(match (state, self.kind) {
            // Null is passed over, so it was never taken in.
            (State::Held(_) | State::Best(_), Kind::Min | Kind::Max | Kind::MinN | Kind::MaxN)
                if value.is_nullish() =>
            {
                false
            }
            (State::Held(Some(kept)), Kind::Min) => !worse(kept.as_raw(), Ordering::Greater),
            (State::Held(Some(kept)), Kind::Max) => !worse(kept.as_raw(), Ordering::Less),
            (State::Best(best), _) => best.may_hold(&Best::key_of(value.raw_or_null())),
            (State::List(_) | State::Set(_), _) => !value.is_missing(),
            _ => true,
        })
    }
}
