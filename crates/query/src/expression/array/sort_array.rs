//! `$sortArray`: whole elements, or fields of them.

use std::cmp::Ordering;

use kilim_bson::{Collator, RawDocument, RawValue, Value, compare_with, doc};
use kilim_error::{Error, Result};

use super::{Building, integral};
use crate::expression::{Call, Env, Evaluated, Expression, Operator, Scope};
use crate::interrupt;

/// What elements are compared by.
enum Order {
    Whole { descending: bool },
    Fields(Vec<Key>),
}

struct Key {
    path: Box<str>,
    descending: bool,
}

/// What was written for `sortBy`, as explain shows it, and what it means.
struct SortBy {
    written: Value,
    order: Order,
}

pub(super) fn parse(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let name = operator.name;
    let RawValue::Document(document) = operand else {
        let found = operand.element_type().name();
        return Err(Error::location(
            2_942_500,
            format!("{name} requires an object as an argument, found: {found}"),
        ));
    };
    let (mut input, mut sort_by) = (None, None);
    for (parameter, value) in document {
        match parameter {
            "input" => input = Some(Expression::parse(value, scope)?),
            "sortBy" => sort_by = Some(value),
            _ => {
                return Err(Error::location(
                    2_942_501,
                    format!("{name} found an unknown argument: {parameter}"),
                ));
            }
        }
    }
    let missing = |parameter: &str, code| {
        Error::location(code, format!("{name} requires '{parameter}' to be specified"))
    };
    let input = input.ok_or_else(|| missing("input", 2_942_502))?;
    let sort_by = sort_by.ok_or_else(|| missing("sortBy", 2_942_503))?;
    let mut call = Call::new(operator, vec![Some(input)]);
    call.prepare(SortBy { written: sort_by.to_value(), order: parse_order(sort_by)? });
    Ok(Expression::Call(Box::new(call)))
}

fn parse_order(sort_by: RawValue<'_>) -> Result<Order> {
    match sort_by {
        RawValue::Document(fields) => Ok(Order::Fields(parse_keys(fields)?)),
        number if number.is_number() => {
            let descending = direction(number).ok_or_else(|| {
                Error::location(2_942_506, "The $sort element value must be either 1 or -1")
            })?;
            Ok(Order::Whole { descending })
        }
        _ => Err(Error::location(
            2_942_507,
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
        )),
    }
}

fn parse_keys(fields: RawDocument<'_>) -> Result<Vec<Key>> {
    let bad = |why: String| Error::location(2_942_505, format!("BadValue: {why}"));
    if fields.is_empty() {
        return Err(bad("The sort pattern is empty when it should be a set of fields.".to_owned()));
    }
    let keys = fields.iter().map(|(path, value)| {
        let descending = direction(value)
            .ok_or_else(|| bad("The sort element value must be either 1 or -1".to_owned()))?;
        if path.is_empty() {
            return Err(bad("The sort field cannot be empty".to_owned()));
        }
        if path.split('.').any(str::is_empty) {
            return Err(bad(format!("The sort field is a dotted field but has an empty part: {path}")));
        }
        Ok(Key { path: path.into(), descending })
    });
    keys.collect()
}

/// Whether descending; nothing if the value is neither 1 nor -1.
fn direction(value: RawValue<'_>) -> Option<bool> {
    match value.is_number().then(|| integral(value))?? {
        1 => Some(false),
        -1 => Some(true),
        _ => None,
    }
}

pub(super) fn show(call: &Call) -> Value {
    let input = call.expression(0).map(Expression::to_value);
    let sort_by = call.prepared::<SortBy>().map(|sort_by| sort_by.written.clone());
    doc! {"input": input, "sortBy": sort_by}.into()
}

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = input.as_array() else {
        let found = input.type_name();
        return Err(Error::location(
            2_942_504,
            format!("The input argument to $sortArray must be an array, but was of type: {found}"),
        ));
    };
    let SortBy { order, .. } = call.prepared().ok_or_else(|| Error::bug("$sortArray without its order"))?;
    let mut elements: Vec<RawValue<'_>> = elements.iter().collect();
    env.tick()?;
    match order {
        Order::Whole { descending } => {
            let collator = call.collator();
            interrupt::sort(&mut elements, |left, right| {
                directed(compare_with(*left, *right, collator), *descending)
            })?;
        }
        Order::Fields(keys) => sort_by_fields(&mut elements, keys, call.collator())?,
    }
    env.tick()?;
    let mut sorted = Building::new();
    for element in elements {
        sorted.push(element)?;
    }
    Ok(sorted.finish())
}

fn directed(order: Ordering, descending: bool) -> Ordering {
    if descending { order.reverse() } else { order }
}

/// Finds each element's values once, then compares those.
fn sort_by_fields(
    elements: &mut Vec<RawValue<'_>>,
    keys: &[Key],
    collator: Option<&dyn Collator>,
) -> Result<()> {
    let values: Vec<RawValue<'_>> =
        elements.iter().flat_map(|element| keys.iter().map(|key| value_at(*element, &key.path))).collect();
    let of = |index: usize| &values[index * keys.len()..][..keys.len()];
    let mut indexes: Vec<usize> = (0..elements.len()).collect();
    interrupt::sort(&mut indexes, |&left, &right| {
        let pairs = of(left).iter().zip(of(right)).zip(keys);
        pairs.fold(Ordering::Equal, |order, ((left, right), key)| {
            order.then_with(|| directed(compare_with(*left, *right, collator), key.descending))
        })
    })?;
    *elements = indexes.into_iter().map(|index| elements[index]).collect();
    Ok(())
}

/// The value at a path, null where there is none. Arrays on the way are entered by index only, as documents are by name.
fn value_at<'a>(element: RawValue<'a>, path: &str) -> RawValue<'a> {
    let RawValue::Document(mut document) = element else { return RawValue::Null };
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        match (document.get(name), names.peek()) {
            (Some(value), None) => return value,
            (Some(RawValue::Document(nested)), Some(_)) => document = nested,
            (Some(RawValue::Array(nested)), Some(_)) => document = nested.as_document(),
            _ => break,
        }
    }
    RawValue::Null
}
