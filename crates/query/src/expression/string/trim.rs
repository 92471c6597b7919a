//! `$trim`, `$ltrim`, `$rtrim`: characters taken off the ends of a text.

use kilim_error::{Error, Result};

use super::part;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated, Named, Parameter};

pub(super) static NAMED: Named = Named {
    parameters: &[Parameter::required("input"), Parameter::optional("chars")],
    not_an_object: |operator, operand| {
        let found = operand.element_type().name();
        Error::location(
            50_696,
            format!("{} only supports an object as an argument, found {found}", operator.name),
        )
    },
    unknown: |operator, name| {
        Error::location(50_694, format!("{} found an unknown argument: {name}", operator.name))
    },
    missing: |operator, name| {
        Error::location(50_695, format!("{} requires an '{name}' field", operator.name))
    },
};

/// What counts as blank where no characters are given.
fn is_blank(c: char) -> bool {
    matches!(c, '\0' | '\t'..='\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}')
}

pub(super) fn both<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    trim(call, env, true, true)
}

pub(super) fn left<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    trim(call, env, true, false)
}

pub(super) fn right<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    trim(call, env, false, true)
}

fn trim<'a>(call: &'a Call, env: &Env<'a>, front: bool, back: bool) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(text) = input.as_str() else {
        return Err(not_text(call, "requires its input", 50_699, &input));
    };
    let range = if call.is_given(1) {
        let chars = call.argument(1, env)?;
        if chars.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        let Some(chars) = chars.as_str() else {
            return Err(not_text(call, "requires 'chars'", 50_700, &chars));
        };
        rest(text, front, back, |c| chars.contains(c))
    } else {
        rest(text, front, back, is_blank)
    };
    Ok(part(input, range))
}

/// What is left of the text, as a range of its bytes.
fn rest(text: &str, front: bool, back: bool, taken: impl Fn(char) -> bool) -> std::ops::Range<usize> {
    let without_front = if front { text.trim_start_matches(&taken) } else { text };
    let start = text.len() - without_front.len();
    let without_back = if back { without_front.trim_end_matches(&taken) } else { without_front };
    start..start + without_back.len()
}

fn not_text(call: &Call, what: &str, code: i32, value: &Evaluated<'_>) -> Error {
    let (name, found, kind) = (call.operator.name, show(value.raw_or_null()), value.type_name());
    Error::location(code, format!("{name} {what} to be a string, got {found} (of type {kind}) instead."))
}
