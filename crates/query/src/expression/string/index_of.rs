//! `$indexOfBytes` and `$indexOfCP`: the place of a text within a text.

use kilim_error::{Error, Result};

use crate::expression::array::bound;
use crate::expression::{Call, Env, Evaluated};

/// The code of a first argument that is no text; that of the second is the next one.
const BYTES: i32 = 40_091;
const CODE_POINTS: i32 = 40_093;

/// What is searched, for what, and within which bounds; nothing if there is nothing to search.
struct Search<'a> {
    text: Evaluated<'a>,
    sought: Evaluated<'a>,
    start: usize,
    end: usize,
}

impl<'a> Search<'a> {
    fn of(call: &'a Call, code: i32, env: &Env<'a>) -> Result<Option<Search<'a>>> {
        let name = call.operator.name;
        let text = call.argument(0, env)?;
        if text.is_nullish() {
            return Ok(None);
        }
        check_text(name, "first", code, &text)?;
        let sought = call.argument(1, env)?;
        check_text(name, "second", code + 1, &sought)?;
        let start = bound(call, 2, "starting", env)?.unwrap_or(0);
        let end = bound(call, 3, "ending", env)?.unwrap_or(usize::MAX);
        Ok(Some(Search { text, sought, start, end }))
    }

    fn texts(&self) -> (&str, &str) {
        (self.text.as_str().unwrap_or_default(), self.sought.as_str().unwrap_or_default())
    }
}

fn check_text(name: &str, which: &str, code: i32, value: &Evaluated<'_>) -> Result<()> {
    if value.as_str().is_none() {
        let found = value.type_name();
        return Err(Error::location(
            code,
            format!("{name} requires a string as the {which} argument, found: {found}"),
        ));
    }
    Ok(())
}

fn place(found: Option<usize>) -> Evaluated<'static> {
    found.map_or(-1, |place| place as i32).into()
}

pub(super) fn bytes<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Some(search) = Search::of(call, BYTES, env)? else { return Ok(Evaluated::NULL) };
    let (text, sought) = search.texts();
    let end = search.end.min(text.len());
    if search.start > end {
        return Ok(place(None));
    }
    if sought.is_empty() {
        return Ok(place(Some(search.start)));
    }
    // A text begins and ends between code points, so bounds within one move inwards.
    let start = text.ceil_char_boundary(search.start);
    let end = text.floor_char_boundary(end);
    let found = text.get(start..end).and_then(|part| part.find(sought));
    Ok(place(found.map(|found| start + found)))
}

pub(super) fn code_points<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Some(search) = Search::of(call, CODE_POINTS, env)? else { return Ok(Evaluated::NULL) };
    let (text, sought) = search.texts();
    if text.is_empty() && sought.is_empty() && search.start == 0 {
        return Ok(place(Some(0)));
    }
    // Only where the match begins is bounded by the end.
    let Some((start, _)) = text.char_indices().nth(search.start) else { return Ok(place(None)) };
    let found =
        text[start..].find(sought).map(|found| text[start..start + found].chars().count() + search.start);
    // An empty text is not found behind the last code point, which the bound rules out by itself.
    Ok(place(found.filter(|&found| found < search.end)))
}
