//! `collMod`: hide or show an index, change when documents expire.

use kilim_bson::{Document, RawDocument};
use kilim_engine::index::{IndexSpec, KeyPart};
use kilim_engine::write::shell_text;
use kilim_error::{Error, ErrorCode, Result};

use super::expiry;
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
    let change = Change::parse(index)?;
    let (found, what) = match (change.name, change.key) {
        (Some(name), None) => (collection.index_named(name), name.to_owned()),
        (None, Some(key)) => {
            let parts = KeyPart::all_of(key);
            (collection.indexes.iter().find(|index| index.spec.key == parts), shell_text(key))
        }
        _ => return Err(invalid("Must specify either index name or key pattern.")),
    };
    let Some(found) = found else {
        let message = format!("cannot find index {what} for ns {namespace}");
        return Err(Error::user(ErrorCode::IndexNotFound, message));
    };
    let reply = change.reply(&found.spec)?;
    if !reply.is_empty() {
        call.engine.change_index(&call.operation, &namespace, found.id, |spec| {
            spec.hidden = change.hidden.unwrap_or(spec.hidden);
            spec.expire_after_seconds = change.expire_after_seconds.or(spec.expire_after_seconds);
        })?;
    }
    Ok(reply)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::InvalidOptions, message)
}

struct Change<'a> {
    name: Option<&'a str>,
    key: Option<RawDocument<'a>>,
    hidden: Option<bool>,
    expire_after_seconds: Option<i32>,
}

impl<'a> Change<'a> {
    fn parse(document: RawDocument<'a>) -> Result<Change<'a>> {
        let mut change = Change { name: None, key: None, hidden: None, expire_after_seconds: None };
        for argument in nested(INDEX, document) {
            match argument.name {
                "name" => change.name = Some(argument.string()?),
                "keyPattern" => change.key = Some(argument.document()?),
                "hidden" => change.hidden = Some(argument.boolean()?),
                "expireAfterSeconds" => {
                    argument.double()?;
                    change.expire_after_seconds = Some(expiry::seconds(argument.value).map_err(invalid)?);
                }
                "unique" | "prepareUnique" | "forceNonUnique" => return Err(argument.unsupported()),
                _ => return Err(argument.unknown()),
            }
        }
        if change.hidden.is_none() && change.expire_after_seconds.is_none() {
            return Err(invalid("no expireAfterSeconds, hidden, unique, or prepareUnique field"));
        }
        Ok(change)
    }

    /// What it changes of an index, before and after; empty where nothing.
    fn reply(&self, spec: &IndexSpec) -> Result<Document> {
        let is_id = spec.name == "_id_";
        let mut reply = Document::new();
        if let Some(seconds) = self.expire_after_seconds {
            if is_id {
                return Err(invalid("the _id field does not support TTL indexes"));
            }
            if spec.key.len() > 1 {
                return Err(invalid(expiry::COMPOUND));
            }
            if let Some(old) = spec.expire_after_seconds {
                reply.push("expireAfterSeconds_old", i64::from(old));
            }
            reply.push("expireAfterSeconds_new", i64::from(seconds));
        }
        if let Some(hidden) = self.hidden {
            if is_id {
                return Err(Error::user(ErrorCode::BadValue, "can't hide _id index"));
            }
            if hidden != spec.hidden {
                reply.push("hidden_old", spec.hidden);
                reply.push("hidden_new", hidden);
            }
        }
        Ok(reply)
    }
}
