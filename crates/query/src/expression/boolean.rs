//! `$and`, `$or` and `$not` over MongoDB's truth.
//!
//! The first two stop at the first argument that decides. Constants gather behind the other arguments, where
//! they decide at once or fall away.

use kilim_bson::Value;
use kilim_error::Result;

use super::Arguments::{Any, Exactly};
use super::{Call, Env, Evaluated, Expression, Fold, Operator};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$and", "whether every argument is true", Any, |call, env| until(call, env, false))
        .folds(Fold::AssociativeCommutative)
        .rewritten_by(|call| without_constant(call, false)),
    Operator::new("$or", "whether any argument is true", Any, |call, env| until(call, env, true))
        .folds(Fold::AssociativeCommutative)
        .rewritten_by(|call| without_constant(call, true)),
    Operator::new("$not", "true of what is false", Exactly(1), |call, env| {
        Ok((!call.argument(0, env)?.to_bool()).into())
    }),
];

/// Goes through the arguments until one decides.
fn until<'a>(call: &'a Call, env: &Env<'a>, deciding: bool) -> Result<Evaluated<'a>> {
    for value in call.each(env) {
        if value?.to_bool() == deciding {
            return Ok(deciding.into());
        }
    }
    Ok((!deciding).into())
}

fn without_constant(mut call: Box<Call>, deciding: bool) -> Result<Expression> {
    let last = match call.arguments.last() {
        Some(Some(Expression::Constant(last))) => Evaluated::Raw(last.as_raw()).to_bool(),
        Some(Some(Expression::Missing)) => false,
        _ => return Ok(Expression::Call(call)),
    };
    if last == deciding {
        return Ok(Expression::Constant(Value::Bool(deciding)));
    }
    call.arguments.pop();
    Ok(Expression::Call(call))
}
