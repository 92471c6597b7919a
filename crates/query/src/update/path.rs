//! Update paths: dotted names whose steps may also be `$`, `$[]` and `$[identifier]`.

use kilim_error::{Error, ErrorCode, Result};

use super::storage;

/// Steps of one path. No document is that deep, and the tree is walked by recursion.
const STEPS_MAX: usize = 255;

/// One step of an update path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'p> {
    Field(&'p str),
    /// `$`: the element that the filter matched.
    Positional,
    /// `$[]` with an empty identifier, or `$[identifier]`.
    Elements(&'p str),
}

/// Splits and checks a path.
pub(super) fn parse_path(path: &str) -> Result<Vec<Step<'_>>> {
    if path.is_empty() {
        return Err(Error::user(ErrorCode::EmptyFieldName, "An empty update path is not valid."));
    }
    if path.split('.').any(str::is_empty) {
        let message = format!("The update path '{path}' contains an empty field name, which is not allowed.");
        return Err(Error::user(ErrorCode::EmptyFieldName, message));
    }
    let steps: Vec<Step<'_>> = path.split('.').map(Step::parse).collect();
    if steps.len() > STEPS_MAX {
        return Err(storage::too_deep());
    }
    let refuse = |what: &str| Err(Error::user(ErrorCode::BadValue, format!("{what} in path '{path}'")));
    if steps.iter().filter(|step| **step == Step::Positional).count() > 1 {
        return refuse("Too many positional (i.e. '$') elements found");
    }
    match steps[0] {
        Step::Positional => refuse("Cannot have positional (i.e. '$') element in the first position"),
        Step::Elements(_) => {
            refuse("Cannot have array filter identifier (i.e. '$[<id>]') element in the first position")
        }
        Step::Field(_) => Ok(steps),
    }
}

impl<'p> Step<'p> {
    fn parse(name: &'p str) -> Step<'p> {
        match name.strip_prefix("$[").and_then(|rest| rest.strip_suffix(']')) {
            Some(identifier) => Step::Elements(identifier),
            None if name == "$" => Step::Positional,
            None => Step::Field(name),
        }
    }
}

/// The array position that a name stands for. Leading zeros are allowed here, unlike in filters.
pub(super) fn array_index(name: &str) -> Option<usize> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = name.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse::<u32>().ok().map(|index| index as usize)
}
