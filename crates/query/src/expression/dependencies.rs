//! Which parts of a document an expression reads.

use std::collections::BTreeSet;

use super::{Base, Expression, Variable};

/// What somebody needs of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dotted paths.
    pub fields: BTreeSet<Box<str>>,
    /// The document as a whole: the fields say nothing then.
    pub whole_document: bool,
}

impl Dependencies {
    pub fn field(&mut self, path: &str) {
        if !self.fields.contains(path) {
            self.fields.insert(path.into());
        }
    }
}

impl Expression {
    pub fn dependencies(&self, needed: &mut Dependencies) {
        match self {
            Expression::Field(path) => needed.field(path.as_str()),
            Expression::Variable(Variable { base: Base::Root, path, .. }) => match path {
                Some(path) => needed.field(path.as_str()),
                None => needed.whole_document = true,
            },
            _ => self.children().for_each(|child| child.dependencies(needed)),
        }
    }

    /// Whether a variable of a pipeline around is used, from this number on.
    pub fn uses_bindings_from(&self, first: usize) -> bool {
        match self {
            Expression::Variable(Variable { base: Base::Binding(index), .. }) => *index >= first,
            _ => self.children().any(|child| child.uses_bindings_from(first)),
        }
    }

    /// Puts values in the place of the variables that pipelines around have bound.
    pub fn bind(&mut self, bindings: &super::Bindings) {
        if let Expression::Variable(Variable { base: Base::Binding(index), path, .. }) = self {
            let value = super::Evaluated::from(bindings.get(*index));
            let value = match path {
                None => value,
                Some(path) => path.evaluate_in(value),
            };
            *self = value.into_value().map_or(Expression::Missing, Expression::Constant);
            return;
        }
        self.children_mut().for_each(|child| child.bind(bindings));
    }
}
