//! `$currentDate`: the present, as a date or a timestamp.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue, Value};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::change::Change;
use super::operator::{Missing, Operator, Site};

#[derive(Debug, Clone, Copy)]
enum CurrentDate {
    Date,
    Timestamp,
}

pub(super) fn parse(_path: &str, argument: RawValue<'_>, _: &Option<Collation>) -> Result<Arc<dyn Operator>> {
    match argument {
        RawValue::Bool(_) => Ok(Arc::new(CurrentDate::Date)),
        RawValue::Document(options) => Ok(Arc::new(parse_type(options)?)),
        other => Err(refuse(format!(
            "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression \
             ({{$type: 'timestamp/date'}}).",
            other.element_type().name()
        ))),
    }
}

fn parse_type(options: RawDocument<'_>) -> Result<CurrentDate> {
    let mut found = None;
    for (name, value) in options {
        if name != "$type" {
            return Err(refuse(format!("Unrecognized $currentDate option: {name}")));
        }
        found = Some(match value.as_str() {
            Some("date") => CurrentDate::Date,
            Some("timestamp") => CurrentDate::Timestamp,
            _ => return Err(wrong_type()),
        });
    }
    found.ok_or_else(wrong_type)
}

fn wrong_type() -> Error {
    refuse(
        "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}"
            .to_owned(),
    )
}

fn refuse(message: String) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

impl CurrentDate {
    fn now(self, site: &Site<'_, '_>) -> Value {
        match self {
            CurrentDate::Date => Value::DateTime(site.context.now_millis),
            CurrentDate::Timestamp => Value::Timestamp(site.context.timestamp),
        }
    }
}

impl Operator for CurrentDate {
    fn update<'a>(&'a self, _value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        Ok(Change::SetOwned(self.now(site)))
    }

    fn missing<'a>(&'a self, site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Create(Change::SetOwned(self.now(site))))
    }
}
