//! A row of the operator table.

use kilim_bson::{RawValue, Value};
use kilim_error::{Error, Result};

use super::{Call, Env, Evaluated, Expression, Scope};

/// An operator of the expression language.
#[derive(Debug)]
pub struct Operator {
    /// With its `$`.
    pub name: &'static str,
    /// One line on what it gives.
    pub help: &'static str,
    pub arguments: Arguments,
    pub evaluate: Evaluate,
    pub fold: Fold,
    /// Looks at the arguments once they are folded: refuses constants, or makes something of them for every evaluation.
    pub prepare: Option<fn(&mut Call) -> Result<()>>,
    /// What the call becomes once its arguments are folded: a part of itself, or fewer arguments.
    pub rewrite: Option<fn(Box<Call>) -> Result<Expression>>,
    /// The operand as explain shows it, where it is not the list or the document of the arguments.
    pub show: Option<fn(&Call) -> Value>,
}

pub type Evaluate = for<'a> fn(&'a Call, &Env<'a>) -> Result<Evaluated<'a>>;

/// How the operand is written.
#[derive(Debug, Clone, Copy)]
pub enum Arguments {
    /// `{$op: [a, b]}`, or `{$op: a}` for one.
    Exactly(usize),
    Between(usize, usize),
    /// Any number.
    Any,
    /// `{$op: {name: a, …}}`.
    Named(&'static Named),
    /// The operator parses its operand itself.
    Special(fn(&'static Operator, RawValue<'_>, &Scope<'_>) -> Result<Expression>),
}

/// The parameters of an operator that names them, and what mongod says of other operands, which differs
/// from operator to operator.
#[derive(Debug)]
pub struct Named {
    /// In the order of [`Call::arguments`].
    pub parameters: &'static [Parameter],
    pub not_an_object: fn(&Operator, RawValue<'_>) -> Error,
    pub unknown: fn(&Operator, &str) -> Error,
    pub missing: fn(&Operator, &str) -> Error,
}

#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub required: bool,
}

impl Parameter {
    pub const fn required(name: &'static str) -> Parameter {
        Parameter { name, required: true }
    }

    pub const fn optional(name: &'static str) -> Parameter {
        Parameter { name, required: false }
    }
}

/// What may be computed before any document is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// All arguments constant: the result is.
    Constant,
    /// Each evaluation may differ.
    Never,
    /// As [`Fold::Never`], and an argument that always fails does so when it is evaluated, no sooner.
    Forgiving,
    /// Cases and what they give, as of `$switch`: of a case that cannot apply, the rest is not looked at.
    Branches,
    /// Besides, neighbouring constants become one and nested calls of the operator are taken in.
    Associative,
    /// Besides, constants gather at the end.
    AssociativeCommutative,
}

impl Operator {
    pub const fn new(
        name: &'static str,
        help: &'static str,
        arguments: Arguments,
        evaluate: Evaluate,
    ) -> Operator {
        Operator {
            name,
            help,
            arguments,
            evaluate,
            fold: Fold::Constant,
            prepare: None,
            rewrite: None,
            show: None,
        }
    }

    pub const fn folds(self, fold: Fold) -> Operator {
        Operator { fold, ..self }
    }

    pub const fn prepared_by(self, prepare: fn(&mut Call) -> Result<()>) -> Operator {
        Operator { prepare: Some(prepare), ..self }
    }

    pub const fn rewritten_by(self, rewrite: fn(Box<Call>) -> Result<Expression>) -> Operator {
        Operator { rewrite: Some(rewrite), ..self }
    }

    pub const fn shown_by(self, show: fn(&Call) -> Value) -> Operator {
        Operator { show: Some(show), ..self }
    }
}
