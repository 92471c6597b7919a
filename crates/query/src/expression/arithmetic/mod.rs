//! Sums, products, rounding, roots and logarithms of numbers and dates.
//!
//! Operators of one argument are rows of [`unary`]; the others have a file each. What several share, and
//! accumulators and trigonometry with them: [`Number`], [`Summation`] and the refusals below.

mod add;
mod divide;
mod exponential;
mod modulo;
mod multiply;
mod number;
mod power;
mod round;
mod subtract;
mod summation;
mod unary;

use kilim_error::Error;

pub(crate) use add::add;
pub(crate) use divide::divide;
pub(crate) use multiply::multiply;
pub use number::Number;
pub(crate) use number::Pair;
pub(crate) use subtract::subtract;
pub use summation::{DoubleDouble, Summation};
pub(super) use unary::unary;

use super::Arguments::{Any, Between, Exactly};
use super::{Evaluated, Fold, Operator};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$abs", "the distance from zero", Exactly(1), unary::abs),
    Operator::new("$add", "the sum of numbers, or of a date and numbers", Any, add::evaluate)
        .folds(Fold::AssociativeCommutative),
    Operator::new("$ceil", "rounded up to a whole number", Exactly(1), unary::ceil),
    Operator::new("$divide", "one number divided by another", Exactly(2), divide::evaluate),
    Operator::new("$exp", "e to a power", Exactly(1), exponential::exp),
    Operator::new("$floor", "rounded down to a whole number", Exactly(1), unary::floor),
    Operator::new("$ln", "the natural logarithm", Exactly(1), exponential::ln),
    Operator::new("$log", "the logarithm to a base", Exactly(2), exponential::log),
    Operator::new("$log10", "the logarithm to base ten", Exactly(1), exponential::log10),
    Operator::new("$mod", "what a division leaves", Exactly(2), modulo::evaluate),
    Operator::new("$multiply", "the product of numbers", Any, multiply::evaluate)
        .folds(Fold::AssociativeCommutative),
    Operator::new("$pow", "a number to a power", Exactly(2), power::evaluate),
    Operator::new("$round", "rounded to a place, halves to the even digit", Between(1, 2), round::round),
    Operator::new("$sqrt", "the square root", Exactly(1), exponential::sqrt),
    Operator::new(
        "$subtract",
        "the difference of numbers or dates, or a date some milliseconds before",
        Exactly(2),
        subtract::evaluate,
    ),
    Operator::new("$trunc", "digits behind a place cut off", Between(1, 2), round::trunc),
];

/// A date some milliseconds away could not be counted to.
pub(super) fn out_of_long_range(value: f64) -> Error {
    let shown = crate::filter::number::short(value);
    Error::location(31_109, format!("Can't coerce out of range value {shown} to long"))
}

pub(super) fn only_numbers(code: i32, operator: &Operator, value: &Evaluated<'_>) -> Error {
    let message = format!("{} only supports numeric types, not {}", operator.name, value.type_name());
    Error::location(code, message)
}
