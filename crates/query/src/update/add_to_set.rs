//! `$addToSet`: values that the array does not hold yet are appended.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue, Value};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use super::array::{COMPARED_MAX, Members, array_of, contains};
use super::change::Change;
use super::operator::{Append, Missing, Operator, Site};
use crate::{interrupt, text};

#[derive(Debug)]
struct AddToSet {
    /// Each once.
    values: Vec<Value>,
    collation: Option<Collation>,
}

pub(super) fn parse(
    _path: &str,
    argument: RawValue<'_>,
    collation: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    let values = match argument {
        RawValue::Document(document) if document.iter().next().is_some_and(|(name, _)| name == "$each") => {
            parse_each(document, collation)?
        }
        value => vec![value.to_value()],
    };
    Ok(Arc::new(AddToSet { values, collation: collation.clone() }))
}

fn parse_each(document: RawDocument<'_>, collation: &Option<Collation>) -> Result<Vec<Value>> {
    let each = document.get("$each").unwrap_or(RawValue::Null);
    let RawValue::Array(array) = each else {
        let kind = each.element_type().name();
        let message =
            format!("The argument to $each in $addToSet must be an array but it was of type {kind}");
        return Err(Error::user(ErrorCode::TypeMismatch, message));
    };
    if document.iter().count() > 1 {
        let document = text::document(document);
        let message = format!("Found unexpected fields after $each in $addToSet: {document}");
        return Err(Error::user(ErrorCode::BadValue, message));
    }
    let mut values: Vec<Value> = Vec::new();
    let mut known = Members::default();
    for value in array.iter() {
        if known.insert(value, collator(collation))? {
            values.push(value.to_value());
        }
    }
    Ok(values)
}

impl Operator for AddToSet {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        let RawValue::Array(array) = value else {
            let message = format!(
                "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {}",
                site.name(),
                value.element_type().name()
            );
            return Err(Error::user(ErrorCode::BadValue, message));
        };
        let collator = collator(&self.collation);
        let wanted = self.values.iter().map(Value::as_raw);
        let added: Vec<RawValue<'_>> = match self.values.len() <= COMPARED_MAX {
            true => wanted.filter(|value| !contains(array.iter(), *value, collator)).collect(),
            false => {
                let there = Members::of(array.iter(), collator)?;
                wanted.filter(|value| !there.contains(*value, collator)).collect()
            }
        };
        interrupt::settled()?;
        if added.is_empty() {
            return Ok(Change::Keep);
        }
        Ok(Change::SetOwned(array_of(array.iter().chain(added))))
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Create(Change::SetOwned(array_of(self.values.iter().map(Value::as_raw)))))
    }

    fn appends(&self) -> Option<Append> {
        self.collation.is_none().then_some(Append::New)
    }
}
