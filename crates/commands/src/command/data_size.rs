//! `dataSize`: bytes and documents of a collection.

use std::time::Instant;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::Namespace;
use kilim_error::{Error, ErrorCode, Result};

use super::coll_stats::number;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "dataSize";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let started = Instant::now();
    let full = match call.body.iter().next() {
        Some((_, RawValue::String(full))) => full,
        _ => return Err(Error::user(ErrorCode::BadValue, "dataSize takes a namespace")),
    };
    let Some((database, collection)) = full.split_once('.') else {
        return Err(Error::user(
            ErrorCode::InvalidNamespace,
            format!("Invalid namespace specified '{full}'"),
        ));
    };
    let namespace = Namespace::parse(database, collection)?;
    let mut estimate = false;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "estimate" => estimate = argument.boolean()?,
            "min" | "max" if argument.value.as_document().is_none() => {
                return Err(Error::user(
                    ErrorCode::BadValue,
                    format!("'{}' must be an object", argument.name),
                ));
            }
            "keyPattern" | "min" | "max" => return Err(argument.unsupported()),
            _ => return Err(argument.unknown()),
        }
    }
    let snapshot = call.engine.store.snapshot();
    call.engine.catalog().check_no_alias(&namespace)?;
    call.engine.check_no_view(&namespace)?;
    let counted = match call.engine.collection(&namespace) {
        Some(collection) => collection.home().counts(&snapshot)?,
        None => Default::default(),
    };
    Ok(doc! {
        // Counted exactly with every commit, whatever was asked.
        "estimate": estimate,
        "size": number(counted.bytes),
        "numObjects": number(counted.count),
        "millis": number(started.elapsed().as_millis() as i64),
    })
}
