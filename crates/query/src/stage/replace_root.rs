//! `$replaceRoot`, and `$replaceWith`: another document in the place of each document.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Modified, Owner, Stage};
use crate::expression::show::show;
use crate::expression::{Dependencies, Env, Evaluated, Expression};
use crate::projection::Projection;

#[derive(Debug, Clone)]
pub struct ReplaceRoot {
    pub expression: Arc<Expression>,
    spelling: Spelling,
    /// Updates show all of a document that gives no new one, other pipelines what was read of it.
    shows_all: bool,
}

/// How it was written, which errors tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Root,
    With,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(document) = value else {
        return Err(Error::location(
            40229,
            format!(
                "expected an object as specification for $replaceRoot stage, got {}",
                value.element_type().name()
            ),
        ));
    };
    let mut new_root = None;
    for (name, value) in document {
        if name != "newRoot" {
            return Err(Error::location(
                40415,
                format!("BSON field '$replaceRoot.{name}' is an unknown field."),
            ));
        }
        if new_root.replace(value).is_some() {
            return Err(Error::location(40413, "BSON field '$replaceRoot.newRoot' is a duplicate field"));
        }
    }
    let new_root = new_root.ok_or_else(|| {
        Error::location(40414, "BSON field '$replaceRoot.newRoot' is missing but a required field")
    })?;
    push(new_root, Spelling::Root, context, out)
}

pub(super) fn parse_with(
    _: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    push(value, Spelling::With, context, out)
}

fn push(value: RawValue<'_>, spelling: Spelling, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let expression = Arc::new(Expression::parse(value, context.scope)?);
    let shows_all = context.owner == Owner::Update;
    out.push(Stage::ReplaceRoot(ReplaceRoot { expression, spelling, shows_all }));
    Ok(())
}

impl ReplaceRoot {
    /// Of an expression made otherwise.
    pub fn of(expression: Expression) -> ReplaceRoot {
        ReplaceRoot { expression: Arc::new(expression), spelling: Spelling::Root, shows_all: false }
    }

    /// The new document, borrowed where it is a part of the old one.
    pub fn evaluate<'a>(&'a self, env: &Env<'a>) -> Result<Evaluated<'a>> {
        let value = self.expression.evaluate(env)?;
        match value.as_document() {
            Some(_) => Ok(value),
            None => Err(self.refuse(&value, env.root)),
        }
    }

    pub(super) fn fold(&mut self) -> Result<()> {
        self.expression = Arc::new((*self.expression).clone().optimised()?);
        Ok(())
    }

    pub fn apply(&self, env: &Env<'_>) -> Result<Document> {
        match self.evaluate(env)?.into_value() {
            Some(Value::Document(document)) => Ok(document),
            _ => Err(Error::bug("a new root is no document")),
        }
    }

    fn refuse(&self, value: &Evaluated<'_>, document: RawDocument<'_>) -> Error {
        let subject = match self.spelling {
            Spelling::Root => "'newRoot' expression ",
            Spelling::With => "'replacement document' ",
        };
        let mut needed = Dependencies::default();
        self.expression.dependencies(&mut needed);
        let document = match self.shows_all {
            true => document.to_document(),
            false => Projection::of_needed(&needed, document),
        };
        Error::location(
            40228,
            format!(
                "{subject} must evaluate to an object, but resulting value was: {}. Type of resulting value: '{}'. \
                 Input document: {}",
                value.raw().map_or_else(|| "MISSING".to_owned(), show),
                value.type_name(),
                show(RawValue::Document(document.as_raw()))
            ),
        )
    }
}

impl Behaviour for ReplaceRoot {
    fn to_document(&self) -> Document {
        doc! {"$replaceRoot": {"newRoot": self.expression.to_value()}}
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        self.expression.dependencies(needed);
        Beyond::Nothing
    }

    fn modified(&self) -> Modified {
        Modified::Unknown
    }
}
