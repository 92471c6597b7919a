//! `filemd5`: the digest of a file that drivers keep as chunks (GridFS).

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::{Hint, ReadRequest};
use kilim_engine::{Namespace, read};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::digest::Md5;
use kilim_query::filter::Filter;
use kilim_query::sort::Sort;

use crate::argument::as_double;
use crate::dispatch::Call;

const NAME: &str = "filemd5";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let root = match call.body.get("root") {
        None | Some(RawValue::String("")) => "fs",
        Some(RawValue::String(root)) => root,
        Some(_) => return Err(Error::user(ErrorCode::InvalidNamespace, "'root' must be of type String")),
    };
    if let Some(RawValue::Bool(true)) = call.body.get("partialOk") {
        let message = "filemd5: option 'partialOk' is not supported by Kilim";
        return Err(Error::user(ErrorCode::NotImplemented, message));
    }
    let namespace = Namespace::parse(call.generic.database, &format!("{root}.chunks"))?;
    let mut digest = Md5::new();
    let mut chunks = 0;
    if let Some(collection) = call.engine.collection(&namespace) {
        let key = doc! {"files_id": 1, "n": 1};
        if !collection.indexes.iter().any(|index| index.spec.has_key(key.as_raw())) {
            let message = "filemd5: the collection of chunks has no index on files_id and n";
            return Err(Error::user(ErrorCode::NoQueryExecutionPlans, message));
        }
        let mut filter = Document::new();
        let file = call.body.get(NAME).unwrap_or(RawValue::Null);
        filter.push("files_id", doc! {"$eq": file.to_value()});
        filter.push("n", doc! {"$gte": 0});
        let request = ReadRequest {
            hint: Some(Hint::Key(key.clone())),
            sort: Some(Sort::parse(key.as_raw())?),
            ..ReadRequest::new(Arc::new(Filter::parse(filter.as_raw())?))
        };
        let mut executor = read::plan(&mut call.unit, &namespace, request)?.execute();
        let interrupt = || call.operation.check();
        let mut context = ExecContext::new(&interrupt);
        while let Some(row) = executor.next_document(&mut context)? {
            digest.update(chunk(row.document(), chunks)?);
            chunks += 1;
        }
    }
    let hex: String = digest.finish().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(doc! {"numChunks": chunks, "md5": hex})
}

/// The bytes of a chunk, which must be the next one.
fn chunk(document: RawDocument<'_>, expected: i32) -> Result<&[u8]> {
    let number = document.get("n").and_then(as_double);
    if number != Some(f64::from(expected)) {
        return Err(Error::location(10040, "chunks out of order"));
    }
    match document.get("data") {
        Some(RawValue::Binary { bytes, .. }) => Ok(bytes),
        other => {
            let found = other.map_or("missing", |value| value.element_type().name());
            Err(Error::location(50849, format!("the data of a chunk must be BinData, but {found} was found")))
        }
    }
}
