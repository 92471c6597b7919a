//! `$redact`: documents without the parts that an expression does not let through.

use std::sync::Arc;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Writer};
use kilim_error::{Error, Result};

use super::{Behaviour, Context, Stage};
use crate::expression::show::show;
use crate::expression::{Env, Expression, Place, Slot};
use crate::interrupt;

/// The answers that an expression may give, as texts: so they are on MongoDB.
const KEEP: &str = "keep";
const PRUNE: &str = "prune";
const DESCEND: &str = "descend";

#[derive(Debug, Clone)]
pub struct Redact {
    pub expression: Arc<Expression>,
    variables: Variables,
}

/// What the expression knows beside the part that it is asked about, which is its `$$CURRENT`.
#[derive(Debug, Clone, Copy)]
struct Variables {
    root: Slot,
    keep: Slot,
    prune: Slot,
    descend: Slot,
}

/// What becomes of a document.
pub enum Redacted {
    /// It stays as it is.
    Kept,
    Pruned,
    Changed(Document),
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let scope = context.scope;
    let (entry, root) = scope.bind("ROOT");
    let scope = scope.with(&entry);
    let (entry, keep) = scope.bind("KEEP");
    let scope = scope.with(&entry);
    let (entry, prune) = scope.bind("PRUNE");
    let scope = scope.with(&entry);
    let (entry, descend) = scope.bind("DESCEND");
    let scope = scope.with(&entry);
    let expression = Arc::new(Expression::parse(value, &scope)?);
    let variables = Variables { root, keep, prune, descend };
    out.push(Stage::Redact(Redact { expression, variables }));
    Ok(())
}

impl Redact {
    pub(super) fn fold(&mut self) -> Result<()> {
        self.expression = Arc::new((*self.expression).clone().optimised()?);
        Ok(())
    }

    pub fn apply(&self, env: &Env<'_>) -> Result<Redacted> {
        let Variables { root, keep, prune, descend } = self.variables;
        let frame = env.frame(root, Some(RawValue::Document(env.root)));
        let env = env.with(&frame);
        let frame = env.frame(keep, Some(RawValue::String(KEEP)));
        let env = env.with(&frame);
        let frame = env.frame(prune, Some(RawValue::String(PRUNE)));
        let env = env.with(&frame);
        let frame = env.frame(descend, Some(RawValue::String(DESCEND)));
        let env = env.with(&frame);
        Ok(match self.ask(&env)? {
            Answer::Keep => Redacted::Kept,
            Answer::Prune => Redacted::Pruned,
            Answer::Descend => {
                let mut writer = Writer::with_capacity(env.root.as_bytes().len());
                self.fields(&env, &mut writer)?;
                Redacted::Changed(writer.finish())
            }
        })
    }

    fn ask(&self, env: &Env<'_>) -> Result<Answer> {
        let value = self.expression.evaluate(env)?;
        match value.raw() {
            Some(RawValue::String(KEEP)) => Ok(Answer::Keep),
            Some(RawValue::String(PRUNE)) => Ok(Answer::Prune),
            Some(RawValue::String(DESCEND)) => Ok(Answer::Descend),
            other => Err(Error::location(
                17053,
                format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, \
                     and $$PRUNE, but returned {}",
                    other.map_or_else(|| "MISSING".to_owned(), show)
                ),
            )),
        }
    }

    /// The fields of a document that is entered.
    fn fields(&self, env: &Env<'_>, out: &mut Writer) -> Result<()> {
        let mut fields = env.root.iter();
        while let Some((name, value, bytes)) = fields.next_with_bytes() {
            match value {
                RawValue::Document(_) | RawValue::Array(_) => {
                    self.container(env, Place::Field(name), value, out)?;
                }
                _ => out.append_elements(bytes),
            }
        }
        Ok(())
    }

    /// A document or an array on the way; whether anything of it was written.
    fn container(
        &self,
        env: &Env<'_>,
        place: Place<'_>,
        value: RawValue<'_>,
        out: &mut Writer,
    ) -> Result<bool> {
        interrupt::tick()?;
        match value {
            RawValue::Document(document) => self.document(&within(env, document), place, out),
            RawValue::Array(array) => {
                place.open_array(out);
                let done = self.elements(env, array, out);
                out.close();
                done.map(|()| true)
            }
            scalar => {
                place.append(scalar, out);
                Ok(true)
            }
        }
    }

    fn document(&self, env: &Env<'_>, place: Place<'_>, out: &mut Writer) -> Result<bool> {
        match self.ask(env)? {
            Answer::Keep => place.append(RawValue::Document(env.root), out),
            Answer::Prune => return Ok(false),
            Answer::Descend => {
                place.open_document(out);
                let done = self.fields(env, out);
                out.close();
                done?;
            }
        }
        Ok(true)
    }

    fn elements(&self, env: &Env<'_>, array: RawArray<'_>, out: &mut Writer) -> Result<()> {
        let mut index = 0;
        for element in array.iter() {
            if self.container(env, Place::Index(index), element, out)? {
                index += 1;
            }
        }
        Ok(())
    }
}

/// The environment in which a part is the current document.
fn within<'b>(env: &Env<'b>, document: RawDocument<'b>) -> Env<'b> {
    let mut env = *env;
    env.root = document;
    env
}

enum Answer {
    Keep,
    Prune,
    Descend,
}

impl Behaviour for Redact {
    fn to_document(&self) -> Document {
        [("$redact", self.expression.to_value())].into_iter().collect()
    }
}
