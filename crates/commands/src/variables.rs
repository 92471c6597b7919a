//! The variables that all expressions of a command know.

use kilim_bson::{RawDocument, RawValue, Timestamp};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::Variables;

use crate::about::About;
use crate::argument::Argument;
use crate::collation;
use crate::command::update::now_ms;
use crate::dispatch::Call;

/// The time, how texts compare, and what the command's `let` defines.
pub fn variables(call: &Call<'_, '_>, command: &'static str, about: &About) -> Result<Variables> {
    let (collation, definitions) = (call.generic.collation, call.generic.definitions);
    let named = collation::named(collation::argument(command, collation)?)?;
    define(call, command, definitions, about.collation(named)?)
}

/// Those of a command within another, which is to be explained.
pub fn variables_within(
    call: &Call<'_, '_>,
    command: &'static str,
    body: RawDocument<'_>,
    about: &About,
) -> Result<Variables> {
    let named = collation::named(collation::argument(command, body.get("collation"))?)?;
    define(call, command, body.get("let"), about.collation(named)?)
}

/// Those of a statement that has a collation of its own.
pub fn variables_under(
    call: &Call<'_, '_>,
    command: &'static str,
    body: RawDocument<'_>,
    collation: Option<Collation>,
) -> Result<Variables> {
    define(call, command, body.get("let"), collation)
}

fn define(
    call: &Call<'_, '_>,
    command: &'static str,
    definitions: Option<RawValue<'_>>,
    collation: Option<Collation>,
) -> Result<Variables> {
    let now = Timestamp::from_bits(call.engine.store.now());
    let roles = call.client.login.identity.as_ref().map(|identity| identity.shown_roles.clone());
    let mut variables = Variables::at(now_ms(), now).under(collation).of_user(roles);
    match definitions {
        None | Some(RawValue::Null | RawValue::Undefined) => {}
        Some(value) => {
            let definitions = Argument { command, name: "let", value }.document()?;
            variables.define_all(definitions).map_err(|error| match error {
                Error::User(mut user) if user.code == ErrorCode::FailedToParse => {
                    user.message = format!("Invalid 'let' parameter :: caused by :: {}", user.message);
                    Error::User(user)
                }
                other => other,
            })?;
        }
    }
    Ok(variables)
}
