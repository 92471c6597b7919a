//! What a wildcard index with further fields in its key asks of key and projection.
//!
//! No field may be there twice, as itself and as one of the wildcard's paths. Below a path that is clear from the key;
//! `$**` needs a projection that leaves the other fields out, whether it takes some paths or leaves some out.

use std::cmp::Ordering;

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::{Wildcard, projected_paths, takes};

/// Whether a key with a wildcard is one that an index can have.
pub(super) fn check_key(key: RawDocument<'_>) -> Result<()> {
    let mut wildcards = key.iter().filter(|(path, kind)| {
        // A text index has its own meaning of it.
        Wildcard::is_wildcard(path) && !matches!(kind, RawValue::String(_))
    });
    let Some((wildcard, _)) = wildcards.next() else { return Ok(()) };
    if wildcards.next().is_some() {
        let message = "An index may have one wildcard among its fields, and this one has more";
        return Err(Error::location(7_246_201, message));
    }
    let root = wildcard.strip_suffix(".$**");
    for (path, kind) in others(key) {
        if let RawValue::String(kind) = kind {
            let message = format!("A wildcard index cannot have a field of the kind '{kind}': {path}");
            return Err(Error::user(ErrorCode::CannotCreateIndex, message));
        }
        if root.is_some_and(|root| overlap(root, path)) {
            return Err(Error::location(
                7_246_204,
                format!("The field '{path}' is among the paths of the wildcard '{wildcard}'"),
            ));
        }
    }
    Ok(())
}

/// Paths are taken or left out, `_id` apart; and none is there with one above it.
pub(super) fn check_mixture(key: RawDocument<'_>, projection: RawDocument<'_>) -> Result<()> {
    let paths = projected_paths(projection);
    let plain = |value: RawValue<'_>| value.is_number() || matches!(value, RawValue::Bool(_));
    if others(key).next().is_none() || !paths.iter().all(|(_, value)| plain(*value)) {
        return Ok(());
    }
    let apart: Vec<&(String, RawValue<'_>)> = paths.iter().filter(|(path, _)| path != "_id").collect();
    if apart.iter().any(|(_, value)| takes(*value) != takes(apart[0].1)) {
        return Err(Error::location(
            7_246_211,
            "A wildcardProjection takes paths or leaves paths out, not both; only '_id' may be an exception",
        ));
    }
    for (at, (path, _)) in paths.iter().enumerate() {
        if let Some((other, _)) = paths[..at].iter().find(|(other, _)| overlap(other, path)) {
            let message = format!("The paths '{other}' and '{path}' of the wildcardProjection overlap");
            return Err(Error::location(7_246_200, message));
        }
    }
    Ok(())
}

/// Whether the projection of a checked key leaves out the other fields.
pub(super) fn check_projection(key: RawDocument<'_>, projection: Option<RawDocument<'_>>) -> Result<()> {
    let mut fields: Vec<&str> = others(key).map(|(path, _)| path).collect();
    if fields.is_empty() || key.get("$**").is_none() {
        return Ok(());
    }
    let Some(projection) = projection else {
        let message = "A compound index with the wildcard '$**' needs a wildcardProjection";
        return Err(Error::user(ErrorCode::CannotCreateIndex, message));
    };
    let paths = projected_paths(projection);
    let (taken, mut left_out): (Vec<_>, Vec<_>) = paths.iter().partition(|(_, value)| takes(*value));
    let includes = taken.iter().any(|(path, _)| path != "_id") || left_out.is_empty();
    if includes {
        let twice = |field: &&str| taken.iter().any(|(path, _)| overlap(path, field));
        return match fields.iter().copied().find(twice) {
            None => Ok(()),
            Some(field) => Err(Error::location(
                7_246_208,
                format!("The field '{field}' is also among the paths that the wildcardProjection takes"),
            )),
        };
    }
    // In order, as mongod goes through them: that decides on the code.
    fields.sort_unstable();
    left_out.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
    let mut left_out = left_out.into_iter().peekable();
    for field in fields {
        while left_out
            .next_if(|(path, _)| !covers(path, field) && path.as_str().cmp(field) == Ordering::Less)
            .is_some()
        {}
        let message = format!("The wildcardProjection must leave out '{field}', which is a field of its own");
        match left_out.peek() {
            Some((path, _)) if covers(path, field) => {}
            Some(_) => return Err(Error::location(7_246_209, message)),
            None => return Err(Error::location(7_246_210, message)),
        }
    }
    Ok(())
}

/// The fields of a key beside the wildcard.
fn others(key: RawDocument<'_>) -> impl Iterator<Item = (&str, RawValue<'_>)> {
    key.iter().filter(|(path, _)| !Wildcard::is_wildcard(path))
}

/// Whether one path is the other, or above it.
fn covers(above: &str, path: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn overlap(one: &str, other: &str) -> bool {
    covers(one, other) || covers(other, one)
}
