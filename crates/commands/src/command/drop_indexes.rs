//! `dropIndexes`: drop indexes by name, by key, several, or all.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::catalog::Collection;
use kilim_engine::index::{Index, IndexSpec};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::text::document as shell_text;

use super::time_series;
use super::write_reply::required;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "dropIndexes";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.expect(NAME, &namespace)?;
    call.describe("command");
    let mut which = None;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "index" => which = Some(argument.value),
            "collectionUUID" => drop(argument.uuid()?),
            _ => return Err(argument.unknown()),
        }
    }
    let which = required(which.or(call.body.get("index")), NAME, "index")?;
    let view = time_series::of(call, &namespace);
    let (namespace, key) = match &view {
        Some(view) => {
            let key = view.time_series.as_deref().zip(which.as_document());
            let key = key.map(|(series, key)| time_series::key_of_buckets(series, key)).transpose()?;
            (view.on.clone(), key)
        }
        None => (namespace, None),
    };
    let which = key.as_ref().map_or(which, |key| RawValue::Document(key.as_raw()));
    call.engine.check_no_view(&namespace)?;
    let not_found = || Error::user(ErrorCode::NamespaceNotFound, format!("ns not found {namespace}"));
    let found = call.engine.collection(&namespace);
    call.engine.check_expected(&call.operation, &namespace, found.as_deref())?;
    let mut collection = found.ok_or_else(not_found)?;
    // The order of a clustered collection is no index of it.
    let before = collection.indexes.len() + collection.building.len() - usize::from(collection.clustered);
    let unfinished = select_unfinished(&collection, which);
    if !unfinished.is_empty() {
        call.engine.abort_builds(&call.operation, &namespace, &unfinished)?;
        // What was through before it could be ended is dropped as any other.
        collection = call.engine.collection(&namespace).ok_or_else(not_found)?;
    }
    let dropped = select(&collection, which, &unfinished)?;
    let ids: Vec<_> = dropped.iter().map(|index| index.id).collect();
    call.engine.check_indexes_free(&collection, &ids)?;
    if !ids.is_empty() {
        call.engine.drop_indexes(&call.operation, &namespace, &ids)?;
    }
    let mut reply = doc! {"nIndexesWas": before as i32};
    let is_all = |name: RawValue<'_>| matches!(name, RawValue::String("*"));
    if is_all(which) || which.as_array().is_some_and(|names| names.iter().any(is_all)) {
        reply.push("msg", "non-_id indexes dropped for collection");
    }
    Ok(reply)
}

/// The names of indexes that are being built and are meant.
fn select_unfinished(collection: &Collection, which: RawValue<'_>) -> Vec<String> {
    let meant = |spec: &IndexSpec| match which {
        RawValue::String(name) => name == "*" || name == spec.name,
        RawValue::Array(names) => names.iter().any(|name| {
            matches!(name, RawValue::String("*"))
                || matches!(name, RawValue::String(name) if name == spec.name)
        }),
        RawValue::Document(key) => spec.has_key(key),
        _ => false,
    };
    let building = collection.building.iter().map(|building| &building.index.spec);
    building.filter(|spec| meant(spec)).map(|spec| spec.name.clone()).collect()
}

/// The indexes that are meant. Those whose builds were ended need not be there.
fn select(collection: &Collection, which: RawValue<'_>, ended: &[String]) -> Result<Vec<Arc<Index>>> {
    match which {
        RawValue::String("*") => Ok(collection.indexes.iter().skip(1).cloned().collect()),
        RawValue::String(name) => Ok(by_name(collection, name, ended)?.into_iter().collect()),
        RawValue::Array(names) if names.iter().any(|name| matches!(name, RawValue::String("*"))) => {
            select(collection, RawValue::String("*"), ended)
        }
        RawValue::Array(names) => (names.iter())
            .filter_map(|name| match name {
                RawValue::String(name) => by_name(collection, name, ended).transpose(),
                other => Some(Err(Error::user(
                    ErrorCode::TypeMismatch,
                    format!(
                        "dropIndexes: index names must be strings, found {}",
                        other.element_type().name()
                    ),
                ))),
            })
            .collect(),
        RawValue::Document(key) => {
            let found: Vec<&Arc<Index>> =
                collection.indexes.iter().filter(|index| index.spec.has_key(key)).collect();
            if found.len() > 1 {
                let tell = |index: &&Arc<Index>| shell_text(index.spec.to_document().as_raw());
                let shown: Vec<String> = found.iter().map(tell).collect();
                return Err(Error::user(
                    ErrorCode::AmbiguousIndexKeyPattern,
                    format!(
                        "{} indexes found for key: {}, identify by name instead. Conflicting indexes: {}",
                        found.len(),
                        shell_text(key),
                        shown.join(", ")
                    ),
                ));
            }
            match found.first().copied() {
                Some(index) if index.is_id() => Err(no_id(collection)),
                Some(index) => Ok(vec![index.clone()]),
                None if !ended.is_empty() => Ok(Vec::new()),
                None => Err(Error::user(
                    ErrorCode::IndexNotFound,
                    format!("can't find index with key: {}", shell_text(key)),
                )),
            }
        }
        other => Err(Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field 'dropIndexes.index' is the wrong type '{}', expected types '[string, object, array]'",
                other.element_type().name()
            ),
        )),
    }
}

fn by_name(collection: &Collection, name: &str, ended: &[String]) -> Result<Option<Arc<Index>>> {
    match collection.index_named(name) {
        Some(index) if index.is_id() => Err(no_id(collection)),
        Some(index) => Ok(Some(index.clone())),
        None if ended.iter().any(|other| other == name) => Ok(None),
        None => Err(Error::user(ErrorCode::IndexNotFound, format!("index not found with name [{name}]"))),
    }
}

fn no_id(collection: &Collection) -> Error {
    if collection.clustered {
        return Error::location(5_979_800, "It is illegal to drop the clusteredIndex");
    }
    Error::user(ErrorCode::InvalidOptions, "cannot drop _id index")
}
