//! `$bit`: and, or, xor on an integer, in the order given. A missing field counts as zero.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue, Value};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::change::Change;
use super::operator::{Missing, Operator, Site};
use crate::text;

#[derive(Debug)]
struct Bit(Vec<(Operation, Integer)>);

#[derive(Debug, Clone, Copy)]
enum Operation {
    And,
    Or,
    Xor,
}

/// The result is a long where either side is one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Integer {
    Int(i32),
    Long(i64),
}

pub(super) fn parse(_path: &str, argument: RawValue<'_>, _: &Option<Collation>) -> Result<Arc<dyn Operator>> {
    let RawValue::Document(operations) = argument else {
        return Err(refuse(format!(
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: \
             {{$bit: {{field: {{and/or/xor: #}}}}",
            argument.element_type().name()
        )));
    };
    let operations = parse_operations(operations)?;
    if operations.is_empty() {
        return Err(refuse(
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}"
                .to_owned(),
        ));
    }
    Ok(Arc::new(Bit(operations)))
}

fn parse_operations(operations: RawDocument<'_>) -> Result<Vec<(Operation, Integer)>> {
    let parse = |(name, value): (&str, RawValue<'_>)| {
        let operation = match name {
            "and" => Operation::And,
            "or" => Operation::Or,
            "xor" => Operation::Xor,
            _ => {
                return Err(refuse(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown \
                     operator: {{{}}}",
                    text::element(name, value)
                )));
            }
        };
        let operand = Integer::of(value).ok_or_else(|| {
            refuse(format!(
                "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {{{}}}",
                value.element_type().name(),
                text::element(name, value)
            ))
        })?;
        Ok((operation, operand))
    };
    operations.iter().map(parse).collect()
}

fn refuse(message: String) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

impl Integer {
    fn of(value: RawValue<'_>) -> Option<Integer> {
        match value {
            RawValue::Int32(int) => Some(Integer::Int(int)),
            RawValue::Int64(long) => Some(Integer::Long(long)),
            _ => None,
        }
    }

    fn wide(self) -> i64 {
        match self {
            Integer::Int(int) => i64::from(int),
            Integer::Long(long) => long,
        }
    }

    fn apply(self, operation: Operation, operand: Integer) -> Integer {
        let (left, right) = (self.wide(), operand.wide());
        let result = match operation {
            Operation::And => left & right,
            Operation::Or => left | right,
            Operation::Xor => left ^ right,
        };
        match (self, operand) {
            (Integer::Int(_), Integer::Int(_)) => Integer::Int(result as i32),
            _ => Integer::Long(result),
        }
    }

    fn to_value(self) -> Value {
        match self {
            Integer::Int(int) => Value::Int32(int),
            Integer::Long(long) => Value::Int64(long),
        }
    }
}

impl Bit {
    fn apply(&self, start: Integer) -> Integer {
        self.0.iter().fold(start, |value, (operation, operand)| value.apply(*operation, *operand))
    }
}

impl Operator for Bit {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        let Some(before) = Integer::of(value) else {
            let id = site.root.get("_id");
            return Err(refuse(format!(
                "Cannot apply $bit to a value of non-integral type.{} has the field {} of non-integer type {}",
                id.map_or_else(|| "INVALID-MUTABLE-ELEMENT".to_owned(), |id| text::element("_id", id)),
                site.name(),
                value.element_type().name()
            )));
        };
        let after = self.apply(before);
        Ok(if after == before { Change::Keep } else { Change::SetOwned(after.to_value()) })
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Create(Change::SetOwned(self.apply(Integer::Int(0)).to_value())))
    }
}
