//! `setIndexCommitQuorum`: how many members must be done before an index build commits. There is one.

use kilim_bson::{Document, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::write_reply::required;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "setIndexCommitQuorum";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    let (mut names, mut quorum) = (None, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "indexNames" => names = Some(index_names(&argument)?),
            "commitQuorum" => quorum = Some(check_quorum(&argument)?),
            _ => return Err(argument.unknown()),
        }
    }
    let names = required(names, NAME, "indexNames")?;
    required(quorum, NAME, "commitQuorum")?;
    let Some(collection) = call.engine.collection(&namespace) else {
        return Err(Error::user(
            ErrorCode::NamespaceNotFound,
            format!("Collection '{namespace}' was not found."),
        ));
    };
    let is_built =
        |name: &&str| collection.building.iter().any(|building| building.index.spec.name == **name);
    match !names.is_empty() && names.iter().all(is_built) {
        // One member is any number of members that there can be.
        true => Ok(Document::new()),
        false => Err(Error::user(
            ErrorCode::IndexNotFound,
            format!("Cannot find an index build on collection '{namespace}' with the provided index names"),
        )),
    }
}

fn index_names<'a>(argument: &Argument<'a>) -> Result<Vec<&'a str>> {
    let element = |value: RawValue<'a>| Argument { value, ..*argument }.string();
    argument.array()?.iter().map(element).collect()
}

fn check_quorum(argument: &Argument<'_>) -> Result<()> {
    match argument.value {
        RawValue::String("") => {
            return Err(Error::user(ErrorCode::FailedToParse, "commitQuorum can't be an empty string"));
        }
        RawValue::String(_) => return Ok(()),
        _ => {}
    }
    let wrong = |_| argument.wrong_type("types '[long, int, decimal, double, string']");
    match argument.integer().map_err(wrong)? {
        0..=50 => Ok(()),
        _ => Err(Error::user(
            ErrorCode::FailedToParse,
            "commitQuorum has to be a non-negative number and not greater than 50",
        )),
    }
}
