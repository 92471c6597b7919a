//! `$pop`: the first or the last element goes.

use std::sync::Arc;

use kilim_bson::RawValue;
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::array::{array_of, long_of};
use super::change::Change;
use super::operator::{Missing, Operator, Site};
use crate::text;

#[derive(Debug)]
enum Pop {
    First,
    Last,
}

pub(super) fn parse(path: &str, argument: RawValue<'_>, _: &Option<Collation>) -> Result<Arc<dyn Operator>> {
    let refuse = |message| Err(Error::user(ErrorCode::FailedToParse, message));
    if !argument.is_number() {
        return refuse(format!("Expected a number in: {}", text::element(path, argument)));
    }
    match long_of(argument) {
        Some(1) => Ok(Arc::new(Pop::Last)),
        Some(-1) => Ok(Arc::new(Pop::First)),
        Some(other) => refuse(format!("$pop expects 1 or -1, found: {other}")),
        None => refuse(match argument {
            RawValue::Double(double) if double.is_nan() => {
                format!("Expected an integer, but found NaN in: {}", text::element(path, argument))
            }
            RawValue::Double(double) if double.is_finite() && double.fract() != 0.0 => {
                format!("Expected an integer: {}", text::element(path, argument))
            }
            _ => format!("Cannot represent as a 64-bit integer: {}", text::element(path, argument)),
        }),
    }
}

impl Operator for Pop {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        let RawValue::Array(array) = value else {
            let message = format!(
                "Path '{}' contains an element of non-array type '{}'",
                site.path_text(),
                value.element_type().name()
            );
            return Err(Error::user(ErrorCode::TypeMismatch, message));
        };
        if array.is_empty() {
            return Ok(Change::Keep);
        }
        let kept = match self {
            Pop::First => array_of(array.iter().skip(1)),
            Pop::Last => array_of(array.iter().take(array.len() - 1)),
        };
        Ok(Change::SetOwned(kept))
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Check)
    }
}
