//! `$rename`: a field moves to another path.
//!
//! The tree holds an operator at each end. The target's reads the source from the before-image and makes
//! all the checks; the source's removes it. No other operator can touch either path, so the two need not
//! know each other's order.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::change::Change;
use super::operator::{Missing, Operator, Site};
use super::path::{Step, array_index, parse_path};
use super::set::set;
use super::storage;
use crate::text;

/// At the target.
#[derive(Debug)]
struct Rename {
    source: Box<str>,
    target: Box<str>,
}

/// At the source.
#[derive(Debug)]
pub(super) struct RenamedAway;

/// The target of a rename, checked.
pub(super) fn target<'v>(source: &str, argument: RawValue<'v>) -> Result<&'v str> {
    argument.as_str().ok_or_else(|| {
        refuse(format!("The 'to' field for $rename must be a string: {}", text::element(source, argument)))
    })
}

pub(super) fn parse(
    source: &str,
    argument: RawValue<'_>,
    _: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    let target = target(source, argument)?;
    if target.contains('\0') {
        return Err(refuse("The 'to' field for $rename cannot contain an embedded null byte".to_owned()));
    }
    let element = || text::element(source, argument);
    if source == target {
        return Err(refuse(format!("The source and target field for $rename must differ: {}", element())));
    }
    if leads_to(source, target) || leads_to(target, source) {
        return Err(refuse(format!(
            "The source and target field for $rename must not be on the same path: {}",
            element()
        )));
    }
    for (end, path) in [("source", source), ("destination", target)] {
        if parse_path(path)?.iter().any(|step| !matches!(step, Step::Field(_))) {
            return Err(refuse(format!("The {end} field for $rename may not be dynamic: {path}")));
        }
    }
    Ok(Arc::new(Rename { source: source.into(), target: target.into() }))
}

fn leads_to(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}

fn is_in_id(path: &str) -> bool {
    path.split('.').next() == Some("_id")
}

fn refuse(message: String) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

impl Rename {
    /// The value to move, if there is one, once both paths are known to avoid arrays.
    fn source<'a>(&self, site: &Site<'a, '_>) -> Result<Option<RawValue<'a>>> {
        let source = walk(site.root, &self.source);
        let Some(value) = source.end else {
            return match source.blocked {
                None => Ok(None),
                Some((name, value)) => Err(Error::user(
                    ErrorCode::PathNotViable,
                    format!(
                        "cannot use the part ({name} of {}) to traverse the element ({{{}}})",
                        self.source,
                        text::element(name, value)
                    ),
                )),
            };
        };
        let target = walk(site.root, &self.target);
        for (end, path, array) in
            [("source", &self.source, source.array), ("destination", &self.target, target.array)]
        {
            if let Some(array) = array {
                return Err(refuse(format!(
                    "The {end} field cannot be an array element, '{path}' in doc with {} has an array field \
                     called '{array}'",
                    site.id_text()
                )));
            }
        }
        // A target that is within `_id` or cannot be made is refused first, where it is written.
        if is_in_id(&self.source) && !is_in_id(&self.target) && target.blocked.is_none() {
            return Err(storage::id_would_change(&self.source));
        }
        Ok(Some(value))
    }
}

/// What is found along a path.
struct Walked<'a, 'p> {
    end: Option<RawValue<'a>>,
    /// The innermost array that the path enters.
    array: Option<&'p str>,
    /// The value that the path cannot enter.
    blocked: Option<(&'p str, RawValue<'a>)>,
}

fn walk<'a, 'p>(root: RawDocument<'a>, path: &'p str) -> Walked<'a, 'p> {
    let mut walked = Walked { end: None, array: None, blocked: None };
    let mut at = RawValue::Document(root);
    let mut previous = "";
    for name in path.split('.') {
        let next = match at {
            RawValue::Document(document) => document.get(name),
            RawValue::Array(array) => {
                walked.array = Some(previous);
                match array_index(name) {
                    Some(index) => array.get(index),
                    None => {
                        walked.blocked = Some((previous, at));
                        return walked;
                    }
                }
            }
            _ => {
                walked.blocked = Some((previous, at));
                return walked;
            }
        };
        let Some(next) = next else { return walked };
        (at, previous) = (next, name);
    }
    walked.end = Some(at);
    walked
}

impl Operator for Rename {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        let Some(source) = self.source(site)? else { return Ok(Change::Keep) };
        // Even by an equal value.
        if is_in_id(&self.target) {
            return Err(storage::id_would_change(&self.target));
        }
        Ok(set(value, source))
    }

    fn missing<'a>(&'a self, site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(self.source(site)?.map_or(Missing::Ignore, |source| Missing::Create(Change::Set(source))))
    }
}

impl Operator for RenamedAway {
    fn update<'a>(&'a self, _value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        // The target refuses to move an `_id`, when its turn comes.
        Ok(if site.path[0] == "_id" { Change::Keep } else { Change::Remove })
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        Ok(Missing::Ignore)
    }
}
