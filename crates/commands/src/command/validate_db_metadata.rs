//! `validateDBMetadata`: what of indexes and views a version of the stable API would refuse.

use kilim_bson::{Document, RawDocument, Value, doc};
use kilim_engine::Namespace;
use kilim_error::{Error, ErrorCode, Result};

use super::write_reply::required;
use crate::argument::{arguments, nested};
use crate::dispatch::Call;
use crate::stable;

const NAME: &str = "validateDBMetadata";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let (mut database, mut collection, mut parameters) = (None, None, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "db" if argument.string()?.is_empty() => {
                return Err(Error::location(28539, "'db' cannot be empty"));
            }
            "db" => database = Some(argument.string()?),
            "collection" if argument.string()?.is_empty() => {
                return Err(Error::user(ErrorCode::InvalidNamespace, "'collection' cannot be empty"));
            }
            "collection" => collection = Some(argument.string()?),
            "apiParameters" => parameters = Some(argument.document()?),
            _ => return Err(argument.unknown()),
        }
    }
    let strict = parse_parameters(required(parameters, NAME, "apiParameters")?)?;
    let concerns = |namespace: &Namespace| {
        database.is_none_or(|database| namespace.database == database)
            && collection.is_none_or(|collection| namespace.collection == collection)
    };
    let mut faults = Vec::new();
    let catalog = call.engine.catalog();
    for collection in catalog.iter().filter(|collection| strict && concerns(&collection.namespace)) {
        for index in collection.indexes.iter() {
            if let Some(error) = stable::check_index(index.spec.to_document().as_raw()).err() {
                faults.push(fault(&collection.namespace, &error));
            }
        }
    }
    for view in catalog.views().filter(|view| strict && concerns(&view.namespace)) {
        if let Some(error) = stable::check_pipeline(view.pipeline.as_raw()).err() {
            faults.push(fault(&view.namespace, &error));
        }
    }
    Ok(doc! {"apiVersionErrors": faults})
}

/// Whether the parameters are strict.
fn parse_parameters(parameters: RawDocument<'_>) -> Result<bool> {
    const PARAMETERS: &str = "validateDBMetadata.apiParameters";
    let (mut version, mut strict) = (None, false);
    for argument in nested(PARAMETERS, parameters) {
        match argument.name {
            "version" => version = Some(argument.string()?),
            "strict" => strict = argument.strict_boolean()?,
            "deprecationErrors" => drop(argument.strict_boolean()?),
            _ => return Err(argument.unknown()),
        }
    }
    required(version, PARAMETERS, "version")?;
    Ok(strict)
}

fn fault(namespace: &Namespace, error: &Error) -> Value {
    Value::Document(doc! {
        "ns": namespace.to_string(),
        "code": error.code().0,
        "codeName": error.code().name().into_owned(),
        "errmsg": error.to_string(),
    })
}
