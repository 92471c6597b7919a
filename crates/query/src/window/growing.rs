//! A frame that begins with its partition: documents only come, so an accumulator's state is all there is.

use std::sync::Arc;

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, Result};

use super::Slide;
use crate::accumulator::{Accumulator, State};
use crate::expression::{Bindings, Env, Evaluated};

pub(super) struct Growing {
    accumulator: Arc<Accumulator>,
    state: State,
    /// The value of the state, until something enters: one of a whole partition is made once.
    value: Option<Value>,
}

impl Growing {
    pub(super) fn new(accumulator: Arc<Accumulator>, bindings: &Bindings) -> Result<Growing> {
        let state = accumulator.begin(RawValue::Null, bindings)?;
        Ok(Growing { accumulator, state, value: None })
    }
}

impl Slide for Growing {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        self.value = None;
        self.accumulator.accumulate(&mut self.state, env).map(drop)
    }

    fn leave(&mut self) -> Result<()> {
        Err(Error::bug("a document leaves a frame that only grows"))
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        let value = self.value.get_or_insert_with(|| self.accumulator.peek(&mut self.state));
        Ok(Evaluated::Raw(value.as_raw()))
    }

    fn bytes(&self) -> usize {
        self.state.bytes()
    }
}
