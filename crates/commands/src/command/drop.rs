//! `drop`: drop a collection.

use kilim_bson::{Document, doc};
use kilim_engine::Namespace;
use kilim_engine::catalog::SYSTEM_VIEWS;
use kilim_engine::profile::ProfileLevel;
use kilim_error::{Error, ErrorCode, Result};

use super::time_series;
use crate::argument::arguments;
use crate::dispatch::Call;

/// What the command names, if it is there although its name is refused: an earlier version accepted it.
fn left_behind(call: &Call<'_, '_>) -> Option<Namespace> {
    let (_, name) = call.body.iter().next()?;
    let (database, collection) = (call.generic.database.to_owned(), name.as_str()?.to_owned());
    let namespace = Namespace { database, collection };
    let is_there = call.engine.collection(&namespace).is_some() || call.engine.view(&namespace).is_some();
    is_there.then_some(namespace)
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection().or_else(|error| left_behind(call).ok_or(error))?;
    call.expect("drop", &namespace)?;
    call.describe("command");
    for argument in arguments("drop", call.body) {
        match argument.name {
            "collectionUUID" => drop(argument.uuid()?),
            _ => return Err(argument.unknown()),
        }
    }
    let found = call.engine.collection(&namespace);
    call.engine.check_expected(&call.operation, &namespace, found.as_deref())?;
    if namespace.collection == Namespace::PROFILE
        && call.engine.profiler.level(&namespace.database) != ProfileLevel::Off
    {
        return Err(Error::user(
            ErrorCode::IllegalOperation,
            "turn off profiling before dropping system.profile collection",
        ));
    }
    // A time-series collection goes with its buckets, by either name.
    if let Some(view) = time_series::of_either(call, &namespace) {
        let dropped = call.engine.drop_collection(&call.operation, &view.on)?;
        call.engine.top.forget(&namespace.database, &namespace.collection);
        let indexes = dropped.indexes.len() + dropped.building.len() - 1;
        return Ok(doc! {"nIndexesWas": indexes as i32, "ns": view.namespace.to_string()});
    }
    if namespace.collection == SYSTEM_VIEWS {
        call.engine.drop_views(&namespace.database)?;
        return Ok(doc! {"nIndexesWas": 1, "ns": namespace.to_string()});
    }
    if call.engine.drop_view(&namespace)? {
        return Ok(doc! {"ns": namespace.to_string()});
    }
    let dropped = call.engine.drop_collection(&call.operation, &namespace)?;
    call.engine.top.forget(&namespace.database, &namespace.collection);
    // The order of a clustered collection is no index of it.
    let indexes = dropped.indexes.len() + dropped.building.len() - usize::from(dropped.clustered);
    Ok(doc! {"nIndexesWas": indexes as i32, "ns": namespace.to_string()})
}
