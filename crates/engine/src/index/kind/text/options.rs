//! What a text index takes in its key and among its options, and what it refuses, with mongod's codes.

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::text::document as shell_text;
use kilim_text::{Language, Version};

use super::{Definition, EVERYTHING, SCORE, TERM, is_text};
use crate::index::KindOptions;

/// Weights lie between 0 and this, both excluded.
const WEIGHT_END: f64 = 100_000.0;

fn refuse(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::CannotCreateIndex, message)
}

/// Refuses the names that keys of text indexes have, and text beside another kind.
pub(super) fn check_key(key: RawDocument<'_>) -> Result<()> {
    let is_name = |direction: RawValue<'_>| matches!(direction, RawValue::String(_));
    if key.iter().any(|(path, direction)| path == TERM && !is_text(direction)) {
        return Err(refuse("Index key contains an illegal field name: '_fts'"));
    }
    if key.iter().any(|(path, direction)| is_text(direction) && path.ends_with(".$**")) {
        let message = "Index key contains an illegal field name: field name starts with '$'.";
        return Err(refuse(message));
    }
    let has_text = key.iter().any(|(_, direction)| is_text(direction));
    if has_text && key.iter().any(|(_, direction)| is_name(direction) && !is_text(direction)) {
        return Err(refuse("Can't use more than one index plugin for a single index."));
    }
    Ok(())
}

/// Refuses options of a specification with a text key.
pub(super) fn check(key: RawDocument<'_>, options: &KindOptions<'_>, spec: RawDocument<'_>) -> Result<()> {
    let in_spec = |error: Error| {
        let mut shown = spec.to_document();
        if spec.get("v").is_none() {
            shown.push("v", 2);
        }
        error.during(&format!("Error in specification {}", shell_text(shown.as_raw())))
    };
    check_types(spec)?;
    if let Some(collation) = options.collation {
        let shown = shell_text(collation);
        return Err(in_spec(refuse(format!("Index type 'text' does not support collation: {shown}"))));
    }
    check_fields(key).map_err(in_spec)?;
    check_weights(key, spec).map_err(in_spec)?;
    let version = match spec.get("textIndexVersion") {
        None => Version::Three,
        Some(number) => {
            let number = number_of(number).unwrap_or(0.0) as i64;
            Version::of(number).ok_or_else(|| in_spec(refuse(format!("bad textIndexVersion: {number}"))))?
        }
    };
    if let Some(RawValue::String(name)) = spec.get("default_language")
        && Language::parse(name, version).is_none()
    {
        return Err(in_spec(refuse("default_language is not valid")));
    }
    if let Some(RawValue::String(name)) = spec.get("language_override")
        && (name.is_empty() || name.starts_with('$') || name.contains('.'))
    {
        return Err(in_spec(refuse("language_override is not valid")));
    }
    Ok(())
}

/// The types of the options, which are looked at before all else.
fn check_types(spec: RawDocument<'_>) -> Result<()> {
    type Test = fn(RawValue<'_>) -> bool;
    let is_string: Test = |value| matches!(value, RawValue::String(_));
    let wanted: [(&str, &str, Test); 4] = [
        ("weights", "an object", |value| matches!(value, RawValue::Document(_) | RawValue::String(_))),
        ("default_language", "a string", is_string),
        ("language_override", "a string", is_string),
        ("textIndexVersion", "a number", |value| value.is_number()),
    ];
    for (name, what, test) in wanted {
        if let Some(value) = spec.get(name)
            && !test(value)
        {
            let found = value.element_type().name();
            let message = format!("The field '{name}' must be {what}, but got {found}");
            let error = Error::user(ErrorCode::TypeMismatch, message);
            return Err(error.during(&format!("Error in specification {}", shell_text(spec))));
        }
    }
    Ok(())
}

/// Text fields stand side by side; the names of a stored key are in their places.
fn check_fields(key: RawDocument<'_>) -> Result<()> {
    let mut groups = 0;
    let mut in_text = false;
    let mut stored = false;
    let fields: Vec<(&str, RawValue<'_>)> = key.iter().collect();
    for (at, &(path, direction)) in fields.iter().enumerate() {
        if path == TERM {
            match fields.get(at + 1) {
                Some((SCORE, value)) if number_of(*value) == Some(1.0) => stored = true,
                Some((SCORE, _)) => return Err(refuse("expecting _ftsx:1")),
                _ if fields.iter().any(|(name, _)| *name == SCORE) => {
                    return Err(refuse("text index with reserved fields _fts/_ftsx not allowed"));
                }
                _ => return Err(refuse("expected _ftsx after _fts")),
            }
        }
        if path == SCORE {
            if !stored {
                return Err(refuse("text index with reserved fields _fts/_ftsx not allowed"));
            }
            continue;
        }
        match is_text(direction) {
            true if !in_text => (groups, in_text) = (groups + 1, true),
            true if stored => groups += 1,
            true => {}
            false => {
                in_text = false;
                if !matches!(number_of(direction), Some(1.0 | -1.0)) {
                    return Err(refuse("expected value 1 or -1 for non-text key in compound index"));
                }
            }
        }
    }
    if groups > 1 {
        return Err(refuse("'text' fields in index must all be adjacent"));
    }
    Ok(())
}

fn check_weights(key: RawDocument<'_>, spec: RawDocument<'_>) -> Result<()> {
    let named = key.iter().any(|(path, direction)| is_text(direction) && path != TERM);
    let weights = match spec.get("weights") {
        Some(RawValue::Document(weights)) => weights,
        Some(RawValue::String(EVERYTHING)) => return Ok(()),
        Some(RawValue::String(_)) => return Err(refuse("text index option 'weights' must be an object")),
        _ => RawDocument::empty(),
    };
    for (path, weight) in weights {
        let Some(number) = number_of(weight) else {
            return Err(refuse("weight for text index needs numeric type"));
        };
        if !(1.0..WEIGHT_END).contains(&number) {
            return Err(refuse(format!(
                "text index weight must be in the exclusive interval (0,100000) but found: {}",
                number as i64
            )));
        }
        if path == EVERYTHING {
            continue;
        }
        if path.is_empty() {
            return Err(refuse("weight cannot be on an empty field"));
        }
        if path.split('.').any(str::is_empty) {
            return Err(refuse("weight cannot have empty path component"));
        }
        if path.split('.').any(|name| name.starts_with('$')) {
            return Err(refuse("weight cannot have path component with $ prefix"));
        }
    }
    if !named && weights.is_empty() {
        return Err(refuse("text index option 'weights' must specify fields or the wildcard"));
    }
    Ok(())
}

/// Takes over the options of a checked specification.
pub(super) fn read(definition: &mut Definition, spec: RawDocument<'_>) {
    match spec.get("weights") {
        Some(RawValue::Document(weights)) => {
            for (path, weight) in weights {
                definition.weights.insert(path.into(), number_of(weight).unwrap_or(1.0) as i32);
            }
        }
        Some(RawValue::String(EVERYTHING)) => drop(definition.weights.insert(EVERYTHING.into(), 1)),
        _ => {}
    }
    definition.has_everything = definition.weights.contains_key(EVERYTHING);
    if let Some(number) = spec.get("textIndexVersion").and_then(number_of)
        && let Some(version) = Version::of(number as i64)
    {
        definition.version = version;
    }
    if let Some(RawValue::String(name)) = spec.get("default_language") {
        definition.default_language = name.into();
    }
    definition.language =
        Language::parse(&definition.default_language, definition.version).unwrap_or(Language::NONE);
    if let Some(RawValue::String(name)) = spec.get("language_override") {
        definition.override_field = name.into();
    }
}

fn number_of(value: RawValue<'_>) -> Option<f64> {
    match value {
        RawValue::Int32(number) => Some(f64::from(number)),
        RawValue::Int64(number) => Some(number as f64),
        RawValue::Double(number) => Some(number),
        RawValue::Decimal128(number) => number.to_string().parse().ok(),
        _ => None,
    }
}
