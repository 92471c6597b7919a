//! `$split`: a text's parts between delimiters.

use kilim_bson::RawValue;
use kilim_error::{Error, Result};

use crate::expression::array::Building;
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    let delimiter = call.argument(1, env)?;
    if input.is_nullish() || delimiter.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let text = text_of(&input, "first", 40_085)?;
    let delimiter = text_of(&delimiter, "second", 40_086)?;
    if delimiter.is_empty() {
        return Err(Error::location(40_087, "$split requires a non-empty separator"));
    }
    let mut parts = Building::new();
    for part in text.split(delimiter) {
        env.tick()?;
        parts.push(RawValue::String(part))?;
    }
    Ok(parts.finish())
}

fn text_of<'v>(value: &'v Evaluated<'_>, which: &str, code: i32) -> Result<&'v str> {
    value.as_str().ok_or_else(|| {
        let found = value.type_name();
        Error::location(
            code,
            format!("$split requires an expression that evaluates to a string as a {which} argument, found: {found}"),
        )
    })
}
