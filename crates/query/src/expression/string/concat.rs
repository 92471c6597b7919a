//! `$concat`: texts one behind the other.

use kilim_error::{Error, Result};

use super::check_len;
use crate::expression::{Call, Env, Evaluated};

pub(super) fn evaluate<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut all = String::new();
    for argument in call.each(env) {
        let argument = argument?;
        if argument.is_nullish() {
            return Ok(Evaluated::NULL);
        }
        let Some(text) = argument.as_str() else {
            let found = argument.type_name();
            return Err(Error::location(16_702, format!("$concat only supports strings, not {found}")));
        };
        check_len(all.len() + text.len())?;
        all.push_str(text);
    }
    Ok(all.into())
}
