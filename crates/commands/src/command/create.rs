//! `create`: make a collection.

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_engine::index::KeyPart;
use kilim_error::{Error, ErrorCode, Result};

use super::write_reply::check_collation;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "create";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
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
    let invalid = |message: &str| Err(Error::user(ErrorCode::InvalidOptions, message));
    let (mut capped, mut size, mut refused) = (false, false, None);
    for argument in arguments(NAME, body) {
        let mut unless = |harmless: bool| refused = refused.take().or((!harmless).then_some(argument));
        match argument.name {
            "capped" => capped = argument.boolean()?,
            "size" | "max" => {
                argument.integer()?;
                size |= argument.name == "size";
                unless(false);
            }
            "collation" => check_collation(&argument)?,
            "idIndex" => check_id_index(argument.document()?)?,
            "autoIndexId" if argument.boolean()? => {}
            "autoIndexId" => {
                return Err(Error::location(
                    50001,
                    "The autoIndexId option is not allowed: every collection has one",
                ));
            }
            "validator" | "storageEngine" | "indexOptionDefaults" => unless(argument.document()?.is_empty()),
            "timeseries" | "changeStreamPreAndPostImages" | "encryptedFields" => {
                argument.document()?;
                unless(false);
            }
            "pipeline" => unless(argument.array()?.is_empty()),
            "viewOn" | "validationLevel" | "validationAction" => {
                argument.string()?;
                unless(false);
            }
            "expireAfterSeconds" | "clusteredIndex" => unless(false),
            // What it once chose has no counterpart here; it never changed what a client sees.
            "flags" => drop(argument.integer()?),
            "temp" => return invalid("the 'temp' field is an invalid option"),
            _ => return Err(argument.unknown()),
        }
    }
    match (capped, size, refused) {
        (true, false, _) => invalid("the 'size' field is required when 'capped' is true"),
        (false, _, Some(Argument { name: "size" | "max", .. })) => {
            invalid("the 'capped' field needs to be true when either the 'size' or 'max' fields are present")
        }
        (true, ..) => Err(Error::user(
            ErrorCode::NotImplemented,
            "create: capped collections are not supported by Kilim",
        )),
        (_, _, Some(argument)) => Err(argument.unsupported()),
        (_, _, None) => Ok(Document::new()),
    }
}

/// Every collection has its `_id` index; asking for just that changes nothing.
fn check_id_index(spec: RawDocument<'_>) -> Result<()> {
    let refuse = |code, message: &str| Err(Error::user(code, message));
    let (Some(RawValue::Document(key)), Some(RawValue::String(_))) = (spec.get("key"), spec.get("name"))
    else {
        return refuse(ErrorCode::FailedToParse, "an index specification has a 'key' and a 'name'");
    };
    match KeyPart::all_of(key).as_slice() {
        [KeyPart { path, descending: false }] if path.as_str() == "_id" => Ok(()),
        _ => refuse(ErrorCode::BadValue, "The field 'key' for an _id index must be {_id: 1}"),
    }
}
