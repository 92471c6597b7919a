//! `renameCollection`: rename a collection, also into another database.

use kilim_bson::{Document, RawValue};
use kilim_engine::Namespace;
use kilim_engine::operation::Expected;
use kilim_error::{Error, ErrorCode, Result};

use super::write_reply::required;
use crate::argument::{Argument, arguments, check_not_null};
use crate::dispatch::Call;

const NAME: &str = "renameCollection";
/// The database that each member of a set has for itself.
const LOCAL: &str = "local";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let from = match value {
        RawValue::String(_) => namespace("source", &Argument { command: NAME, name: NAME, value })?,
        other => {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!("collection name has invalid type {}", other.element_type().name()),
            ));
        }
    };
    check_not_null(NAME, call.body, &["dropTarget"], "types '[bool, binData']")?;
    let (mut to, mut drop_target, mut uuid, mut target_uuid) = (None, false, None, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "to" => {
                to = Some(namespace("target", &argument)?);
            }
            "dropTarget" => match argument.value {
                // The target that is meant, by its id.
                RawValue::Binary { subtype: 4, .. } => {
                    drop_target = true;
                    target_uuid = Some(argument.uuid()?);
                }
                RawValue::Binary { .. } => {
                    return Err(Error::user(ErrorCode::InvalidUUID, "dropTarget has to be a UUID"));
                }
                RawValue::Bool(wanted) => drop_target = wanted,
                _ => return Err(argument.wrong_type("types '[bool, binData']")),
            },
            "collectionUUID" => uuid = Some(argument.uuid()?),
            "stayTemp" => argument.only_off()?,
            _ => return Err(argument.unknown()),
        }
    }
    let to = required(to, NAME, "to")?;
    for (side, namespace) in [("source", &from), ("target", &to)] {
        if matches!(namespace.collection.as_str(), Namespace::PROFILE | "system.views") {
            let message = format!("error with {side} namespace: cannot write to {namespace}");
            return Err(Error::user(ErrorCode::IllegalOperation, message));
        }
    }
    if (from.database == LOCAL) != (to.database == LOCAL) {
        return Err(Error::user(
            ErrorCode::IllegalOperation,
            "Cannot rename collections between a replicated and an unreplicated database",
        ));
    }
    for (side, namespace) in [("source", &from), ("target", &to)] {
        namespace.check_creatable().map_err(|error| {
            Error::user(ErrorCode::IllegalOperation, format!("error with {side} namespace: {error}"))
        })?;
    }
    call.describe("command");
    let expected = [(&from, uuid), (&to, target_uuid)]
        .into_iter()
        .filter_map(|(namespace, uuid)| Some(Expected { namespace: namespace.clone(), uuid: uuid? }));
    call.operation.expect(expected.collect());
    call.engine.rename_collection(&call.operation, &from, &to, drop_target)?;
    Ok(Document::new())
}

fn namespace(side: &str, argument: &Argument<'_>) -> Result<Namespace> {
    let full = argument.string()?;
    match full.split_once('.') {
        Some((_, collection)) if collection.starts_with('.') && !collection.contains('\0') => {
            Err(Error::user(
                ErrorCode::IllegalOperation,
                format!("error with {side} namespace: Invalid collection name: {collection}"),
            ))
        }
        Some((database, collection)) => Namespace::parse(database, collection),
        None => {
            Err(Error::user(ErrorCode::InvalidNamespace, format!("Invalid namespace specified '{full}'")))
        }
    }
}
