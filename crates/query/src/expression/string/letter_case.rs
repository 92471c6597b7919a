//! Case, of ASCII letters only: `$toLower`, `$toUpper`, `$strcasecmp`.

use kilim_error::Result;

use super::coerce::to_text;
use crate::expression::{Call, Env, Evaluated};

pub(super) fn to_lower<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    let mut text = to_text(&value)?.into_owned();
    text.make_ascii_lowercase();
    Ok(text.into())
}

pub(super) fn to_upper<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let value = call.argument(0, env)?;
    let mut text = to_text(&value)?.into_owned();
    text.make_ascii_uppercase();
    Ok(text.into())
}

pub(super) fn compare<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let (left, right) = (call.argument(0, env)?, call.argument(1, env)?);
    let (left, right) = (to_text(&left)?, to_text(&right)?);
    // In capitals: what lies between the two cases comes behind letters.
    let capitals = |text: &'_ str| text.bytes().map(|byte| byte.to_ascii_uppercase()).collect::<Vec<u8>>();
    Ok((capitals(&left).cmp(&capitals(&right)) as i32).into())
}
