//! `create`: make a collection.

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result};

use super::write_reply::check_collation;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "create";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command", &namespace);
    let options = parse(call.body)?;
    if call.unit.is_transaction() {
        if call.unit.collection(&namespace)?.is_some() {
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("Collection {namespace} already exists."),
            ));
        }
        call.unit.create(&namespace, options)?;
    } else {
        call.engine.create_collection(&namespace, options)?;
    }
    Ok(Document::new())
}

fn parse(body: RawDocument<'_>) -> Result<Document> {
    for argument in arguments(NAME, body) {
        match argument.name {
            "capped" => argument.only_off()?,
            "collation" => check_collation(&argument)?,
            // Every collection has its `_id` index; asking for it changes nothing.
            "idIndex" => drop(argument.document()?),
            "autoIndexId" if argument.boolean()? => {}
            "validator" | "storageEngine" | "indexOptionDefaults" if argument.document()?.is_empty() => {}
            "flags" | "temp" => {}
            "size" | "max" | "viewOn" | "pipeline" | "validator" | "validationLevel" | "validationAction"
            | "timeseries" | "expireAfterSeconds" | "clusteredIndex" | "storageEngine" | "autoIndexId"
            | "indexOptionDefaults" | "changeStreamPreAndPostImages" | "encryptedFields" => {
                return Err(argument.unsupported());
            }
            _ => return Err(argument.unknown()),
        }
    }
    Ok(Document::new())
}
