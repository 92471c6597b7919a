//! `buildInfo`: which version this is.

use kilim_bson::{Document, Value, array, doc};
use kilim_engine::{Engine, limits};
use kilim_error::Result;

use crate::dispatch::Call;

/// The MongoDB version whose protocol and language Kilim speaks.
pub const MONGODB_VERSION: &str = "7.0.0";

pub fn run(_: &mut Call<'_, '_>) -> Result<Document> {
    Ok(doc! {
        "version": MONGODB_VERSION,
        "gitVersion": "unknown",
        "modules": [],
        "allocator": "mimalloc",
        "javascriptEngine": "none",
        "sysInfo": "deprecated",
        "versionArray": array![7, 0, 0, 0],
        "openssl": {"running": "disabled", "compiled": "disabled"},
        "bits": 64,
        "debug": cfg!(debug_assertions),
        "maxBsonObjectSize": limits::DOCUMENT_BYTES_MAX as i32,
        "storageEngines": array!["kilim", "memory"],
        "kilim": {"version": env!("CARGO_PKG_VERSION")},
    })
}

/// What explain says of the server.
pub fn server_info(engine: &Engine) -> Document {
    let port = engine.metrics.server.get().map_or(0, |server| i32::from(server.port));
    doc! {"host": host_name(), "port": port, "version": MONGODB_VERSION, "gitVersion": "unknown"}
}

/// This machine and the port that is listened to, by which monitoring tells servers apart.
pub fn host(engine: &Engine) -> String {
    match engine.metrics.server.get() {
        Some(server) => format!("{}:{}", host_name(), server.port),
        None => host_name(),
    }
}

pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// A list of texts as a value.
pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    Value::from(texts.into_iter().map(Value::from).collect::<Vec<_>>())
}
