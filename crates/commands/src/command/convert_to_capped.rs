//! `convertToCapped`: give a collection a bounded size; the newest documents that fit stay.

use kilim_bson::Document;
use kilim_engine::ddl;
use kilim_error::{Error, ErrorCode, Result};

use super::collection_options::{CollectionOptions, SIZE_MAX, round_size};
use super::time_series;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "convertToCapped";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection().map_err(|error| match error {
        // Unlike elsewhere, a name that is no text is an invalid one.
        Error::User(mut user) if user.code == ErrorCode::BadValue => {
            user.code = ErrorCode::InvalidNamespace;
            Error::User(user)
        }
        other => other,
    })?;
    call.describe("command");
    let options = capped_options(call, NAME)?;
    if let Some(view) = time_series::of_either(call, &namespace) {
        return Err(view.is_no_collection());
    }
    if call.engine.view(&namespace).is_some() {
        return Err(Error::user(
            ErrorCode::CommandNotSupportedOnView,
            format!("cannot convert a view to capped: {namespace}"),
        ));
    }
    let Some(collection) = call.engine.collection(&namespace) else {
        return Err(source_missing(&namespace.to_string()));
    };
    let options = options.over(collection.options.as_raw());
    ddl::convert_to_capped(&mut call.unit, &namespace, options)?;
    Ok(Document::new())
}

pub fn source_missing(namespace: &str) -> Error {
    Error::user(ErrorCode::NamespaceNotFound, format!("source collection {namespace} does not exist"))
}

/// The `size` that both commands ask for.
pub fn capped_options(call: &Call<'_, '_>, command: &'static str) -> Result<CollectionOptions<'static>> {
    let mut size = 0;
    for argument in arguments(command, call.body) {
        match argument.name {
            // A fraction of a byte is more than nothing to one command and nothing to the other, as on MongoDB.
            "size" => {
                let fraction =
                    command != NAME && argument.double().is_ok_and(|size| size != 0.0 && size.abs() < 1.0);
                size = if fraction { 1 } else { argument.integer().unwrap_or(0) };
            }
            "toCollection" | "temp" if command != NAME => {}
            _ => return Err(argument.unknown()),
        }
    }
    match size {
        0 => Err(Error::user(ErrorCode::BadValue, "invalid command spec")),
        ..0 => Err(Error::user(ErrorCode::BadValue, "size has to be >= 0")),
        size if size > SIZE_MAX => {
            Err(Error::user(ErrorCode::BadValue, "Capped collection size is too large"))
        }
        size => Ok(CollectionOptions {
            capped: true,
            size: Some(round_size(size)),
            ..CollectionOptions::default()
        }),
    }
}
