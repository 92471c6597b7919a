//! `$mergeObjects`: documents put over each other; the last one to have a field wins, the first one places it.

use std::collections::HashMap;

use kilim_bson::{RawDocument, RawValue, Writer};
use kilim_error::{Error, Result};

use crate::expression::memory::check_bytes;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let only = call.arguments.len() == 1;
    let mut operands = Vec::with_capacity(call.arguments.len());
    for operand in call.each(env) {
        let operand = operand?;
        if !only {
            check(operand.raw())?;
        }
        operands.push(operand);
    }
    let mut merged = Merged::default();
    match &*operands {
        // One array stands for its elements.
        [only] if only.as_array().is_some() => {
            for element in only.as_array().into_iter().flat_map(|array| array.iter()) {
                env.tick()?;
                merged.put(check(Some(element))?);
            }
        }
        operands => {
            for operand in operands {
                merged.put(check(operand.raw())?);
            }
        }
    }
    merged.finish()
}

/// The document that an operand is; null counts as an empty one.
fn check(operand: Option<RawValue<'_>>) -> Result<RawDocument<'_>> {
    match operand {
        None | Some(RawValue::Null | RawValue::Undefined) => Ok(RawDocument::empty()),
        Some(RawValue::Document(document)) => Ok(document),
        Some(other) => Err(Error::location(
            40_400,
            format!(
                "$mergeObjects requires object inputs, but input {} is of type {}",
                show(other),
                other.element_type().name()
            ),
        )),
    }
}

/// Fields in the order in which their names were first seen.
#[derive(Default)]
struct Merged<'a> {
    fields: Vec<(&'a str, RawValue<'a>)>,
    /// Where each name is, once there are too many to look through.
    places: HashMap<&'a str, usize>,
}

/// Up to this many fields are looked through in turn.
const FIELDS_IN_TURN: usize = 16;

impl<'a> Merged<'a> {
    fn put(&mut self, document: RawDocument<'a>) {
        for (name, value) in document {
            match self.place(name) {
                Some(place) => self.fields[place].1 = value,
                None => {
                    self.fields.push((name, value));
                    if self.fields.len() > FIELDS_IN_TURN {
                        let unplaced = self.places.len()..self.fields.len();
                        self.places.extend(unplaced.map(|place| (self.fields[place].0, place)));
                    }
                }
            }
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        if self.fields.len() <= FIELDS_IN_TURN {
            self.fields.iter().position(|(known, _)| *known == name)
        } else {
            self.places.get(name).copied()
        }
    }

    fn finish(self) -> Result<Evaluated<'static>> {
        let mut out = Writer::new();
        for (name, value) in self.fields {
            out.append(name, value);
            check_bytes(out.len())?;
        }
        Ok(out.finish().into())
    }
}
