//! `dbStats`: sizes and counts of a database.

use kilim_bson::{Document, doc};
use kilim_engine::check_database;
use kilim_error::Result;

use super::coll_stats::{number, parse_scale};
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let database = call.generic.database;
    check_database(database)?;
    let scale = parse_scale(call, "dbStats")?;
    let (snapshot, catalog) = call.engine.reading();
    let (mut collections, mut objects, mut bytes, mut indexes, mut index_bytes) = (0i64, 0, 0, 0i64, 0i64);
    for collection in catalog.database(database) {
        let counted = collection.home().counts(&snapshot)?;
        collections += 1;
        objects += counted.count;
        bytes += counted.bytes;
        indexes += collection.indexes.len() as i64;
        for index in collection.indexes.iter() {
            index_bytes += call.engine.index_bytes(collection, index)? as i64;
        }
    }
    let scaled = |bytes: i64| bytes as f64 / scale as f64;
    Ok(doc! {
        "db": database,
        "collections": number(collections),
        "views": 0,
        "objects": number(objects),
        "avgObjSize": if objects > 0 { bytes as f64 / objects as f64 } else { 0.0 },
        "dataSize": scaled(bytes),
        "storageSize": scaled(bytes),
        "indexes": number(indexes),
        "indexSize": scaled(index_bytes),
        "totalSize": scaled(bytes + index_bytes),
        "scaleFactor": scale as f64,
        "fsUsedSize": scaled(call.engine.store.disk_bytes() as i64),
    })
}
