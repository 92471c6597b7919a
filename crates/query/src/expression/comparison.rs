//! Comparison of any two values in MongoDB's order of types. Arrays compare as wholes.

use std::cmp::Ordering;

use kilim_error::Result;

use super::Arguments::Exactly;
use super::{Call, Env, Evaluated, Operator};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$cmp", "-1, 0 or 1: which value comes first", Exactly(2), |call, env| {
        compare(call, env, |order| Evaluated::from(order as i32))
    }),
    Operator::new("$eq", "whether two values are equal", Exactly(2), |call, env| {
        compare(call, env, |order| order.is_eq().into())
    }),
    Operator::new("$gt", "whether the first value comes after the second", Exactly(2), |call, env| {
        compare(call, env, |order| order.is_gt().into())
    }),
    Operator::new(
        "$gte",
        "whether the first value does not come before the second",
        Exactly(2),
        |call, env| compare(call, env, |order| order.is_ge().into()),
    ),
    Operator::new("$lt", "whether the first value comes before the second", Exactly(2), |call, env| {
        compare(call, env, |order| order.is_lt().into())
    }),
    Operator::new(
        "$lte",
        "whether the first value does not come after the second",
        Exactly(2),
        |call, env| compare(call, env, |order| order.is_le().into()),
    ),
    Operator::new("$ne", "whether two values differ", Exactly(2), |call, env| {
        compare(call, env, |order| order.is_ne().into())
    }),
];

#[inline]
fn compare<'a>(
    call: &'a Call,
    env: &Env<'a>,
    answer: impl FnOnce(Ordering) -> Evaluated<'a>,
) -> Result<Evaluated<'a>> {
    let left = call.argument(0, env)?;
    let right = call.argument(1, env)?;
    Ok(answer(left.compare(&right, call.collator())))
}
