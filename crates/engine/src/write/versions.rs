//! Versions: in which a document is stored that is written in another.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, Result};
use kilim_patterns::{VersionStep, Versions};

use super::admit::check_admitted;
use super::door;
use crate::catalog::Alias;
use crate::change::{Before, Change, Form};
use crate::maintenance::read_only;
use crate::namespace::Namespace;
use crate::patches::see_newest;
use crate::patterns::{Pattern, about};
use crate::records::Sight;
use crate::unit::Unit;

/// The document of a change in the version in which it is stored; none where it has that already.
pub(super) fn settled(unit: &Unit<'_>, change: &Change<'_>) -> Result<Option<Document>> {
    let (Some(versions), Some(after)) = (change.collection.shape.versions(), change.after) else {
        return Ok(None);
    };
    let is_validated = change.cause.is_of_user() && !unit.bypass_validation;
    let made_of = change.before.filter(|_| !is_whole(change)).map(|before| before.seen);
    versions
        .settled(after, made_of, is_validated)
        .map_err(|error| told(unit, &change.collection.namespace, error))
}

/// Whether a user wrote the whole document, and not a change of it.
fn is_whole(change: &Change<'_>) -> bool {
    matches!(change.form, Form::Replacement)
}

/// Refuses an update that gives a document another version than the one in which it was seen.
pub(super) fn check_version_kept(unit: &Unit<'_>, change: &Change<'_>) -> Result<()> {
    match change.collection.shape.versions() {
        Some(versions) => {
            check_kept(unit, change, &change.collection.namespace, versions, versions.current())
        }
        None => Ok(()),
    }
}

/// Refuses an update that gives a document another version. What it makes is of the version that it was shown, unless it
/// replaces the whole document.
fn check_kept(
    unit: &Unit<'_>,
    change: &Change<'_>,
    base: &Namespace,
    versions: &Versions,
    shown: i32,
) -> Result<()> {
    let (Some(before), Some(after), false) = (change.before, change.after, is_whole(change)) else {
        return Ok(());
    };
    match versions.says(after) {
        Some(version) if version != shown && versions.says(before.seen) != Some(version) => {
            Err(declaring(unit, base, |pattern, step| read_only(pattern, &step.field))
                .unwrap_or_else(|| Error::bug("versions without a pattern")))
        }
        _ => Ok(()),
    }
}

/// An error of a conversion, with the pattern that declares it.
fn told(unit: &Unit<'_>, namespace: &Namespace, error: Error) -> Error {
    let named =
        |pattern: &Pattern, step: &VersionStep| (pattern.declaration.name.clone(), step.field.clone());
    match declaring(unit, namespace, named) {
        Some((name, field)) => about(error, namespace, &name, Some(&field)),
        None => error,
    }
}

/// Looks at a pattern that declares versions of a collection.
fn declaring<T>(
    unit: &Unit<'_>,
    namespace: &Namespace,
    look: impl FnOnce(&Pattern, &VersionStep) -> T,
) -> Option<T> {
    let registry = unit.engine.patterns();
    let mut own = registry.of(&namespace.database).iter().filter(|pattern| pattern.target == *namespace);
    own.find_map(|pattern| Some((pattern, pattern.kind().version_step()?)))
        .map(|(pattern, step)| look(pattern, step))
}

/// Writes a change of a document that is shown in an older version. Gives the document as it was written, in that version.
pub(super) fn write_as_version(
    unit: &mut Unit<'_>,
    change: &Change<'_>,
    alias: &Arc<Alias>,
) -> Result<Option<Document>> {
    let collection = unit.join(&alias.base)?;
    let collection = collection.ok_or_else(|| Error::bug("a version of a collection that is gone"))?;
    check_kept(unit, change, &alias.base, &alias.versions, alias.version)?;
    let current = match change.before {
        None => None,
        Some(before) => match see_newest(unit, &alias.base, before.stored)? {
            Sight::AsStored => Some(before.stored.to_document()),
            Sight::Other(seen) => Some(seen),
            Sight::Gone => return Ok(None),
        },
    };
    let current = current.as_ref().map(Document::as_raw);
    let is_whole = is_whole(change);
    let written = |after: RawDocument<'_>| alias.versions.written(alias.version, current, after, is_whole);
    let after = change.after.map(written).transpose().map_err(|error| told(unit, &alias.base, error))?;
    let before = match (change.before, current) {
        (Some(before), Some(seen)) => Some(Before { stored: before.stored, seen }),
        _ => None,
    };
    // Operators describe the document that was shown, not the one that is stored.
    let form = if let Form::Described(_) = change.form { Form::Difference } else { change.form };
    let after_raw = after.as_ref().map(Document::as_raw);
    let translated = Change { collection: &collection, before, after: after_raw, form, ..*change };
    check_admitted(unit, &translated)?;
    let shaped = door::write_versioned(unit, translated, &|_| false)?;
    let stored = shaped.or(after);
    stored.map(|stored| alias.shown(stored.as_raw())).transpose()
}
