//! Arrays as sets.
//!
//! Values are told apart by their sort keys: equal values have equal keys, whatever their numeric types, and the
//! order of keys is the order of values, both under the collation. Of equal values the first one met is kept.

use std::collections::HashSet;

use kilim_bson::{Collator, RawArray, RawValue, encode_value_with};
use kilim_error::{Error, Result};

use super::array::Building;
use super::parse::parse_list;
use super::{Arguments, Call, Env, Evaluated, Expression, Fold, Operator, Scope};
use crate::interrupt;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new(
        "$allElementsTrue",
        "whether all elements are true",
        Arguments::Exactly(1),
        all_elements_true,
    ),
    Operator::new("$anyElementTrue", "whether any element is true", Arguments::Exactly(1), any_element_true),
    Operator::new("$setDifference", "what only the first array has", Arguments::Exactly(2), set_difference),
    Operator::new(
        "$setEquals",
        "whether arrays have the same values",
        Arguments::Special(parse_set_equals),
        set_equals,
    )
    .folds(Fold::Never)
    .prepared_by(prepare_set_equals),
    Operator::new("$setIntersection", "what all arrays have", Arguments::Any, set_intersection)
        .folds(Fold::AssociativeCommutative),
    Operator::new(
        "$setIsSubset",
        "whether the second array has all of the first",
        Arguments::Exactly(2),
        set_is_subset,
    )
    .prepared_by(prepare_set_is_subset),
    Operator::new("$setUnion", "what any of the arrays has", Arguments::Any, set_union)
        .folds(Fold::AssociativeCommutative),
];

/// The keys of values, one behind the other in one buffer.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn push(&mut self, value: RawValue<'_>, collator: Option<&dyn Collator>) {
        encode_value_with(&mut self.bytes, value, false, collator);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    fn of(array: RawArray<'_>, call: &Call, env: &Env<'_>) -> Result<Keys> {
        let mut keys = Keys::default();
        for value in array.iter() {
            env.tick()?;
            keys.push(value, call.collator());
        }
        Ok(keys)
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|index| self.get(index))
    }

    fn to_set(&self) -> HashSet<&[u8]> {
        self.iter().collect()
    }
}

/// Values in order, each once.
struct Distinct<'a> {
    keys: Keys,
    values: Vec<RawValue<'a>>,
    /// Which of them, in the order of their keys.
    indexes: Vec<usize>,
}

impl<'a> Distinct<'a> {
    fn of(
        arrays: impl IntoIterator<Item = RawArray<'a>>,
        call: &Call,
        env: &Env<'_>,
    ) -> Result<Distinct<'a>> {
        let (mut keys, mut values) = (Keys::default(), Vec::new());
        for value in arrays.into_iter().flat_map(|array| array.iter()) {
            env.tick()?;
            keys.push(value, call.collator());
            values.push(value);
        }
        let mut indexes: Vec<usize> = (0..values.len()).collect();
        // Stable, so the first of equals stays the first.
        interrupt::sort(&mut indexes, |&left, &right| keys.get(left).cmp(keys.get(right)))?;
        indexes.dedup_by(|later, first| keys.get(*later) == keys.get(*first));
        Ok(Distinct { keys, values, indexes })
    }

    fn has(&self, key: &[u8]) -> bool {
        self.indexes.binary_search_by(|&index| self.keys.get(index).cmp(key)).is_ok()
    }

    fn retain(&mut self, other: &Distinct<'_>) {
        let keys = &self.keys;
        self.indexes.retain(|&index| other.has(keys.get(index)));
    }

    fn finish(self) -> Result<Evaluated<'static>> {
        let mut set = Building::new();
        for index in self.indexes {
            set.push(self.values[index])?;
        }
        Ok(set.finish())
    }
}

fn all_elements_true<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    let elements = elements_of(&array, "$allElementsTrue", 17_040)?;
    Ok(elements.iter().all(|element| Evaluated::Raw(element).to_bool()).into())
}

fn any_element_true<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let array = call.argument(0, env)?;
    let elements = elements_of(&array, "$anyElementTrue", 17_041)?;
    Ok(elements.iter().any(|element| Evaluated::Raw(element).to_bool()).into())
}

fn elements_of<'v>(array: &'v Evaluated<'_>, name: &str, code: i32) -> Result<RawArray<'v>> {
    array.as_array().ok_or_else(|| {
        let found = array.type_name();
        Error::location(code, format!("{name}'s argument must be an array, but is {found}"))
    })
}

/// One operand of two.
fn both<'v>(operand: &'v Evaluated<'_>, name: &str, which: &str, code: i32) -> Result<RawArray<'v>> {
    operand.as_array().ok_or_else(|| not_both(name, which, code, operand.type_name()))
}

fn not_both(name: &str, which: &str, code: i32, found: &str) -> Error {
    Error::location(
        code,
        format!("both operands of {name} must be arrays. {which} argument is of type: {found}"),
    )
}

fn set_difference<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let left = call.argument(0, env)?;
    let right = call.argument(1, env)?;
    if left.is_nullish() || right.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let kept = both(&left, "$setDifference", "First", 17_048)?;
    let taken = Keys::of(both(&right, "$setDifference", "Second", 17_049)?, call, env)?;
    let keys = Keys::of(kept, call, env)?;
    let mut seen = taken.to_set();
    let mut rest = Building::new();
    for (value, key) in kept.iter().zip(keys.iter()) {
        if seen.insert(key) {
            rest.push(value)?;
        }
    }
    Ok(rest.finish())
}

fn parse_set_equals(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let arguments = parse_list(operator, operand, scope)?;
    if arguments.len() < 2 {
        let count = arguments.len();
        return Err(Error::location(17_045, format!("$setEquals needs at least two arguments had: {count}")));
    }
    Ok(Expression::Call(Box::new(Call::new(operator, arguments))))
}

fn set_equals_operand(index: usize, code: i32, found: &str) -> Error {
    let place = index + 1;
    Error::location(
        code,
        format!("All operands of $setEquals must be arrays. {place}-th argument is of type: {found}"),
    )
}

/// Which operand the others are compared with, and its values: the first that is constant.
struct Yardstick {
    operand: usize,
    keys: HashSet<Box<[u8]>>,
}

fn prepare_set_equals(call: &mut Call) -> Result<()> {
    let mut yardstick = None;
    for (index, argument) in call.arguments.iter().flatten().enumerate() {
        let Some(value) = constant(argument) else { continue };
        let Some(array) = value.as_array() else {
            return Err(set_equals_operand(index, 5_887_502, value.type_name()));
        };
        yardstick
            .get_or_insert_with(|| Yardstick { operand: index, keys: owned_keys(array, call.collator()) });
    }
    if let Some(yardstick) = yardstick {
        call.prepare(yardstick);
    }
    Ok(())
}

fn owned_keys(array: RawArray<'_>, collator: Option<&dyn Collator>) -> HashSet<Box<[u8]>> {
    let mut keys = Keys::default();
    array.iter().for_each(|value| keys.push(value, collator));
    keys.iter().map(Into::into).collect()
}

/// The value of an expression that no document influences.
fn constant(expression: &Expression) -> Option<Evaluated<'_>> {
    match expression {
        Expression::Constant(value) => Some(Evaluated::Raw(value.as_raw())),
        Expression::Missing => Some(Evaluated::Missing),
        _ => None,
    }
}

fn set_equals<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let keys_of = |index: usize| -> Result<Keys> {
        let operand = call.argument(index, env)?;
        let array = operand.as_array();
        Keys::of(array.ok_or_else(|| set_equals_operand(index, 17_044, operand.type_name()))?, call, env)
    };
    let first;
    let (yardstick, wanted): (usize, HashSet<&[u8]>) = match call.prepared() {
        Some(Yardstick { operand, keys }) => (*operand, keys.iter().map(|key| &**key).collect()),
        None => {
            first = keys_of(0)?;
            (0, first.to_set())
        }
    };
    for index in (0..call.arguments.len()).filter(|index| *index != yardstick) {
        if keys_of(index)?.to_set() != wanted {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}

/// The operands, all of them arrays; nothing if one is null.
fn arrays<'a>(call: &'a Call, code: i32, env: &Env<'a>) -> Result<Option<Vec<Evaluated<'a>>>> {
    let mut operands = Vec::with_capacity(call.arguments.len());
    for operand in call.each(env) {
        let operand = operand?;
        if operand.is_nullish() {
            return Ok(None);
        }
        if operand.as_array().is_none() {
            let (name, found) = (call.operator.name, operand.type_name());
            return Err(Error::location(
                code,
                format!("All operands of {name} must be arrays. One argument is of type: {found}"),
            ));
        }
        operands.push(operand);
    }
    Ok(Some(operands))
}

fn set_intersection<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Some(operands) = arrays(call, 17_047, env)? else { return Ok(Evaluated::NULL) };
    let mut operands = operands.iter().filter_map(Evaluated::as_array);
    let mut common = Distinct::of(operands.next(), call, env)?;
    for array in operands {
        let mut next = Distinct::of([array], call, env)?;
        // Of equal values, those of the smaller set stay: mongod goes through that one.
        if common.indexes.len() > next.indexes.len() {
            std::mem::swap(&mut common, &mut next);
        }
        common.retain(&next);
    }
    common.finish()
}

fn set_union<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Some(operands) = arrays(call, 17_043, env)? else { return Ok(Evaluated::NULL) };
    Distinct::of(operands.iter().filter_map(Evaluated::as_array), call, env)?.finish()
}

/// The values of a constant second operand.
struct Superset(HashSet<Box<[u8]>>);

fn prepare_set_is_subset(call: &mut Call) -> Result<()> {
    let left = call.expression(0).and_then(constant);
    let (None, Some(right)) = (left, call.expression(1).and_then(constant)) else { return Ok(()) };
    let Some(right) = right.as_array() else {
        return Err(not_both("$setIsSubset", "Second", 17_311, right.type_name()));
    };
    let superset = Superset(owned_keys(right, call.collator()));
    call.prepare(superset);
    Ok(())
}

fn set_is_subset<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let left = call.argument(0, env)?;
    if let Some(Superset(known)) = call.prepared() {
        let keys = Keys::of(both(&left, "$setIsSubset", "First", 17_310)?, call, env)?;
        return Ok(keys.iter().all(|key| known.contains(key)).into());
    }
    let right = call.argument(1, env)?;
    let left = both(&left, "$setIsSubset", "First", 17_046)?;
    let right = both(&right, "$setIsSubset", "Second", 17_042)?;
    let (left, right) = (Keys::of(left, call, env)?, Keys::of(right, call, env)?);
    let known = right.to_set();
    Ok(left.iter().all(|key| known.contains(key)).into())
}
