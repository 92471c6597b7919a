//! `collStats`: sizes and counts of a collection.

use kilim_bson::{Document, Value, doc};
use kilim_engine::catalog::View;
use kilim_engine::{Engine, Namespace};
use kilim_error::{Error, Result};

use super::time_series;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "collStats";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    let scale = parse_scale(call, NAME)?;
    if let Some(view) = time_series::of(call, &namespace) {
        return stats_of_measurements(call.engine, &view, scale);
    }
    call.engine.check_no_view(&namespace)?;
    stats(call.engine, &namespace, scale)
}

/// The figures of a time-series collection: those of its buckets. How many measurements there are is not known without a
/// look at all of them.
pub fn stats_of_measurements(engine: &Engine, view: &View, scale: i64) -> Result<Document> {
    let snapshot = engine.store.snapshot();
    let counted = match engine.collection(&view.on) {
        Some(collection) => collection.home().counts(&snapshot)?,
        None => Default::default(),
    };
    let mut reply = Document::new();
    for (name, value) in stats(engine, &view.on, scale)?.iter() {
        match name {
            "ns" => reply.push(name, view.namespace.to_string()),
            "count" => reply.push("timeseries", time_series::stats(view, counted.count, counted.bytes)),
            "avgObjSize" => {}
            _ => reply.push(name, value),
        }
    }
    Ok(reply)
}

/// The figures, for this command and the stage `$collStats`.
pub fn stats(engine: &Engine, namespace: &Namespace, scale: i64) -> Result<Document> {
    let snapshot = engine.store.snapshot();
    let Some(collection) = engine.collection(namespace) else {
        return Ok(doc! {
            "ns": namespace.to_string(), "size": 0, "count": 0, "numOrphanDocs": 0, "storageSize": 0,
            "totalSize": 0, "nindexes": 0, "totalIndexSize": 0, "indexDetails": {}, "indexSizes": {},
            "scaleFactor": number(scale),
        });
    };
    let counted = collection.home().counts(&snapshot)?;
    let mut reply = doc! {
        "ns": namespace.to_string(),
        "size": number(counted.bytes / scale),
        "count": number(counted.count),
        "numOrphanDocs": 0,
    };
    if counted.count > 0 {
        reply.push("avgObjSize", number(counted.bytes / counted.count));
    }
    reply.push("storageSize", number(counted.bytes / scale));
    reply.push("freeStorageSize", 0);
    reply.push("capped", collection.capped.is_some());
    if let Some(capped) = collection.capped {
        reply.push("max", number(capped.documents_max.unwrap_or(0)));
        reply.push("maxSize", number(capped.bytes_max / scale));
    }
    // The order of a clustered collection is no index of it.
    let indexes = &collection.indexes[usize::from(collection.clustered)..];
    reply.push("nindexes", indexes.len() as i32);
    reply.push("indexDetails", Document::new());
    let building = collection.building.iter().map(|building| building.index.spec.name.as_str().into());
    reply.push("indexBuilds", building.collect::<Vec<Value>>());
    let mut sizes = Document::new();
    let mut total = 0;
    for index in indexes {
        let size = engine.index_bytes(&collection, index)? as i64;
        total += size;
        sizes.push(&index.spec.name, number(size / scale));
    }
    reply.push("totalIndexSize", number(total / scale));
    reply.push("totalSize", number((counted.bytes + total) / scale));
    reply.push("indexSizes", sizes);
    reply.push("scaleFactor", number(scale));
    Ok(reply)
}

/// As MongoDB writes counts and sizes: an int where it fits, a long else.
pub fn number(value: i64) -> Value {
    i32::try_from(value).map_or(Value::Int64(value), Value::Int32)
}

/// What sizes are divided by.
pub fn parse_scale(call: &Call<'_, '_>, command: &'static str) -> Result<i64> {
    let mut scale = 1;
    for argument in arguments(command, call.body) {
        match argument.name {
            "scale" => scale = argument.integer()?,
            "freeStorage" | "waitForLock" | "queryExecStats" | "verbose" => {}
            _ => return Err(argument.unknown()),
        }
    }
    if scale < 1 {
        return Err(Error::location(
            51024,
            format!("BSON field 'scale' value must be >= 1, actual value '{scale}'"),
        ));
    }
    Ok(scale)
}
