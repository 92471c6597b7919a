//! What an evaluation sees: the document, and variables.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue, Value};
use kilim_error::Result;

use super::memory::{check_bytes, payload};
use super::{Evaluated, FieldPath};
use crate::interrupt;

/// Names a variable that an expression binds: how many are bound around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub(super) u32);

impl Slot {
    /// The variable of that number, where nothing else is bound.
    pub(crate) fn numbered(number: usize) -> Slot {
        Slot(number as u32)
    }
}

/// One bound variable. Frames form a list on the stack, the innermost first.
pub struct Frame<'a> {
    slot: Slot,
    value: Option<RawValue<'a>>,
    outer: Option<&'a Frame<'a>>,
}

/// The values of a `$lookup`'s variables while its pipeline runs, by the number that parsing gave them.
#[derive(Debug, Clone, Default)]
pub struct Bindings {
    /// Shared with the pipelines within, whose own variables stand behind these.
    values: Option<Arc<[Option<Arc<Value>>]>>,
}

static NONE: Bindings = Bindings { values: None };

impl Bindings {
    /// For a pipeline that stands in no other.
    pub fn none() -> &'static Bindings {
        &NONE
    }

    /// These, and behind them the values of an inner pipeline's own variables.
    ///
    /// All of them together may take no more than one value.
    pub fn extended(&self, values: impl IntoIterator<Item = Option<Value>>) -> Result<Bindings> {
        let outer = self.values.iter().flat_map(|values| values.iter().cloned());
        let own = values.into_iter().map(|value| value.map(Arc::new));
        let values: Arc<[Option<Arc<Value>>]> = outer.chain(own).collect();
        check_bytes(values.iter().flatten().map(|value| payload(value.as_raw())).sum())?;
        Ok(Bindings { values: Some(values) })
    }

    pub fn get(&self, index: usize) -> Option<RawValue<'_>> {
        self.values.as_ref()?.get(index)?.as_ref().map(|value| value.as_raw())
    }

    pub fn len(&self) -> usize {
        self.values.as_ref().map_or(0, |values| values.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A row that is no document: some fields by their names. Whoever shows one knows that expressions read no others, and not
/// the document as a whole.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    pub names: &'a [Box<str>],
    /// In the places of the names.
    pub values: &'a [Option<RawValue<'a>>],
}

impl<'a> Fields<'a> {
    pub(super) fn get(&self, name: &str) -> Option<RawValue<'a>> {
        let place = self.names.iter().position(|each| **each == *name)?;
        self.values[place]
    }
}

/// What an evaluation sees.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    pub root: RawDocument<'a>,
    /// What stands in the place of the document, which is empty then.
    pub(super) fields: Option<Fields<'a>>,
    /// The record that the document was read from, for `$meta`.
    pub record: Option<i64>,
    /// The key of the index by which it was found.
    pub key: Option<RawDocument<'a>>,
    /// How well the document matches a `$text`, or how far it is.
    pub score: Option<f64>,
    /// Which of its places is so far.
    pub place: Option<RawValue<'a>>,
    frame: Option<&'a Frame<'a>>,
    bindings: &'a Bindings,
}

impl<'a> Env<'a> {
    pub fn new(root: RawDocument<'a>, bindings: &'a Bindings) -> Env<'a> {
        Env { root, fields: None, record: None, key: None, score: None, place: None, frame: None, bindings }
    }

    /// Of a row that is no document.
    pub fn of_fields(fields: Fields<'a>, bindings: &'a Bindings) -> Env<'a> {
        Env { fields: Some(fields), ..Env::new(RawDocument::empty(), bindings) }
    }

    /// What a path leads to from the document.
    #[inline]
    pub(super) fn field(&self, path: &FieldPath) -> Evaluated<'a> {
        match &self.fields {
            None => path.evaluate(self.root),
            Some(fields) => path.evaluate_fields(fields),
        }
    }

    /// A variable within this environment; [`Env::with`] shows it to expressions.
    pub fn frame<'b>(&self, slot: Slot, value: Option<RawValue<'b>>) -> Frame<'b>
    where
        'a: 'b,
    {
        Frame { slot, value, outer: self.frame }
    }

    /// The environment in which a frame's variable is known too.
    pub fn with<'b>(&self, frame: &'b Frame<'b>) -> Env<'b>
    where
        'a: 'b,
    {
        Env { frame: Some(frame), ..*self }
    }

    pub(super) fn variable(&self, slot: Slot) -> Evaluated<'a> {
        let mut frame = self.frame;
        while let Some(bound) = frame {
            if bound.slot == slot {
                return bound.value.into();
            }
            frame = bound.outer;
        }
        Evaluated::Missing
    }

    pub(super) fn binding(&self, index: usize) -> Evaluated<'a> {
        self.bindings.get(index).into()
    }

    /// One pass of a loop over what a user made.
    pub fn tick(&self) -> Result<()> {
        interrupt::tick()
    }
}
