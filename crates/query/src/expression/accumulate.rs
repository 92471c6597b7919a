//! Accumulators as operators: they fold their arguments, or the elements of the one array they are given.
//!
//! The states are those of [`crate::accumulator`], so an array folds to what a group of its elements does.

use std::cmp::Ordering;

use kilim_bson::{Array, ArrayBuilder, Document, RawArray, RawValue, Value};
use kilim_error::{Error, Result};

use super::{
    Arguments, Call, Env, Evaluated, Expression, Fold, Named, Number, Operator, Parameter, Scope, Summation,
};
use crate::accumulator::{
    Deviation, Mean, check_n, extremes, parse_percentile, percentile_rank, refuse_n_operand,
};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$sum", "the sum of the numbers", Arguments::Any, sum).rewritten_by(gather),
    Operator::new("$avg", "the mean of the numbers", Arguments::Any, avg),
    Operator::new("$min", "the least value", Arguments::Any, min).rewritten_by(gather),
    Operator::new("$max", "the greatest value", Arguments::Any, max).rewritten_by(gather),
    Operator::new("$stdDevPop", "the standard deviation of all there is", Arguments::Any, std_dev_pop),
    Operator::new(
        "$stdDevSamp",
        "the standard deviation of what this is a sample of",
        Arguments::Any,
        std_dev_samp,
    ),
    Operator::new("$firstN", "an array's first elements", Arguments::Named(&COUNTED), first_n)
        .folds(Fold::Forgiving),
    Operator::new("$lastN", "an array's last elements", Arguments::Named(&COUNTED), last_n)
        .folds(Fold::Forgiving),
    Operator::new("$minN", "an array's least elements", Arguments::Named(&COUNTED), min_n)
        .folds(Fold::Forgiving),
    Operator::new("$maxN", "an array's greatest elements", Arguments::Named(&COUNTED), max_n)
        .folds(Fold::Forgiving),
    Operator::new("$median", "the number in the middle", Arguments::Special(parse_ranked), median)
        .shown_by(show_ranked),
    Operator::new("$percentile", "the numbers at given shares", Arguments::Special(parse_ranked), percentile)
        .shown_by(show_ranked),
];

/// Visits every argument, or every element of the array that is the only one.
fn each<'a>(call: &'a Call, env: &Env<'a>, mut visit: impl FnMut(Evaluated<'a>)) -> Result<()> {
    if call.arguments.len() != 1 {
        for value in call.each(env) {
            visit(value?);
        }
        return Ok(());
    }
    match call.argument(0, env)? {
        Evaluated::Raw(RawValue::Array(array)) => {
            for element in array.iter() {
                env.tick()?;
                visit(Evaluated::Raw(element));
            }
        }
        Evaluated::Owned(Value::Array(array)) => {
            for element in array.as_raw().iter() {
                env.tick()?;
                visit(Evaluated::Raw(element).into_owned());
            }
        }
        value => visit(value),
    }
    Ok(())
}

fn each_number<'a>(call: &'a Call, env: &Env<'a>, mut visit: impl FnMut(Number)) -> Result<()> {
    each(call, env, |value| {
        if let Some(number) = Number::of_evaluated(&value) {
            visit(number);
        }
    })
}

fn sum<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut sum = Summation::new();
    each_number(call, env, |number| sum.add(number))?;
    Ok(sum.total().into())
}

fn avg<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut mean = Mean::new();
    each_number(call, env, |number| mean.add(number))?;
    Ok(mean.result().into())
}

fn deviation<'a>(call: &'a Call, env: &Env<'a>) -> Result<Deviation> {
    let mut deviation = Deviation::default();
    each_number(call, env, |number| deviation.add(number.to_f64()))?;
    Ok(deviation)
}

fn std_dev_pop<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(deviation(call, env)?.population().into())
}

fn std_dev_samp<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(deviation(call, env)?.sample().into())
}

fn min<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    extreme(call, env, Ordering::Less)
}

fn max<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    extreme(call, env, Ordering::Greater)
}

/// The first value that no other lies beyond on the wanted side; null of nothing.
fn extreme<'a>(call: &'a Call, env: &Env<'a>, wanted: Ordering) -> Result<Evaluated<'a>> {
    let mut kept = Evaluated::NULL;
    each(call, env, |value| {
        if !value.is_nullish() && (kept.is_nullish() || value.compare(&kept, call.collator()) == wanted) {
            kept = value;
        }
    })?;
    Ok(kept)
}

/// Several constants become one at the end, as the order of arguments does not matter; a call within the call
/// gives its arguments up. One with a single argument keeps it, since that may be an array to walk.
fn gather(mut call: Box<Call>) -> Result<Expression> {
    if call.arguments.len() < 2 {
        return Ok(Expression::Call(call));
    }
    let mut constants = Vec::new();
    let mut others = Vec::new();
    for argument in call.arguments.drain(..).flatten() {
        let taken = match argument {
            Expression::Call(inner)
                if std::ptr::eq(inner.operator, call.operator) && inner.arguments.len() > 1 =>
            {
                inner.arguments
            }
            other => vec![Some(other)],
        };
        let (constant, other): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|argument| matches!(argument, Some(Expression::Constant(_))));
        constants.extend(constant);
        others.extend(other);
    }
    if constants.len() > 1 {
        let folded = Expression::Call(Box::new(call.with_arguments(constants)));
        constants =
            vec![Some(Expression::Constant(folded.evaluate_constant()?.into_value().unwrap_or(Value::Null)))];
    }
    others.extend(constants);
    call.arguments = others;
    Ok(Expression::Call(call))
}

static COUNTED: Named = Named {
    parameters: &[Parameter::required("n"), Parameter::required("input")],
    not_an_object: |operator, operand| refuse_n_operand(operator.name, operand),
    unknown: |_, name| Error::location(5787901, format!("Unknown argument for 'n' operator: {name}")),
    missing: |_, name| {
        let code = if name == "n" { 5787906 } else { 5787907 };
        Error::location(code, format!("Missing value for '{name}'"))
    },
};

/// How many elements are wanted of which array, both checked.
fn counted<'a>(
    call: &'a Call,
    env: &Env<'a>,
    pick: impl FnOnce(RawArray<'_>, usize) -> Result<Array>,
) -> Result<Evaluated<'a>> {
    let n = usize::try_from(check_n(&call.argument(0, env)?)?).unwrap_or(usize::MAX);
    let input = call.argument(1, env)?;
    match input.as_array() {
        Some(array) => Ok(pick(array, n)?.into()),
        None => Err(Error::location(5788200, "Input must be an array")),
    }
}

fn first_n<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    counted(call, env, |array, n| Ok(collected(array.iter().take(n))))
}

fn last_n<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    counted(call, env, |array, n| {
        let skipped = array.len().saturating_sub(n);
        Ok(collected(array.iter().skip(skipped)))
    })
}

fn min_n<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    counted(call, env, |array, n| extremes(array, n as u64, Ordering::Less, call.collator()))
}

fn max_n<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    counted(call, env, |array, n| extremes(array, n as u64, Ordering::Greater, call.collator()))
}

fn collected<'v>(values: impl Iterator<Item = RawValue<'v>>) -> Array {
    let mut array = ArrayBuilder::new();
    values.for_each(|value| array.push(value));
    array.finish()
}

fn parse_ranked(operator: &'static Operator, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    let code = if operator.name == "$median" { 7436201 } else { 7436200 };
    let (input, percentiles) = parse_percentile(operator.name, code, operand, scope)?;
    let mut call = Call::new(operator, vec![Some(input)]);
    call.prepare(percentiles);
    Ok(Expression::Call(Box::new(call)))
}

fn percentiles_of(call: &Call) -> &[f64] {
    call.prepared::<Vec<f64>>().map_or(&[], |percentiles| &percentiles[..])
}

fn show_ranked(call: &Call) -> Value {
    let mut shown = Document::new();
    shown.push("input", call.expression(0).map(Expression::to_value));
    if call.operator.name == "$percentile" {
        shown.push("p", percentiles_of(call).iter().copied().map(Value::Double).collect::<Vec<_>>());
    }
    shown.push("method", "approximate");
    Value::Document(shown)
}

/// The numbers among the elements, in order.
fn sorted_numbers<'a>(call: &'a Call, env: &Env<'a>) -> Result<Vec<f64>> {
    let mut numbers = Vec::new();
    each_number(call, env, |number| {
        if !number.is_nan() {
            numbers.push(number.to_f64());
        }
    })?;
    numbers.sort_unstable_by(f64::total_cmp);
    Ok(numbers)
}

fn at_share(numbers: &[f64], share: f64) -> Evaluated<'static> {
    let found = (!numbers.is_empty()).then(|| numbers[percentile_rank(numbers.len() as i64, share) as usize]);
    found.map_or(Evaluated::NULL, Evaluated::from)
}

fn median<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    Ok(at_share(&sorted_numbers(call, env)?, 0.5))
}

fn percentile<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let numbers = sorted_numbers(call, env)?;
    let mut found = ArrayBuilder::new();
    for share in percentiles_of(call) {
        found.push(at_share(&numbers, *share).raw_or_null());
    }
    Ok(found.finish().into())
}
