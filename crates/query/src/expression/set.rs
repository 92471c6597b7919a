//! Arrays as sets.
//!
//! Values are told apart by their sort keys: equal values have equal keys, whatever their numeric types, and the
//! order of keys is the order of values. Of equal values the first one met is kept.

use std::collections::HashSet;

use kilim_bson::{RawArray, RawValue, encode_value};
use kilim_error::{Error, Result};

use super::array::Building;
use super::parse::parse_list;
use super::{Arguments, Call, Env, Evaluated, Expression, Fold, Operator, Scope};

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
    fn push(&mut self, value: RawValue<'_>) {
        encode_value(&mut self.bytes, value, false);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    fn of(array: RawArray<'_>, env: &Env<'_>) -> Result<Keys> {
        let mut keys = Keys::default();
        for value in array.iter() {
            env.tick()?;
            keys.push(value);
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
#[derive(Default)]
struct Distinct<'a> {
    keys: Keys,
    values: Vec<RawValue<'a>>,
}

impl<'a> Distinct<'a> {
    fn extend(&mut self, array: RawArray<'a>, env: &Env<'_>) -> Result<()> {
        for value in array.iter() {
            env.tick()?;
            self.keys.push(value);
            self.values.push(value);
        }
        Ok(())
    }

    /// Writes those whose keys are wanted.
    fn finish(self, wanted: impl Fn(&[u8]) -> bool) -> Result<Evaluated<'static>> {
        let mut indexes: Vec<usize> = (0..self.values.len()).collect();
        // Stable, so the first of equals stays the first.
        indexes.sort_by(|&left, &right| self.keys.get(left).cmp(self.keys.get(right)));
        indexes.dedup_by(|later, first| self.keys.get(*later) == self.keys.get(*first));
        let mut set = Building::new();
        for index in indexes {
            if wanted(self.keys.get(index)) {
                set.push(self.values[index])?;
            }
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
    let taken = Keys::of(both(&right, "$setDifference", "Second", 17_049)?, env)?;
    let keys = Keys::of(kept, env)?;
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

fn prepare_set_equals(call: &mut Call) -> Result<()> {
    for (index, argument) in call.arguments.iter().flatten().enumerate() {
        if let Some(value) = constant(argument)
            && value.as_array().is_none()
        {
            return Err(set_equals_operand(index, 5_887_502, value.type_name()));
        }
    }
    Ok(())
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
        Keys::of(array.ok_or_else(|| set_equals_operand(index, 17_044, operand.type_name()))?, env)
    };
    let first = keys_of(0)?;
    let wanted = first.to_set();
    for index in 1..call.arguments.len() {
        if keys_of(index)?.to_set() != wanted {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}

/// One operand of several.
fn one_of<'v>(operand: &'v Evaluated<'_>, name: &str, code: i32) -> Result<RawArray<'v>> {
    operand.as_array().ok_or_else(|| {
        let found = operand.type_name();
        Error::location(
            code,
            format!("All operands of {name} must be arrays. One argument is of type: {found}"),
        )
    })
}

fn set_intersection<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut operands = Vec::with_capacity(call.arguments.len());
    let mut others = Vec::new();
    for operand in call.each(env) {
        let operand = operand?;
        if operand.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        let array = one_of(&operand, "$setIntersection", 17_047)?;
        if !operands.is_empty() {
            others.push(Keys::of(array, env)?);
        }
        operands.push(operand);
    }
    let mut all = Distinct::default();
    if let Some(first) = operands.first().and_then(Evaluated::as_array) {
        all.extend(first, env)?;
    }
    let others: Vec<HashSet<&[u8]>> = others.iter().map(Keys::to_set).collect();
    all.finish(|key| others.iter().all(|other| other.contains(key)))
}

fn set_union<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut operands = Vec::with_capacity(call.arguments.len());
    for operand in call.each(env) {
        let operand = operand?;
        if operand.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        one_of(&operand, "$setUnion", 17_043)?;
        operands.push(operand);
    }
    let mut all = Distinct::default();
    for array in operands.iter().filter_map(Evaluated::as_array) {
        all.extend(array, env)?;
    }
    all.finish(|_| true)
}

/// The values of a constant second operand.
struct Superset(HashSet<Box<[u8]>>);

fn prepare_set_is_subset(call: &mut Call) -> Result<()> {
    let left = call.expression(0).and_then(constant);
    let (None, Some(right)) = (left, call.expression(1).and_then(constant)) else { return Ok(()) };
    let Some(right) = right.as_array() else {
        return Err(not_both("$setIsSubset", "Second", 17_311, right.type_name()));
    };
    let mut keys = Keys::default();
    right.iter().for_each(|value| keys.push(value));
    let superset = Superset(keys.iter().map(Into::into).collect());
    call.prepare(superset);
    Ok(())
}

fn set_is_subset<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let left = call.argument(0, env)?;
    if let Some(Superset(known)) = call.prepared() {
        let keys = Keys::of(both(&left, "$setIsSubset", "First", 17_310)?, env)?;
        return Ok(keys.iter().all(|key| known.contains(key)).into());
    }
    let right = call.argument(1, env)?;
    let left = both(&left, "$setIsSubset", "First", 17_046)?;
    let right = both(&right, "$setIsSubset", "Second", 17_042)?;
    let (left, right) = (Keys::of(left, env)?, Keys::of(right, env)?);
    let known = right.to_set();
    Ok(left.iter().all(|key| known.contains(key)).into())
}
