//! `$expr` and `$sampleRate`: filters that are expressions, and what the planner can take from them.
//!
//! A comparison of a field with a constant is repeated as a predicate on the field's path, beside the
//! expression: an index gives candidates by it, and the expression decides. It cannot be the ordinary
//! predicate, because expressions compare across types and look at no array's elements.

use std::sync::Arc;

use kilim_bson::{Path, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Comparison, Filter, Operand, Predicate, number};
use crate::expression::{Bindings, Call, Expression, Scope};

impl Filter {
    pub(super) fn parse_expr(value: RawValue<'_>, scope: &Scope<'_>) -> Result<Filter> {
        Filter::of_expression(Expression::parse(value, scope)?)
    }

    /// The `$expr` of a stage, which asks documents alone. What always fails is told once the pipeline is folded.
    pub(super) fn parse_expr_of_stage(value: RawValue<'_>, scope: &Scope<'_>) -> Result<Filter> {
        let expression = Expression::parse(value, scope)?;
        expression.check_asks_document_alone()?;
        Ok(Filter::of_folded(expression.optimised_if_it_can_be()))
    }

    /// `$sampleRate`: true by chance, which is an expression too.
    pub(super) fn parse_sample_rate(value: RawValue<'_>, scope: &Scope<'_>) -> Result<Filter> {
        let bad = |message: &str| Err(Error::user(ErrorCode::BadValue, message));
        if !value.is_number() {
            return bad("argument to $sampleRate must be a numeric type");
        }
        let rate = number::to_f64(value);
        if !(0.0..=1.0).contains(&rate) {
            return bad("numeric argument to $sampleRate must be in [0, 1]");
        }
        if rate == 0.0 || rate == 1.0 {
            return Ok(Filter::Expr(Arc::new(Expression::Constant(Value::Bool(rate == 1.0)))));
        }
        let chance = doc! {"$lt": [{"$rand": {}}, {"$const": rate}]};
        Filter::parse_expr(RawValue::Document(chance.as_raw()), scope)
    }

    /// The filter that an expression is, with what follows from it.
    fn of_expression(expression: Expression) -> Result<Filter> {
        folded(expression).map(Filter::of_folded)
    }

    fn of_folded(expression: Expression) -> Filter {
        let implied = implied(&expression);
        let expression = Filter::Expr(Arc::new(expression));
        match implied {
            None => expression,
            Some(implied) => Filter::And(vec![expression, implied]),
        }
    }

    /// Fails where a part of an expression always fails.
    pub fn check_folded(&self) -> Result<()> {
        match self {
            Filter::Expr(expression) => folded((**expression).clone()).map(drop),
            Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
                children.iter().try_for_each(Filter::check_folded)
            }
            Filter::True | Filter::False | Filter::Field { .. } | Filter::JsonSchema(_) | Filter::Text(_) => {
                Ok(())
            }
        }
    }

    /// Whether variables of a pipeline around are used, from this number on.
    pub fn uses_bindings_from(&self, first: usize) -> bool {
        match self {
            Filter::Expr(expression) => expression.uses_bindings_from(first),
            Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
                children.iter().any(|child| child.uses_bindings_from(first))
            }
            Filter::True | Filter::False | Filter::Field { .. } | Filter::JsonSchema(_) | Filter::Text(_) => {
                false
            }
        }
    }

    /// The filter with values in the place of the variables that pipelines around have bound, so that
    /// comparisons with them can use indexes.
    pub fn bind(&self, bindings: &Bindings) -> Result<Filter> {
        Ok(self.bound(bindings)?.simplified())
    }

    fn bound(&self, bindings: &Bindings) -> Result<Filter> {
        let all = |children: &[Filter]| -> Result<Vec<Filter>> {
            children.iter().map(|child| child.bound(bindings)).collect()
        };
        Ok(match self {
            Filter::Expr(expression) if expression.uses_bindings_from(0) => {
                let mut expression = (**expression).clone();
                expression.bind(bindings);
                Filter::of_expression(expression)?
            }
            Filter::And(children) => Filter::And(all(children)?),
            Filter::Or(children) => Filter::Or(all(children)?),
            Filter::Nor(children) => Filter::Nor(all(children)?),
            other => other.clone(),
        })
    }
}

fn folded(expression: Expression) -> Result<Expression> {
    expression.optimised().map_err(|error| error.during("Failed to optimize expression"))
}

/// What an expression demands of paths, as far as comparisons with constants say it.
fn implied(expression: &Expression) -> Option<Filter> {
    let Expression::Call(call) = expression else { return None };
    let arguments = || call.arguments.iter().flatten();
    match call.operator.name {
        // Each child alone is demanded, so those that say nothing can be left out.
        "$and" => {
            let mut children: Vec<Filter> = arguments().filter_map(implied).collect();
            match children.len() {
                0 | 1 => children.pop(),
                _ => Some(Filter::And(children)),
            }
        }
        "$or" => Some(Filter::Or(arguments().map(implied).collect::<Option<_>>()?)),
        _ => comparison(call),
    }
}

fn comparison(call: &Call) -> Option<Filter> {
    let (comparison, flipped) = match call.operator.name {
        "$eq" => (Comparison::Eq, Comparison::Eq),
        "$lt" => (Comparison::Lt, Comparison::Gt),
        "$lte" => (Comparison::Lte, Comparison::Gte),
        "$gt" => (Comparison::Gt, Comparison::Lt),
        "$gte" => (Comparison::Gte, Comparison::Lte),
        _ => return None,
    };
    let (left, right) = (call.expression(0)?, call.expression(1)?);
    let (path, comparison, value) = match (left.as_field(), right.as_field()) {
        (Some(path), None) => (path, comparison, right.as_constant()?),
        (None, Some(path)) => (path, flipped, left.as_constant()?),
        _ => return None,
    };
    // No key stands for an array as a whole, and none for a value that is missing.
    if matches!(value, Value::Array(_) | Value::Undefined) {
        return None;
    }
    let predicate = Predicate::Expr(comparison, Operand::new(value.clone(), call.collation()));
    Some(Filter::Field { path: Path::parse(path.as_str()), predicate })
}
