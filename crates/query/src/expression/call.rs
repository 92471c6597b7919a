//! An operator with its arguments.

use std::any::Any;
use std::sync::Arc;

use kilim_bson::Collator;
use kilim_collation::{Collation, collator};
use kilim_error::Result;

use super::{Env, Evaluated, Expression, Operator, Slot, memory};

#[derive(Clone)]
pub struct Call {
    pub operator: &'static Operator,
    /// By position, or in the order of the operator's parameters; none where an optional one was left out.
    pub arguments: Vec<Option<Expression>>,
    /// The variables that the operator binds, with their names.
    pub variables: Vec<(Box<str>, Slot)>,
    /// How texts compare, for operators that compare.
    collation: Option<Collation>,
    /// What [`Operator::prepare`] made.
    prepared: Option<Arc<dyn Any + Send + Sync>>,
}

impl Call {
    pub fn new(operator: &'static Operator, arguments: Vec<Option<Expression>>) -> Call {
        Call::binding(operator, arguments, Vec::new())
    }

    /// With variables that the operator binds.
    pub fn binding(
        operator: &'static Operator,
        arguments: Vec<Option<Expression>>,
        variables: Vec<(Box<str>, Slot)>,
    ) -> Call {
        Call { operator, arguments, variables, collation: None, prepared: None }
    }

    /// The same where texts compare like this.
    pub(super) fn under(self, collation: &Option<Collation>) -> Call {
        Call { collation: collation.clone(), ..self }
    }

    /// The same operator on other arguments.
    pub(super) fn with_arguments(&self, arguments: Vec<Option<Expression>>) -> Call {
        Call::new(self.operator, arguments).under(&self.collation)
    }

    pub fn collation(&self) -> &Option<Collation> {
        &self.collation
    }

    pub(super) fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
    }

    /// An argument's value; missing where it was left out.
    #[inline]
    pub fn argument<'a>(&'a self, index: usize, env: &Env<'a>) -> Result<Evaluated<'a>> {
        let Some(expression) = self.expression(index) else { return Ok(Evaluated::Missing) };
        let value = expression.evaluate(env)?;
        memory::looked_at(&value)?;
        Ok(value)
    }

    pub fn expression(&self, index: usize) -> Option<&Expression> {
        self.arguments.get(index).and_then(Option::as_ref)
    }

    pub fn is_given(&self, index: usize) -> bool {
        self.expression(index).is_some()
    }

    /// The values of all arguments, in order.
    pub fn each<'a>(&'a self, env: &Env<'a>) -> impl Iterator<Item = Result<Evaluated<'a>>> {
        self.arguments.iter().flatten().map(move |argument| argument.evaluate(env))
    }

    /// Keeps something for every evaluation.
    pub fn prepare<T: Any + Send + Sync>(&mut self, prepared: T) {
        self.prepared = Some(Arc::new(prepared));
    }

    /// What was kept, if anything was.
    pub fn prepared<T: Any>(&self) -> Option<&T> {
        self.prepared.as_ref()?.downcast_ref()
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.operator.name, self.arguments)
    }
}
