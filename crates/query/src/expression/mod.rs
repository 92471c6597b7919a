//! Expressions: what pipelines, `$expr`, computed projections and pipeline updates compute with.
//!
//! An expression is parsed once into a tree, then [folded](Expression::optimised): what depends on no document
//! is computed there and then. It is evaluated on raw bytes; a result borrows from the document, from the
//! expression or from a variable where it can. Every operator is a row in the table of its family
//! (`table`): name, arguments and a function; parsing, folding, dependencies and explain know nothing of
//! single operators.
//!
//! Invariant: evaluation depends on nothing but the [`Env`], and a folded tree gives what the unfolded one gives.

mod accumulate;
pub(crate) mod arithmetic;
mod array;
mod binding;
mod bitwise;
mod boolean;
mod call;
mod comparison;
mod conditional;
mod conversion;
pub mod date;
mod dependencies;
mod env;
mod evaluate;
mod evaluated;
mod explain;
mod field_path;
mod fold;
mod inspection;
mod ladder;
mod literal;
mod memory;
mod object;
mod operator;
mod parse;
mod scope;
mod set;
pub(crate) mod show;
mod string;
mod table;
mod trigonometry;

use kilim_bson::Value;

pub(crate) use arithmetic::Pair;
pub use arithmetic::{DoubleDouble, Number, Summation};
pub use call::Call;
pub use dependencies::Dependencies;
pub use env::{Bindings, Env, Fields, Frame, Slot};
pub use evaluate::Place;
pub use evaluated::Evaluated;
pub use field_path::FieldPath;
pub(crate) use inspection::check_available;
pub use inspection::hashed_key;
pub use memory::{VALUE_BYTES_MAX, check_bytes};
pub use operator::{Arguments, Fold, Named, Operator, Parameter};
pub use parse::check_field_name;
pub use scope::{Entry, FoundBy, Scope, Variables, check_variable_name};
pub use table::operators;

/// A parsed expression.
#[derive(Debug, Clone)]
pub enum Expression {
    Constant(Value),
    /// No value: `$$REMOVE`, and what folds to nothing.
    Missing,
    /// `"$a.b"`: a path from the document.
    Field(FieldPath),
    /// `"$$x.a.b"`.
    Variable(Variable),
    Object(Vec<(Box<str>, Expression)>),
    Array(Vec<Expression>),
    Call(Box<Call>),
}

/// A use of a variable.
#[derive(Debug, Clone)]
pub struct Variable {
    /// As explain shows it.
    pub name: Box<str>,
    pub base: Base,
    /// What is taken from the variable's value; none for the value itself.
    pub path: Option<FieldPath>,
}

/// Where a variable's value is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The document itself.
    Root,
    /// Bound by an expression around this one.
    Slot(Slot),
    /// Bound for a whole pipeline, by a `$lookup` around it.
    Binding(usize),
}

impl Expression {
    pub fn as_constant(&self) -> Option<&Value> {
        match self {
            Expression::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The path where the expression is nothing but a field of the document.
    pub fn as_field(&self) -> Option<&FieldPath> {
        match self {
            Expression::Field(path) => Some(path),
            Expression::Variable(Variable { base: Base::Root, path, .. }) => path.as_ref(),
            _ => None,
        }
    }

    /// Expressions directly below this one.
    pub fn children(&self) -> impl Iterator<Item = &Expression> {
        let fields = match self {
            Expression::Object(fields) => &fields[..],
            _ => &[],
        };
        let elements = match self {
            Expression::Array(elements) => &elements[..],
            _ => &[],
        };
        let arguments = match self {
            Expression::Call(call) => &call.arguments[..],
            _ => &[],
        };
        fields.iter().map(|(_, value)| value).chain(elements).chain(arguments.iter().flatten())
    }

    /// The same for those that rewrite.
    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Expression> {
        let children: Vec<&mut Expression> = match self {
            Expression::Object(fields) => fields.iter_mut().map(|(_, value)| value).collect(),
            Expression::Array(elements) => elements.iter_mut().collect(),
            Expression::Call(call) => call.arguments.iter_mut().flatten().collect(),
            _ => Vec::new(),
        };
        children.into_iter()
    }
}
