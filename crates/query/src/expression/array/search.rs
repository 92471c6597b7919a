//! Values sought in an array: `$in`, `$indexOfArray`.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use kilim_bson::{Collator, RawArray, RawValue, Value, encode_value_with};
use kilim_error::{Error, Result};

use super::integral;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated, Expression};

/// Constant lists shorter than this are searched in turn: that costs less than making a key of the value.
const INDEXED_LEN_MIN: usize = 8;

/// Equal values have equal keys.
fn key_of(value: RawValue<'_>, collator: Option<&dyn Collator>) -> Vec<u8> {
    let mut key = Vec::new();
    encode_value_with(&mut key, value, false, collator);
    key
}

/// An argument that is a constant array, long enough to be worth an index.
fn constant_list(call: &Call, argument: usize) -> Option<RawArray<'_>> {
    let list = call.expression(argument)?.as_constant()?.as_raw().as_array()?;
    (list.len() >= INDEXED_LEN_MIN).then_some(list)
}

/// A constant list's values.
struct Members(HashSet<Vec<u8>>);

pub(super) fn prepare_in(call: &mut Call) -> Result<()> {
    if let Some(list) = constant_list(call, 1) {
        let members = Members(list.iter().map(|value| key_of(value, call.collator())).collect());
        call.prepare(members);
    }
    Ok(())
}

pub(super) fn is_in<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    if let (Some(Members(keys)), Some(value)) = (call.prepared(), value.raw()) {
        return Ok(keys.contains(&key_of(value, call.collator())).into());
    }
    let array = call.argument(1, env)?;
    let Some(elements) = array.as_array() else {
        let found = array.type_name();
        return Err(Error::location(
            40_081,
            format!("$in requires an array as a second argument, found: {found}"),
        ));
    };
    Ok(position(call, elements, &value, 0..usize::MAX, env)?.is_some().into())
}

/// The places of a constant list's values, in order.
struct Places(HashMap<Vec<u8>, Vec<usize>>);

pub(super) fn prepare_index_of_array(call: &mut Call) -> Result<()> {
    if let Some(list) = constant_list(call, 0) {
        let mut places: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, value) in list.iter().enumerate() {
            places.entry(key_of(value, call.collator())).or_default().push(index);
        }
        call.prepare(Places(places));
    }
    Ok(())
}

/// A constant that is no array is seen before any document is; one that is null answers at once.
pub(super) fn rewrite_index_of_array(call: Box<Call>) -> Result<Expression> {
    let list = match call.expression(0) {
        Some(Expression::Constant(list)) => Evaluated::Raw(list.as_raw()),
        Some(Expression::Missing) => Evaluated::Missing,
        _ => return Ok(Expression::Call(call)),
    };
    if list.is_nullish() {
        return Ok(Expression::Constant(Value::Null));
    }
    if list.as_array().is_none() {
        let found = list.type_name();
        return Err(Error::location(
            50_809,
            format!("First operand of $indexOfArray must be an array. First argument is of type: {found}"),
        ));
    }
    Ok(Expression::Call(call))
}

pub(super) fn index_of_array<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    if array.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = array.as_array() else {
        let found = array.type_name();
        return Err(Error::location(
            40_090,
            format!("$indexOfArray requires an array as a first argument, found: {found}"),
        ));
    };
    let start = bound(call, 2, "starting", env)?.unwrap_or(0);
    let end = bound(call, 3, "ending", env)?.unwrap_or(usize::MAX);
    let value = call.argument(1, env)?;
    let found = match (call.prepared(), value.raw()) {
        (Some(Places(places)), Some(value)) => {
            let places = places.get(&key_of(value, call.collator())).into_iter().flatten();
            places.copied().find(|place| (start..end).contains(place))
        }
        _ => position(call, elements, &value, start..end, env)?,
    };
    Ok(found.map_or(-1, |index| index as i32).into())
}

/// The first of these places at which the value is.
fn position(
    call: &Call,
    elements: RawArray<'_>,
    value: &Evaluated<'_>,
    places: Range<usize>,
    env: &Env<'_>,
) -> Result<Option<usize>> {
    for (index, element) in elements.iter().enumerate().take(places.end).skip(places.start) {
        env.tick()?;
        if value.compare(&element.into(), call.collator()).is_eq() {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// An optional argument that is an index.
pub(in crate::expression) fn bound(
    call: &Call,
    argument: usize,
    which: &str,
    env: &Env<'_>,
) -> Result<Option<usize>> {
    let Some(expression) = call.expression(argument) else { return Ok(None) };
    let value = expression.evaluate(env)?;
    let name = call.operator.name;
    match value.raw().and_then(integral) {
        Some(index) if index >= 0 => Ok(Some(index as usize)),
        Some(index) => Err(Error::location(
            40_097,
            format!("{name} requires a nonnegative {which} index, found: {index}"),
        )),
        None => Err(Error::location(
            40_096,
            format!(
                "{name}requires an integral {which} index, found a value of type: {}, with value: {}",
                value.type_name(),
                value.raw().map_or_else(|| "MISSING".to_owned(), show)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Document, array, doc};

    use super::*;
    use crate::expression::{Bindings, Scope, Variables};

    fn evaluated(expression: &Expression, document: &Document) -> Value {
        let env = Env::new(document.as_raw(), Bindings::none());
        expression.evaluate(&env).unwrap().into_value().unwrap()
    }

    #[test]
    fn an_indexed_list_answers_as_one_searched_in_turn() {
        let list = array![1, 2.0, "x", [1], {"a": 1}, Value::Null, 2, 3_i64, "y", 1.0];
        let values = [
            Value::Int32(1),
            Value::Int64(2),
            Value::Double(3.0),
            Value::Int32(4),
            "x".into(),
            Value::Null,
            Value::Undefined,
            array![1.0].into(),
            doc! {"a": 1_i64}.into(),
        ];
        let variables = Variables::default();
        for operands in [array!["$v", "$list"], array!["$list", "$v"], array!["$list", "$v", 1, 7]] {
            let name = if operands.as_raw().get(0).and_then(RawValue::as_str) == Some("$v") {
                "$in"
            } else {
                "$indexOfArray"
            };
            let constant = operands.as_raw().iter().map(|operand| match operand {
                RawValue::String("$list") => Value::Document(doc! {"$literal": list.clone()}),
                other => other.to_value(),
            });
            let scope = Scope::new(&variables);
            let parse = |operands: kilim_bson::Array| {
                Expression::parse_call(name, Value::Array(operands).as_raw(), &scope).unwrap()
            };
            let indexed = parse(constant.collect()).optimised().unwrap();
            let in_turn = parse(operands);
            for value in &values {
                let document = doc! {"list": list.clone(), "v": value.clone()};
                let (left, right) = (evaluated(&indexed, &document), evaluated(&in_turn, &document));
                assert!(kilim_bson::identical(left.as_raw(), right.as_raw()), "{name} {value:?}");
            }
        }
    }
}
