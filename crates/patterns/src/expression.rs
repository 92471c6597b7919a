//! Expressions of declarations: what is wrong with them, in words that name the place.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

/// Says which expression is wrong; a variable that only a running command has makes it undetermined.
pub(crate) fn bad_expression(place: &str, error: Error) -> Error {
    let text = error.to_string();
    let fleeting = ["NOW", "CLUSTER_TIME", "USER_ROLES"];
    if fleeting.iter().any(|name| text.contains(&format!("undefined variable: {name}"))) {
        return not_deterministic(place);
    }
    Error::user(ErrorCode::PatternBadExpression, format!("{place}: {text}"))
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
