//! `$regexFind`, `$regexFindAll`, `$regexMatch`.
//!
//! Places are code points. A constant expression is compiled once, when the call is prepared; another is compiled
//! for each document.

use std::borrow::Cow;

use kilim_bson::{RawValue, Writer};
use kilim_error::{Error, Result};

use crate::expression::array::Building;
use crate::expression::{Call, Env, Evaluated, Expression, Named, Parameter};
use crate::filter::{GaveUp, Groups, Regex, invalid_flag};
use crate::interrupt;

pub(super) static NAMED: Named = Named {
    parameters: &[Parameter::required("input"), Parameter::required("regex"), Parameter::optional("options")],
    not_an_object: |operator, operand| {
        let found = operand.element_type().name();
        Error::location(
            51_103,
            format!("{} expects an object of named arguments but found: {found}", operator.name),
        )
    },
    unknown: |operator, name| {
        Error::location(31_024, format!("{} found an unknown argument: {name}", operator.name))
    },
    missing: |operator, name| {
        let code = if name == "input" { 31_022 } else { 31_023 };
        Error::location(code, format!("{} requires '{name}' parameter", operator.name))
    },
};

/// A constant expression; none where it is null, which matches nothing.
struct Compiled(Option<Regex>);

pub(super) fn prepare(call: &mut Call) -> Result<()> {
    let constant = |index| match call.expression(index) {
        None | Some(Expression::Missing) => Some(Evaluated::Missing),
        Some(Expression::Constant(value)) => Some(Evaluated::Raw(value.as_raw())),
        Some(_) => None,
    };
    if let (Some(regex), Some(options)) = (constant(1), constant(2)) {
        let compiled = compile(call.operator.name, &regex, &options)?;
        call.prepare(Compiled(compiled));
    }
    Ok(())
}

fn compile(name: &str, regex: &Evaluated<'_>, options: &Evaluated<'_>) -> Result<Option<Regex>> {
    let (pattern, flags) = match regex.raw() {
        None | Some(RawValue::Null | RawValue::Undefined) => (None, ""),
        Some(RawValue::String(pattern)) => (Some(pattern), ""),
        Some(RawValue::Regex { pattern, options }) => (Some(pattern), options),
        Some(_) => {
            return Err(Error::location(
                51_105,
                format!("{name} needs 'regex' to be of type string or regex"),
            ));
        }
    };
    let options = match options.raw() {
        None | Some(RawValue::Null | RawValue::Undefined) => flags,
        Some(RawValue::String(_)) if !flags.is_empty() => {
            return Err(Error::location(
                51_107,
                format!("{name}: found regex option(s) specified in both 'regex' and 'option' fields"),
            ));
        }
        Some(RawValue::String(options)) => options,
        Some(_) => {
            return Err(Error::location(51_106, format!("{name} needs 'options' to be of type string")));
        }
    };
    if pattern.is_some_and(|pattern| pattern.contains('\0')) {
        return Err(Error::location(
            51_109,
            format!("{name}: regular expression cannot contain an embedded null byte"),
        ));
    }
    if options.contains('\0') {
        return Err(Error::location(
            51_110,
            format!("{name}: regular expression options cannot contain an embedded null byte"),
        ));
    }
    if let Some(flag) = invalid_flag(options) {
        return Err(Error::location(51_108, format!("{name} invalid flag in regex options: {flag}")));
    }
    crate::interrupt::check()?;
    let compiled = pattern.map(|pattern| Regex::compile(pattern, options)).transpose();
    compiled.map_err(|why| Error::location(51_111, format!("Invalid Regex in {name}: {why}")))
}

/// The text to search and what for; nothing if either is null.
struct Search<'a> {
    input: Evaluated<'a>,
    regex: Cow<'a, Regex>,
    name: &'static str,
}

impl<'a> Search<'a> {
    fn of(call: &'a Call, env: &Env<'a>) -> Result<Option<Search<'a>>> {
        let name = call.operator.name;
        let input = call.argument(0, env)?;
        if !input.is_nullish() && input.as_str().is_none() {
            return Err(Error::location(51_104, format!("{name} needs 'input' to be of type string")));
        }
        let regex = match call.prepared::<Compiled>() {
            Some(Compiled(regex)) => regex.as_ref().map(Cow::Borrowed),
            None => compile(name, &call.argument(1, env)?, &call.argument(2, env)?)?.map(Cow::Owned),
        };
        Ok(regex.filter(|_| !input.is_nullish()).map(|regex| Search { input, regex, name }))
    }

    fn text(&self) -> &str {
        self.input.as_str().unwrap_or_default()
    }

    fn at(&self, start: usize) -> Result<Option<Groups>> {
        self.check()?;
        self.regex.find_at(self.text(), start).map_err(|GaveUp| self.gave_up())
    }

    /// Asks whether to go on, before a search that may take long on a short text.
    fn check(&self) -> Result<()> {
        if self.regex.backtracks() { interrupt::check() } else { Ok(()) }
    }

    /// What mongod says when a search takes too many steps.
    fn gave_up(&self) -> Error {
        Error::location(
            51_156,
            format!(
                "Error occurred while executing the regular expression in {}. Result code: -8",
                self.name
            ),
        )
    }
}

/// The fields of a match, written into a document that is open.
fn write_match(text: &str, groups: &Groups, place: usize, out: &mut Writer) {
    out.append("match", RawValue::String(&text[groups.whole.clone()]));
    out.append("idx", RawValue::Int32(place as i32));
    out.open_array("captures");
    for (index, group) in groups.captures.iter().enumerate() {
        let captured = group.clone().map_or(RawValue::Null, |range| RawValue::String(&text[range]));
        out.append_index(index, captured);
    }
    out.close();
}

pub(super) fn matches<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Some(search) = Search::of(call, env)? else { return Ok(false.into()) };
    search.check()?;
    Ok(search.regex.decides(search.text()).map_err(|GaveUp| search.gave_up())?.into())
}

pub(super) fn find<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let Some(search) = Search::of(call, env)? else { return Ok(Evaluated::NULL) };
    let Some(groups) = search.at(0)? else { return Ok(Evaluated::NULL) };
    let text = search.text();
    let mut out = Writer::new();
    write_match(text, &groups, text[..groups.whole.start].chars().count(), &mut out);
    Ok(out.finish().into())
}

pub(super) fn find_all<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let mut all = Building::new();
    let Some(search) = Search::of(call, env)? else { return Ok(all.finish()) };
    let text = search.text();
    // Where the next search begins, in bytes and in code points.
    let (mut start, mut place) = (0, 0);
    while let Some(groups) = search.at(start)? {
        env.tick()?;
        place += text[start..groups.whole.start].chars().count();
        all.try_write(|index, writer| {
            writer.open_document_at(index);
            write_match(text, &groups, place, writer);
            writer.close();
            Ok(())
        })?;
        // Behind the match; an empty one would be found again, so one code point on.
        let found = &text[groups.whole.clone()];
        let passed = if found.is_empty() {
            text[groups.whole.end..].chars().next().map_or(0, char::len_utf8)
        } else {
            0
        };
        start = groups.whole.end + passed;
        place += found.chars().count() + usize::from(passed > 0);
        // No search begins at the end, so no empty match is found there.
        if start >= text.len() {
            break;
        }
    }
    Ok(all.finish())
}
