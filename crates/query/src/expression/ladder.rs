//! A `$switch` whose cases are neighbouring ranges of one value, as `$bucket` makes it: the value is computed
//! once and its range is searched, instead of asking case after case.

use std::cmp::Ordering;

use kilim_bson::{RawValue, Value, compare_with, identical};
use kilim_error::Result;

use super::{Call, Env, Evaluated, Expression, Fold};

/// The bounds between the ranges, ascending: case `i` is from bound `i` up to bound `i + 1`.
pub(super) struct Ladder {
    bounds: Vec<Value>,
    /// The same as doubles, where they are that exactly.
    doubles: Option<Vec<f64>>,
}

/// Whole numbers up to here are exact as doubles.
const EXACT_MAX: u64 = 1 << 53;

/// A number that a double holds exactly; NaN is no number among others.
fn exact(value: RawValue<'_>) -> Option<f64> {
    match value {
        RawValue::Int32(value) => Some(f64::from(value)),
        RawValue::Int64(value) if value.unsigned_abs() <= EXACT_MAX => Some(value as f64),
        RawValue::Double(value) if !value.is_nan() => Some(value),
        _ => None,
    }
}

impl Ladder {
    /// The ladder that a `$switch` is, if it is one.
    pub(super) fn of(switch: &Call) -> Option<Ladder> {
        let cases = switch.arguments.len() / 2;
        let input = range_of(switch.expression(0)?)?.0;
        if cases < 2 || !is_same_each_time(input) {
            return None;
        }
        let shown = input.to_value();
        // All comparisons of an expression are under the collation of the command it belongs to.
        let collator = switch.collator();
        let mut bounds: Vec<Value> = Vec::with_capacity(cases + 1);
        for case in 0..cases {
            let (other, low, high) = range_of(switch.expression(2 * case)?)?;
            let follows = match bounds.last() {
                Some(last) => identical(last.as_raw(), low.as_raw()),
                None => true,
            };
            let ascends = compare_with(low.as_raw(), high.as_raw(), collator) == Ordering::Less;
            if !follows || !ascends || !identical(other.to_value().as_raw(), shown.as_raw()) {
                return None;
            }
            if bounds.is_empty() {
                bounds.push(low.clone());
            }
            bounds.push(high.clone());
        }
        let doubles = bounds.iter().map(|bound| exact(bound.as_raw())).collect();
        Some(Ladder { bounds, doubles })
    }

    /// The case that holds, by its number.
    pub(super) fn case(&self, switch: &Call, env: &Env<'_>) -> Result<Option<usize>> {
        let Some(input) = input_of(switch) else { return Ok(None) };
        let value = input.evaluate(env)?;
        let passed = match (&self.doubles, value.raw().and_then(exact)) {
            (Some(bounds), Some(value)) => bounds.partition_point(|bound| value >= *bound),
            _ => {
                let above = |bound: &Value| {
                    value.compare(&Evaluated::Raw(bound.as_raw()), switch.collator()) != Ordering::Less
                };
                self.bounds.partition_point(above)
            }
        };
        Ok((1..self.bounds.len()).contains(&passed).then(|| passed - 1))
    }
}

/// What a ladder's cases compare, without looking at them again.
fn input_of(switch: &Call) -> Option<&Expression> {
    let Expression::Call(both) = switch.expression(0)? else { return None };
    let Expression::Call(low) = both.expression(0)? else { return None };
    low.expression(0)
}

/// `{$and: [{$gte: [input, low]}, {$lt: [input, high]}]}`.
fn range_of(case: &Expression) -> Option<(&Expression, &Value, &Value)> {
    let comparison = |expression: &'_ Expression, name: &str| match expression {
        Expression::Call(call) if call.operator.name == name => Some(call.arguments.len()),
        _ => None,
    };
    let Expression::Call(both) = case else { return None };
    let [Some(low), Some(high)] = &both.arguments[..] else { return None };
    if both.operator.name != "$and" || comparison(low, "$gte").is_none() || comparison(high, "$lt").is_none()
    {
        return None;
    }
    let (Expression::Call(low), Expression::Call(high)) = (low, high) else { return None };
    let (input, low) = (low.expression(0)?, low.expression(1)?.as_constant()?);
    let (same, high) = (high.expression(0)?, high.expression(1)?.as_constant()?);
    identical(input.to_value().as_raw(), same.to_value().as_raw()).then_some((input, low, high))
}

fn is_same_each_time(expression: &Expression) -> bool {
    !matches!(expression, Expression::Call(call) if call.operator.fold == Fold::Never)
        && expression.children().all(is_same_each_time)
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Document, array, doc};

    use super::*;
    use crate::expression::{Bindings, Scope, Variables};

    fn switch(bounds: &[(i32, i32)], input: Value) -> Expression {
        let branch = |(at, (low, high)): (usize, &(i32, i32))| {
            let case = doc! {"$and": array![
                doc! {"$gte": array![input.clone(), *low]}, doc! {"$lt": array![input.clone(), *high]},
            ]};
            Value::Document(doc! {"case": case, "then": at as i32})
        };
        let branches: Vec<Value> = bounds.iter().enumerate().map(branch).collect();
        let switch = doc! {"$switch": {"branches": branches, "default": -1}};
        let variables = Variables::default();
        let parsed = Expression::parse(RawValue::Document(switch.as_raw()), &Scope::new(&variables));
        parsed.and_then(Expression::optimised).expect("it parses")
    }

    fn is_ladder(expression: &Expression) -> bool {
        matches!(expression, Expression::Call(call) if call.prepared::<Ladder>().is_some())
    }

    fn given(expression: &Expression, document: &Document) -> i32 {
        match expression.evaluate(&Env::new(document.as_raw(), Bindings::none())).expect("it runs").raw() {
            Some(RawValue::Int32(value)) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_ladder_gives_what_its_cases_give() {
        let ladder = switch(&[(0, 10), (10, 20), (20, 30)], "$a".into());
        assert!(is_ladder(&ladder));
        for (value, expected) in [
            (Value::Int32(-1), -1),
            (Value::Int32(0), 0),
            (Value::Double(9.99), 0),
            (Value::Double(10.0), 1),
            (Value::Int64(29), 2),
            (Value::Int32(30), -1),
            (Value::Null, -1),
            ("x".into(), -1),
            (Value::Double(f64::NAN), -1),
        ] {
            assert_eq!(given(&ladder, &doc! {"a": value.clone()}), expected, "{value:?}");
        }
        assert_eq!(given(&ladder, &doc! {}), -1);
    }

    #[test]
    fn gaps_chance_and_disorder_make_no_ladder() {
        assert!(!is_ladder(&switch(&[(0, 10), (11, 20)], "$a".into())));
        assert!(!is_ladder(&switch(&[(0, 10), (10, 5)], "$a".into())));
        assert!(!is_ladder(&switch(&[(0, 1), (1, 2)], doc! {"$rand": {}}.into())));
    }
}
