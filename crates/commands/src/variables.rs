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
pub fn variables(
    call: &Call<'_, '_>,
    command: &'static str,
    body: RawDocument<'_>,
    about: &About,
) -> Result<Variables> {
    let (collation, definitions) = options(body);
    let named = collation::named(collation::argument(command, collation)?)?;
    define(call, command, definitions, about.collation(named)?)
}

/// `collation` and `let`, found in one look at the command.
fn options<'a>(body: RawDocument<'a>) -> (Option<RawValue<'a>>, Option<RawValue<'a>>) {
    let (mut collation, mut definitions) = (None, None);
    let mut elements = body.iter();
    while let Some(element) = elements.next_element() {
        let option = match element.name {
            "collation" => &mut collation,
            "let" => &mut definitions,
            _ => continue,
        };
        option.get_or_insert_with(|| element.value());
    }
    (collation, definitions)
}

/// The same under the collation of a statement.
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
    let mut variables = Variables::at(now_ms(), now).under(collation);
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
