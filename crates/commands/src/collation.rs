//! Which collation a command runs under: its own, else that of the collection or view it is about.

use kilim_bson::{RawDocument, RawValue};
use kilim_collation::Collation;
use kilim_engine::Namespace;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::Argument;
use crate::command::find;
use crate::dispatch::Call;

/// The collation that a command or a statement names; the inner one is none where that is the simple one. An empty
/// document names nothing.
pub fn named(document: Option<RawDocument<'_>>) -> Result<Option<Option<Collation>>> {
    match document {
        Some(document) if !document.is_empty() => Collation::parse(document).map(Some),
        _ => Ok(None),
    }
}

/// A command's `collation`, as a document.
pub fn argument<'a>(command: &'static str, body: RawDocument<'a>) -> Result<Option<RawDocument<'a>>> {
    match body.get("collation") {
        None => Ok(None),
        // Alone among commands, find takes null for a value here, and words the error like this.
        Some(value) if command == find::NAME => value.as_document().map(Some).ok_or_else(|| {
            Error::user(ErrorCode::TypeMismatch, "Expected field collationto be of type object")
        }),
        Some(RawValue::Null | RawValue::Undefined) => Ok(None),
        Some(value) => Argument { command, name: "collation", value }.document().map(Some),
    }
}

/// The collation of what a command says of a collection or view, by what it names itself.
pub fn resolved(
    call: &mut Call<'_, '_>,
    namespace: &Namespace,
    named: Option<Option<Collation>>,
) -> Result<Option<Collation>> {
    if let Some(collection) = call.unit.collection(namespace)? {
        return Ok(named.unwrap_or_else(|| collection.collation.clone()));
    }
    match call.engine.view(namespace) {
        Some(view) if named.as_ref().is_some_and(|named| *named != view.collation) => Err(Error::user(
            ErrorCode::OptionNotSupportedOnView,
            "Cannot override a view's default collation",
        )),
        Some(view) => Ok(view.collation.clone()),
        None => Ok(named.flatten()),
    }
}

/// The collation of a command, whose first field names what it is about.
pub fn of_command(
    call: &mut Call<'_, '_>,
    command: &'static str,
    body: RawDocument<'_>,
) -> Result<Option<Collation>> {
    let named = named(argument(command, body)?)?;
    let about = body.iter().next().and_then(|(_, value)| value.as_str());
    match about.map(|collection| Namespace::parse(call.generic.database, collection)) {
        Some(Ok(namespace)) => resolved(call, &namespace, named),
        // A database, or no name at all, which the command itself tells.
        _ => Ok(named.flatten()),
    }
}
