//! Expressions of declarations: what is wrong with them, in words that name the place.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

/// Says which expression is wrong; a variable that only a running command has makes it undetermined.
pub(crate) fn bad_expression(place: &str, error: Error) -> Error {
    match is_fleeting(&error) {
        true => not_deterministic(place),
        false => Error::user(ErrorCode::PatternBadExpression, format!("{place}: {error}")),
    }
}

/// The error of a filter: its own, unless it is about a variable that only a running command has.
pub(crate) fn undetermined(place: &str, error: Error) -> Error {
    if is_fleeting(&error) { not_deterministic(place) } else { error }
}

fn is_fleeting(error: &Error) -> bool {
    let text = error.to_string();
    let fleeting = ["NOW", "CLUSTER_TIME", "USER_ROLES"];
    fleeting.iter().any(|name| text.contains(&format!("undefined variable: {name}")))
}

pub(crate) fn not_deterministic(place: &str) -> Error {
    Error::user(
        ErrorCode::PatternNotDeterministic,
        format!("{place} gives another value each time: maintained fields depend on documents alone"),
    )
}

/// Operators that give another value each time.
pub(crate) fn refuse_chance(place: &str, value: RawValue<'_>) -> Result<()> {
    const CHANCE: [&str; 5] = ["$rand", "$sampleRate", "$sample", "$function", "$where"];
    let Some(container) = value.as_container() else { return Ok(()) };
    for (name, value) in container {
        if CHANCE.contains(&name) {
            return Err(not_deterministic(&format!("{place} uses {name}, which")));
        }
        if name != "$literal" {
            refuse_chance(place, value)?;
        }
    }
    Ok(())
}
