//! The declaration as it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;

use super::conversion::Conversion;
use super::step::{OnError, VersionCheck, VersionStep};
use super::{PLACE, SchemaVersion};
use crate::argument;
use crate::expression::{refuse_chance, undetermined};
use crate::kind::Kind;

const CHECKS: [(&str, VersionCheck); 3] =
    [("all", VersionCheck::All), ("sample", VersionCheck::Sample), ("none", VersionCheck::None)];
const ON_ERROR: [(&str, OnError); 2] = [("block", OnError::Block), ("keepOld", OnError::KeepOld)];

/// Versions are numbers that anybody can write.
const VERSION_MAX: i64 = 1_000_000;

pub(in crate::kind) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    let (mut field, mut from, mut to, mut up, mut down) = (None, None, None, None, None);
    let (mut check, mut on_error, mut validator) = (VersionCheck::All, OnError::Block, None);
    let (mut in_background, mut batch, mut throttle_ms) = (true, 128, 5);
    let mut aliases = BTreeMap::new();
    for (name, value) in spec {
        match name {
            "field" => field = Some(parse_field(argument::text(PLACE, name, value)?)?),
            "from" => from = Some(argument::whole(PLACE, name, value, 0, VERSION_MAX)? as i32),
            "to" => to = Some(argument::whole(PLACE, name, value, 0, VERSION_MAX)? as i32),
            "up" => up = Some(Conversion::parse("'schemaVersion.up'", stages(name, value)?)?),
            "down" => down = Some(Conversion::parse("'schemaVersion.down'", stages(name, value)?)?),
            "check" => check = argument::choice(PLACE, name, value, &CHECKS)?,
            "onError" => on_error = argument::choice(PLACE, name, value, &ON_ERROR)?,
            "validator" => validator = Some(parse_validator(argument::document(PLACE, name, value)?)?),
            "persist" => in_background = parse_persist(value)?,
            "background" => {
                for (part, value) in argument::document(PLACE, name, value)? {
                    let place = "schemaVersion.background";
                    match part {
                        "batch" => batch = argument::whole(place, part, value, 1, 100_000)? as u32,
                        "throttleMs" => {
                            throttle_ms = argument::whole(place, part, value, 0, 60_000)? as u32;
                        }
                        _ => return Err(argument::unknown(place, part)),
                    }
                }
            }
            "aliases" => aliases = parse_aliases(argument::document(PLACE, name, value)?)?,
            _ => return Err(argument::unknown(PLACE, name)),
        }
    }
    let field = field.ok_or_else(|| argument::missing(PLACE, "field"))?;
    let from = from.ok_or_else(|| argument::missing(PLACE, "from"))?;
    let to = to.ok_or_else(|| argument::missing(PLACE, "to"))?;
    let up = up.ok_or_else(|| argument::missing(PLACE, "up"))?;
    if from == to {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!(
                "'schemaVersion' leads from version {from} to the same version: 'from' and 'to' must differ"
            ),
        ));
    }
    if let Some(version) = aliases.keys().find(|version| ![from, to].contains(version)) {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("'schemaVersion.aliases' names version {version}, but the step is from {from} to {to}"),
        ));
    }
    let touches = |conversion: &Conversion| {
        conversion.touched().is_some_and(|paths| paths.iter().any(|path| **path == *field))
    };
    if touches(&up) || down.as_ref().is_some_and(touches) {
        return Err(Error::user(
            ErrorCode::PatternBadExpression,
            format!("a conversion writes '{field}', which the pattern sets by itself: leave it out"),
        ));
    }
    let step = VersionStep {
        field,
        from,
        to,
        up,
        down,
        check,
        on_error,
        validator,
        in_background,
        batch,
        throttle_ms,
        aliases,
    };
    Ok(Arc::new(SchemaVersion { step: Arc::new(step) }))
}

fn parse_field(field: &str) -> Result<Box<str>> {
    if field.is_empty() || field.contains(['.', '\0']) || field.starts_with('$') || field == "_id" {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!(
                "'schemaVersion.field' is '{field}', but must be a field of the document itself, not '_id'"
            ),
        ));
    }
    Ok(field.into())
}

fn stages<'a>(name: &str, value: RawValue<'a>) -> Result<RawArray<'a>> {
    value.as_array().ok_or_else(|| {
        Error::user(
            ErrorCode::TypeMismatch,
            format!("'schemaVersion.{name}' must be an array of stages, as an update takes"),
        )
    })
}

fn parse_validator(validator: RawDocument<'_>) -> Result<Filter> {
    let place = "'schemaVersion.validator'";
    refuse_chance(place, RawValue::Document(validator))?;
    Filter::parse(validator).map_err(|error| undetermined(place, error))
}

/// Whether a job converts what is stored. What is written is always stored in the newest version.
fn parse_persist(value: RawValue<'_>) -> Result<bool> {
    let wrong = |message: String| Error::user(ErrorCode::BadValue, message);
    let words: Option<Vec<&str>> =
        value.as_array().and_then(|words| words.iter().map(|word| word.as_str()).collect());
    let Some(words) = words else {
        return Err(Error::user(
            ErrorCode::TypeMismatch,
            "'schemaVersion.persist' must be an array of 'onWrite' and 'background'",
        ));
    };
    if words.contains(&"onRead") {
        return Err(Error::user(
            ErrorCode::NotImplemented,
            "'schemaVersion.persist' with 'onRead' is not supported by Kilim yet: 'background' converts all that is stored",
        ));
    }
    if let Some(word) = words.iter().find(|word| !["onWrite", "background"].contains(word)) {
        return Err(wrong(format!(
            "'schemaVersion.persist' has '{word}', but can have 'onWrite' and 'background' only"
        )));
    }
    if !words.contains(&"onWrite") {
        return Err(wrong(
            "'schemaVersion.persist' lacks 'onWrite': what is written is always stored in the newest version"
                .to_owned(),
        ));
    }
    Ok(words.contains(&"background"))
}

fn parse_aliases(aliases: RawDocument<'_>) -> Result<BTreeMap<i32, Box<str>>> {
    let mut parsed = BTreeMap::new();
    for (version, name) in aliases {
        let number = version.parse::<i32>().ok().filter(|number| *number >= 0);
        let number = number.ok_or_else(|| {
            Error::user(
                ErrorCode::BadValue,
                format!(
                    "'schemaVersion.aliases.{version}' must be the name of a version: {{1: \"users@1\"}}"
                ),
            )
        })?;
        parsed.insert(number, argument::text("schemaVersion.aliases", version, name)?.into());
    }
    Ok(parsed)
}
