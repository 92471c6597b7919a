//! `collMod`: hide or show an index.

use kilim_bson::{Document, RawDocument, doc};
use kilim_engine::index::KeyPart;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{arguments, nested};
use crate::dispatch::Call;

const NAME: &str = "collMod";
const INDEX: &str = "collMod.index";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    let mut index = None;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "index" => index = Some(argument.document()?),
            "validator"
            | "validationLevel"
            | "validationAction"
            | "viewOn"
            | "pipeline"
            | "expireAfterSeconds"
            | "timeseries"
            | "changeStreamPreAndPostImages"
            | "cappedSize"
            | "cappedMax" => {
                return Err(argument.unsupported());
            }
            _ => return Err(argument.unknown()),
        }
    }
    let Some(collection) = call.engine.collection(&namespace) else {
        return Err(Error::user(ErrorCode::NamespaceNotFound, "ns does not exist"));
    };
    let Some(index) = index else { return Ok(Document::new()) };
    let Change { name, key, hidden } = Change::parse(index)?;
    let found = match (name, key) {
        (Some(name), None) => collection.index_named(name),
        (None, Some(key)) => {
            let parts = KeyPart::all_of(key);
            collection.indexes.iter().find(|index| index.spec.key == parts)
        }
        _ => {
            return Err(Error::user(
                ErrorCode::InvalidOptions,
                "Must specify either index name or key pattern.",
            ));
        }
    };
    let Some(found) = found else {
        return Err(Error::user(ErrorCode::IndexNotFound, format!("cannot find index for ns {namespace}")));
    };
    if found.is_id() {
        return Err(Error::user(ErrorCode::BadValue, "can't hide _id index"));
    }
    let old = found.spec.hidden;
    if old == hidden {
        return Ok(Document::new());
    }
    call.engine.set_index_hidden(&call.operation, &namespace, found.id, hidden)?;
    Ok(doc! {"hidden_old": old, "hidden_new": hidden})
}

struct Change<'a> {
    name: Option<&'a str>,
    key: Option<RawDocument<'a>>,
    hidden: bool,
}

impl<'a> Change<'a> {
    fn parse(document: RawDocument<'a>) -> Result<Change<'a>> {
        let (mut name, mut key, mut hidden) = (None, None, None);
        for argument in nested(INDEX, document) {
            match argument.name {
                "name" => name = Some(argument.string()?),
                "keyPattern" => key = Some(argument.document()?),
                "hidden" => hidden = Some(argument.boolean()?),
                "expireAfterSeconds" | "unique" | "prepareUnique" | "forceNonUnique" => {
                    return Err(argument.unsupported());
                }
                _ => return Err(argument.unknown()),
            }
        }
        let hidden = hidden.ok_or_else(|| {
            Error::user(
                ErrorCode::InvalidOptions,
                "no expireAfterSeconds, hidden, unique, or prepareUnique field",
            )
        })?;
        Ok(Change { name, key, hidden })
    }
}
