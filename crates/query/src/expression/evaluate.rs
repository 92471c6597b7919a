//! Evaluation.

use kilim_bson::{Array, RawDocument, RawValue, Writer};
use kilim_error::Result;

use super::memory::{check_bytes, counted};
use super::{Base, Env, Evaluated, Expression, Variable};

impl Expression {
    pub fn evaluate<'a>(&'a self, env: &Env<'a>) -> Result<Evaluated<'a>> {
        Ok(match self {
            Expression::Constant(value) => Evaluated::Raw(value.as_raw()),
            Expression::Missing => Evaluated::Missing,
            Expression::Field(path) => env.field(path),
            Expression::Variable(Variable { base: Base::Root, path: Some(path), .. }) => env.field(path),
            Expression::Variable(variable) => {
                let value = match variable.base {
                    Base::Root => Evaluated::Raw(RawValue::Document(env.root)),
                    Base::Slot(slot) => env.variable(slot),
                    Base::Binding(index) => env.binding(index),
                };
                match &variable.path {
                    None => value,
                    Some(path) => path.evaluate_in(value),
                }
            }
            Expression::Object(fields) => counted(|| {
                let mut out = Writer::new();
                append_fields(fields, env, &mut out)?;
                Ok(out.finish().into())
            })?,
            Expression::Array(elements) => counted(|| {
                let mut out = Writer::new();
                append_elements(elements, env, &mut out)?;
                Ok(Array::from_document(out.finish()).into())
            })?,
            Expression::Call(call) => counted(|| (call.operator.evaluate)(call, env))?,
        })
    }

    /// Whether the value counts as true.
    pub fn is_true(&self, env: &Env<'_>) -> Result<bool> {
        Ok(self.evaluate(env)?.to_bool())
    }

    /// Writes the value where it belongs, without making it first; whether there was one.
    pub fn append(&self, env: &Env<'_>, place: Place<'_>, out: &mut Writer) -> Result<bool> {
        match self {
            Expression::Object(fields) => {
                place.open_document(out);
                append_fields(fields, env, out)?;
                out.close();
            }
            Expression::Array(elements) => {
                place.open_array(out);
                append_elements(elements, env, out)?;
                out.close();
            }
            _ => match self.evaluate(env)?.raw() {
                Some(value) => place.append(value, out),
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// Of something that no document influences.
    pub(super) fn evaluate_constant(&self) -> Result<Evaluated<'static>> {
        let env = Env::new(RawDocument::empty(), super::Bindings::none());
        Ok(self.evaluate(&env)?.into_owned())
    }
}

fn append_fields(fields: &[(Box<str>, Expression)], env: &Env<'_>, out: &mut Writer) -> Result<()> {
    for (name, value) in fields {
        value.append(env, Place::Field(name), out)?;
        check_bytes(out.len())?;
    }
    Ok(())
}

fn append_elements(elements: &[Expression], env: &Env<'_>, out: &mut Writer) -> Result<()> {
    for (index, element) in elements.iter().enumerate() {
        let place = Place::Index(index);
        if !element.append(env, place, out)? {
            place.append(RawValue::Null, out);
        }
        check_bytes(out.len())?;
    }
    Ok(())
}

/// Where a value goes: under a name, or to an index of an array.
#[derive(Debug, Clone, Copy)]
pub enum Place<'n> {
    Field(&'n str),
    Index(usize),
}

impl Place<'_> {
    pub fn append(self, value: RawValue<'_>, out: &mut Writer) {
        match self {
            Place::Field(name) => out.append(name, value),
            Place::Index(index) => out.append_index(index, value),
        }
    }

    pub fn open_document(self, out: &mut Writer) {
        match self {
            Place::Field(name) => out.open_document(name),
            Place::Index(index) => out.open_document_at(index),
        }
    }

    pub fn open_array(self, out: &mut Writer) {
        match self {
            Place::Field(name) => out.open_array(name),
            Place::Index(index) => out.open_array_at(index),
        }
    }
}
