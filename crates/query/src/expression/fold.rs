//! Folding: what depends on no document is computed before the first one is seen.

use kilim_error::Result;

use super::memory::may_keep;
use super::{Call, Expression, Fold};

impl Expression {
    /// The same expression, as far computed as it can be. Fails where a part that is always evaluated the
    /// same way always fails, whether or not a document would have come to it.
    pub fn optimised(mut self) -> Result<Expression> {
        if let Expression::Call(call) = &mut self
            && call.operator.fold == Fold::Branches
        {
            super::conditional::fold_branches(call)?;
            return self.rewritten();
        }
        let forgiving = matches!(&self, Expression::Call(call) if call.operator.fold == Fold::Forgiving);
        for child in self.children_mut() {
            let kept = forgiving.then(|| child.clone());
            let taken = std::mem::replace(child, Expression::Missing);
            *child = match (taken.optimised(), kept) {
                (Err(_), Some(kept)) => kept,
                (folded, _) => folded?,
            };
        }
        let Expression::Call(mut call) = self else { return Ok(self.literal()) };
        if matches!(call.operator.fold, Fold::Associative | Fold::AssociativeCommutative) {
            gather(&mut call)?;
        }
        if let Some(prepare) = call.operator.prepare {
            prepare(&mut call)?;
        }
        let folds = !matches!(call.operator.fold, Fold::Never | Fold::Forgiving)
            && call.arguments.iter().flatten().all(Expression::is_constant);
        match call.operator.rewrite {
            _ if folds => Expression::Call(call).computed(),
            Some(rewrite) => rewrite(call),
            None => Ok(Expression::Call(call)),
        }
    }

    /// The same, and as it is where a part always fails: that is told later, by whoever must tell it.
    pub fn optimised_if_it_can_be(self) -> Expression {
        match self.clone().optimised() {
            Ok(folded) => folded,
            Err(_) => self,
        }
    }

    /// A call as its operator would rather have it, once its arguments are folded.
    fn rewritten(self) -> Result<Expression> {
        match self {
            Expression::Call(call) => match call.operator.rewrite {
                Some(rewrite) => rewrite(call),
                None => Ok(Expression::Call(call)),
            },
            other => Ok(other),
        }
    }

    /// A document or array of constants is one, also of what is missing.
    fn literal(self) -> Expression {
        let constant = match &self {
            Expression::Object(fields) => fields.iter().all(|(_, value)| value.is_constant()),
            Expression::Array(elements) => elements.iter().all(Expression::is_constant),
            _ => false,
        };
        match constant.then(|| self.evaluate_constant()) {
            Some(Ok(value)) if may_keep(value.raw_or_null()) => {
                value.into_value().map_or(self, Expression::Constant)
            }
            _ => self,
        }
    }

    fn is_constant(&self) -> bool {
        matches!(self, Expression::Constant(_) | Expression::Missing)
    }

    fn computed(self) -> Result<Expression> {
        let value = self.evaluate_constant()?;
        if !may_keep(value.raw_or_null()) {
            return Ok(self);
        }
        Ok(value.into_value().map_or(Expression::Missing, Expression::Constant))
    }
}

/// Takes nested calls of the same operator in, and makes one constant of several.
fn gather(call: &mut Call) -> Result<()> {
    let operator = call.operator;
    let empty = call.with_arguments(Vec::new());
    let mut flat = Vec::with_capacity(call.arguments.len());
    for argument in call.arguments.drain(..).flatten() {
        match argument {
            Expression::Call(inner) if std::ptr::eq(inner.operator, operator) => {
                flat.extend(inner.arguments.into_iter().flatten());
            }
            other => flat.push(other),
        }
    }
    let computed = |constants: &mut Vec<Expression>| -> Result<Option<Expression>> {
        if constants.len() < 2 {
            return Ok(constants.pop());
        }
        let arguments = constants.drain(..).map(Some).collect();
        Expression::Call(Box::new(empty.with_arguments(arguments))).computed().map(Some)
    };
    let mut constants = Vec::new();
    for argument in flat {
        match argument {
            Expression::Constant(_) | Expression::Missing => constants.push(argument),
            other => {
                if operator.fold == Fold::Associative {
                    call.arguments.extend(computed(&mut constants)?.map(Some));
                }
                call.arguments.push(Some(other));
            }
        }
    }
    call.arguments.extend(computed(&mut constants)?.map(Some));
    Ok(())
}
