//! `dbHash`: digests of a database's collections, equal exactly where their documents are.

use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::catalog::Collection;
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::{Hint, ReadRequest};
use kilim_engine::read;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::digest::Md5;
use kilim_query::filter::Filter;

use super::build_info::host;
use super::coll_stats::number;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "dbHash";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let started = Instant::now();
    call.describe("command");
    let database = call.generic.database;
    let mut wanted: Option<Vec<&str>> = None;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "collections" => wanted = Some(names(&argument)?),
            _ => return Err(argument.unknown()),
        }
    }
    let catalog = call.engine.catalog();
    let (mut digests, mut capped, mut uuids) = (Document::new(), Vec::new(), Document::new());
    let mut all = Md5::new();
    for collection in catalog.database(database) {
        let name = collection.namespace.collection.as_str();
        let skipped = name.starts_with("system.") && name != "system.js";
        if skipped || wanted.as_ref().is_some_and(|wanted| !wanted.is_empty() && !wanted.contains(&name)) {
            continue;
        }
        let digest = digest(call, collection)?;
        all.update(digest.as_bytes());
        digests.push(name, digest);
        uuids.push(name, Value::Binary { subtype: 4, bytes: collection.uuid.to_vec() });
        if collection.capped.is_some() {
            capped.push(Value::from(name));
        }
    }
    Ok(doc! {
        "host": host(call.engine),
        "collections": digests,
        "capped": capped,
        "uuids": uuids,
        "md5": hex(all),
        "timeMillis": number(started.elapsed().as_millis() as i64),
    })
}

fn names<'a>(argument: &Argument<'a>) -> Result<Vec<&'a str>> {
    // What is no list is none, as on mongod.
    let Some(list) = argument.value.as_array() else { return Ok(Vec::new()) };
    let text = |value: RawValue<'a>| {
        let refuse = || Error::user(ErrorCode::BadValue, "collections entries have to be strings");
        value.as_str().ok_or_else(refuse)
    };
    list.iter().map(text).collect()
}

/// The digest of all documents, in the order of `_id`.
fn digest(call: &mut Call<'_, '_>, collection: &Collection) -> Result<String> {
    let mut request = ReadRequest::new(Arc::new(Filter::True));
    let by_id = doc! {"_id": 1};
    request.hint = Hint::parse(RawValue::Document(by_id.as_raw()))?;
    let mut executor = read::plan(&mut call.unit, &collection.namespace, request)?.execute();
    let operation = call.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut hash = Md5::new();
    while let Some(row) = executor.next_document(&mut context)? {
        hash.update(row.document().as_bytes());
    }
    Ok(hex(hash))
}

fn hex(hash: Md5) -> String {
    hash.finish().iter().map(|byte| format!("{byte:02x}")).collect()
}
