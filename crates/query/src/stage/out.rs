//! `$out`: all documents into a collection, in place of what is there.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Context, Stage};
use crate::names;

#[derive(Debug, Clone)]
pub struct Out {
    pub database: Box<str>,
    pub collection: Box<str>,
    /// What the target is as a time-series collection, in the words of `create`.
    pub time_series: Option<Arc<Document>>,
}

/// Where documents go, as it is written.
struct Target<'a> {
    database: &'a str,
    collection: &'a str,
    time_series: Option<RawDocument<'a>>,
}

pub(super) fn glance(_: &str, value: RawValue<'_>, database: &str) -> Result<()> {
    let target = parse_target(value, database)?;
    check_names(target.database, target.collection)
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let Target { database, collection, time_series } = parse_target(value, context.database)?;
    check_target(database, collection)?;
    out.push(Stage::Out(Out {
        database: database.into(),
        collection: collection.into(),
        time_series: time_series.map(|options| Arc::new(options.to_document())),
    }));
    Ok(())
}

fn parse_target<'a>(value: RawValue<'a>, database: &'a str) -> Result<Target<'a>> {
    match value {
        RawValue::String(collection) => Ok(Target { database, collection, time_series: None }),
        RawValue::Document(namespace) => parse_namespace(namespace),
        _ => {
            let found = value.element_type().name();
            let message = format!("$out only supports a string or object argument, but found {found}");
            Err(Error::location(16990, message))
        }
    }
}

fn parse_namespace(namespace: RawDocument<'_>) -> Result<Target<'_>> {
    let time_series = namespace.get("timeseries");
    let fields = namespace.iter().count() - usize::from(time_series.is_some());
    let (Some(database), Some(collection), 2) = (namespace.get("db"), namespace.get("coll"), fields) else {
        return Err(Error::location(
            16994,
            "If an object is passed to $out it must have exactly 2 fields: 'db' and 'coll'",
        ));
    };
    let text = |name: &str, value: RawValue<'_>| {
        let kind = value.element_type().name();
        Error::location(13111, format!("wrong type for field ({name}) {kind} != string"))
    };
    let time_series = match time_series {
        None => None,
        Some(RawValue::Document(options)) => Some(options),
        Some(other) => {
            let kind = other.element_type().name();
            return Err(Error::user(
                ErrorCode::TypeMismatch,
                format!("BSON field '$out.timeseries' is the wrong type '{kind}', expected type 'object'"),
            ));
        }
    };
    Ok(Target {
        database: database.as_str().ok_or_else(|| text("db", database))?,
        collection: collection.as_str().ok_or_else(|| text("coll", collection))?,
        time_series,
    })
}

fn check_target(database: &str, collection: &str) -> Result<()> {
    check_names(database, collection)?;
    if collection.starts_with("system.") {
        return Err(Error::location(17385, format!("Can't $out to special collection: {collection}")));
    }
    if matches!(database, "admin" | "config" | "local") {
        return Err(Error::location(31321, format!("Can't $out to internal database: {database}")));
    }
    Ok(())
}

fn check_names(database: &str, collection: &str) -> Result<()> {
    names::check_parts(database, collection)?;
    if !names::is_database(database) || collection.is_empty() {
        return Err(Error::user(
            ErrorCode::InvalidNamespace,
            format!("Invalid $out target namespace, {database}.{collection}"),
        ));
    }
    Ok(())
}

impl Behaviour for Out {
    fn to_document(&self) -> Document {
        let mut writer = Writer::new();
        writer.open_document("$out");
        writer.append("db", RawValue::String(&self.database));
        writer.append("coll", RawValue::String(&self.collection));
        if let Some(options) = &self.time_series {
            writer.append("timeseries", RawValue::Document(options.as_raw()));
        }
        writer.close();
        writer.finish()
    }
}
