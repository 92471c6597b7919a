//! Window functions: what `$setWindowFields` computes for each document from the documents around it.
//!
//! A [`WindowFunction`] is what was asked: a [`Function`] and the [`Frame`] of documents that it sees. A [`Slide`] is what
//! runs for it over one partition. The engine tells a slide which documents come into the frame at its end and how
//! many leave at its beginning, in the order of the partition, and asks for the value at each document.
//!
//! A frame that begins with its partition only grows: it is an ordinary accumulator's state ([`growing`]). In any other
//! frame documents leave too, and each family of functions has a slide that can take them out again.
//!
//! Invariant: the same documents, entering and leaving in the same order, give mongod's bits. A document enters before
//! others leave, as on mongod, because sums of doubles remember the order.

mod accumulated;
mod bounds;
mod covariance;
mod derivative;
mod deviation;
mod edge;
mod exp_moving_avg;
mod extreme;
mod fill;
mod growing;
mod integral;
mod list;
mod percentile;
mod rank;
mod ranked;
mod shift;
mod sum;
mod table;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::{Bindings, Dependencies, Env, Evaluated, Expression, FieldPath, Scope};
use crate::sort::Sort;

pub use bounds::{Bounds, DocumentBound, Frame, RangeBound, RangeBounds};
pub use table::{DEFINITIONS, Definition};

/// A window function as it was asked for.
#[derive(Debug, Clone)]
pub struct WindowFunction {
    name: &'static str,
    function: Arc<dyn Function>,
    /// The frame as explain shows it; none where the function takes no window.
    bounds: Option<Bounds>,
    frame: Frame,
}

/// What a window function computes.
pub trait Function: Debug + Send + Sync {
    /// What runs for it over one partition.
    fn begin(&self, frame: &Frame, bindings: &Bindings) -> Result<Box<dyn Slide>>;

    /// Its operand as explain shows it.
    fn operand(&self) -> Value;

    /// The function as explain shows it: `{$sum: "$a"}`.
    fn to_document(&self, name: &'static str) -> Document {
        [(name, self.operand())].into_iter().collect()
    }

    /// The expressions that it evaluates for each document.
    fn expressions(&self) -> Vec<&Expression>;

    /// Adds what it reads of documents beside its expressions.
    fn dependencies(&self, _needed: &mut Dependencies) {}
}

/// A function over the documents of one frame.
pub trait Slide: Send {
    /// A document comes into the frame, behind all that are in it.
    fn enter(&mut self, env: &Env<'_>) -> Result<()>;

    /// The first document leaves the frame.
    fn leave(&mut self) -> Result<()>;

    /// The value at the current document; missing where the field is to be left out.
    fn value(&mut self) -> Result<Evaluated<'_>>;

    /// Whether more documents have to enter before the value at the current document is known. Asked only in
    /// [`Frame::UntilKnown`].
    fn is_waiting(&self) -> bool {
        false
    }

    /// What it holds, in bytes.
    fn bytes(&self) -> usize;
}

/// What the parser of a function is told of the stage around.
pub(crate) struct Asked<'a, 's> {
    /// The function's own name: `$sum`.
    pub name: &'static str,
    pub operand: RawValue<'a>,
    /// The whole description: `{$sum: "$a", window: {…}}`.
    pub description: RawDocument<'a>,
    /// By what the stage sorts.
    pub sort: Option<&'a Sort>,
    pub scope: &'a Scope<'s>,
}

/// A function, its bounds as explain shows them, and its frame.
pub(crate) type Parsed = (Arc<dyn Function>, Option<Bounds>, Frame);

impl WindowFunction {
    /// Reads what stands under an output field: `{$sum: "$a", window: {documents: [-1, 0]}}`.
    pub fn parse(
        field: &str,
        value: RawValue<'_>,
        sort: Option<&Sort>,
        scope: &Scope<'_>,
    ) -> Result<WindowFunction> {
        let RawValue::Document(description) = value else {
            return Err(failed(format!("The field '{field}' must be an object")));
        };
        let Some((name, operand)) = description.iter().find(|(name, _)| name.starts_with('$')) else {
            let named = description.iter().next().map_or(String::new(), |(name, _)| format!(", {name}"));
            return Err(failed(format!("Expected a $-prefixed window function{named}")));
        };
        let definition =
            table::find(name).ok_or_else(|| failed(format!("Unrecognized window function, {name}")))?;
        let asked = Asked { name: definition.name, operand, description, sort, scope };
        let (function, bounds, frame) = (definition.parse)(&asked)?;
        Ok(WindowFunction { name: definition.name, function, bounds, frame })
    }

    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// What runs for it over one partition.
    pub fn begin(&self, bindings: &Bindings) -> Result<Box<dyn Slide>> {
        self.function.begin(&self.frame, bindings)
    }

    /// As explain prints it: `{$sum: "$a", window: {documents: ["unbounded", "unbounded"]}}`.
    pub fn to_document(&self) -> Document {
        let mut document = self.function.to_document(self.name);
        if let Some(bounds) = &self.bounds {
            document.push("window", bounds.to_document());
        }
        document
    }

    pub fn dependencies(&self, needed: &mut Dependencies) {
        self.function.expressions().into_iter().for_each(|expression| expression.dependencies(needed));
        self.function.dependencies(needed);
    }

    /// Fails where a part that is always evaluated the same way always fails.
    pub(crate) fn check_folded(&self) -> Result<()> {
        let mut expressions = self.function.expressions().into_iter();
        expressions.try_for_each(|expression| expression.clone().optimised().map(drop))
    }

    pub(crate) fn wants_index_key(&self) -> bool {
        self.function.expressions().into_iter().any(Expression::wants_index_key)
    }
}

impl<'a> Asked<'a, '_> {
    fn expression(&self, value: RawValue<'_>) -> Result<Expression> {
        Ok(Expression::parse(value, self.scope)?.optimised_if_it_can_be())
    }

    /// The window as written, and the frame that it stands for: the whole partition where nothing is said.
    fn bounds(&self) -> Result<Bounds> {
        let bounds = Bounds::parse(self.description.get("window"), self.scope)?;
        bounds.check_sort(self.sort)?;
        Ok(bounds)
    }

    /// Refuses fields beside the function and its window.
    fn check_others(&self, refuse: impl Fn(&str) -> Error) -> Result<()> {
        match self.description.iter().find(|(name, _)| *name != "window" && *name != self.name) {
            Some((name, _)) => Err(refuse(name)),
            None => Ok(()),
        }
    }

    fn has_window(&self) -> bool {
        self.description.get("window").is_some()
    }

    fn collation(&self) -> Option<Collation> {
        self.scope.collation().clone()
    }

    /// The path of the only field by which the stage sorts.
    fn sort_path(&self) -> Option<Result<FieldPath>> {
        match self.sort?.parts() {
            [part] => Some(FieldPath::parse(part.path.as_str())),
            _ => None,
        }
    }
}

/// A description that cannot be read.
pub(crate) fn failed(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::FailedToParse, message.into())
}

/// What most functions say about a field that they do not know.
fn unknown_argument(name: &str) -> Error {
    if name.starts_with('$') {
        return failed("Cannot specify two functions in window function spec");
    }
    failed(format!("Window function found an unknown argument: {name}"))
}
