//! `$replaceOne` and `$replaceAll`: a text found within a text is replaced, the first time or always.

use kilim_error::{Error, Result};

use super::check_len;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated, Named, Parameter};

pub(super) static NAMED: Named = Named {
    parameters: &[
        Parameter::required("input"),
        Parameter::required("find"),
        Parameter::required("replacement"),
    ],
    not_an_object: |operator, operand| {
        let found = operand.element_type().name();
        Error::location(
            51_751,
            format!("{} requires an object as an argument, found: {found}", operator.name),
        )
    },
    unknown: |operator, name| {
        Error::location(51_750, format!("{} found an unknown argument: {name}", operator.name))
    },
    missing: |operator, name| {
        let code = match name {
            "input" => 51_749,
            "find" => 51_748,
            _ => 51_747,
        };
        Error::location(code, format!("{} requires '{name}' to be specified", operator.name))
    },
};

pub(super) fn one<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    replace(call, env, 1)
}

pub(super) fn all<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    replace(call, env, usize::MAX)
}

fn replace<'a>(call: &'a Call, env: &Env<'a>, most: usize) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    let find = call.argument(1, env)?;
    let replacement = call.argument(2, env)?;
    for (name, value, code) in
        [("input", &input, 51_746), ("find", &find, 51_745), ("replacement", &replacement, 51_744)]
    {
        if !value.is_nullish() && value.as_str().is_none() {
            let (operator, found) = (call.operator.name, show(value.raw_or_null()));
            return Err(Error::location(
                code,
                format!("{operator} requires that '{name}' be a string, found: {found}"),
            ));
        }
    }
    let (Some(text), Some(find), Some(replacement)) = (input.as_str(), find.as_str(), replacement.as_str())
    else {
        return Ok(Evaluated::NULL);
    };
    let mut out = String::new();
    let mut rest = 0;
    for (place, found) in text.match_indices(find).take(most) {
        env.tick()?;
        out.push_str(&text[rest..place]);
        out.push_str(replacement);
        check_len(out.len())?;
        rest = place + found.len();
    }
    out.push_str(&text[rest..]);
    check_len(out.len())?;
    Ok(out.into())
}
