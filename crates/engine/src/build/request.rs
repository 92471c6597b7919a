//! Which of the indexes asked for are new.

use kilim_error::{Error, ErrorCode, Result};

use crate::catalog::Collection;
use crate::index::IndexSpec;
use crate::namespace::Namespace;
use kilim_query::text::document as shell_text;

/// Leaves out what exists already; refuses what exists differently.
pub fn new_specs(collection: &Collection, specs: Vec<IndexSpec>) -> Result<Vec<IndexSpec>> {
    let mut new: Vec<IndexSpec> = Vec::new();
    for spec in specs {
        if new.iter().map(|other| same(&spec, other)).collect::<Result<Vec<_>>>()?.contains(&true) {
            return Err(Error::user(
                ErrorCode::OperationFailed,
                format!("Cannot build two identical indexes: {}", spec.name),
            ));
        }
        let existing = collection.indexes.iter().map(|index| &index.spec);
        let building = collection.building.iter().map(|building| &building.index.spec);
        if existing
            .chain(building)
            .try_fold(false, |found, other| same(&spec, other).map(|is| found || is))?
        {
            continue;
        }
        new.push(spec);
    }
    Ok(new)
}

/// Whether the two are one index; an error where they cannot stand side by side.
fn same(spec: &IndexSpec, other: &IndexSpec) -> Result<bool> {
    let same_key = spec.key == other.key;
    let same_partial = match (&spec.partial, &other.partial) {
        // As they were given, or in the filters' own words, in which the order of conditions means nothing. What a filter
        // over buckets was made of has other words than what is read of it after a start.
        (Some((given, filter)), Some((other_given, other_filter))) => {
            given == other_given || filter.to_document() == other_filter.to_document()
        }
        (None, None) => true,
        _ => false,
    };
    let texts = spec.kind.is_text() && other.kind.is_text();
    let same_scope =
        same_key && same_partial && spec.kind.is_one_with(&other.kind) && spec.collation == other.collation;
    let same_options = spec.unique == other.unique && spec.sparse == other.sparse;
    let same_other_options =
        other_options(spec) == other_options(other) && spec.kind.has_options_of(&other.kind);
    if spec.name == other.name {
        return match same_scope && same_options {
            true if !same_other_options => Err(Error::user(
                ErrorCode::IndexOptionsConflict,
                format!(
                    "An equivalent index already exists with the same name but different options. Requested index: \
                     {}, existing index: {}",
                    shell(spec),
                    shell(other)
                ),
            )),
            true => Ok(true),
            false => Err(Error::user(
                ErrorCode::IndexKeySpecsConflict,
                format!(
                    "An existing index has the same name as the requested index. When index names are not specified, \
                     they are auto generated and can cause conflicts. Please refer to our documentation. Requested \
                     index: {}, existing index: {}",
                    shell(spec),
                    shell(other)
                ),
            )),
        };
    }
    match same_scope && same_options {
        true if !same_other_options => Err(Error::user(
            ErrorCode::IndexOptionsConflict,
            format!(
                "An equivalent index already exists with a different name and options. Requested index: {}, \
                 existing index: {}",
                shell(spec),
                shell(other)
            ),
        )),
        true => Err(Error::user(
            ErrorCode::IndexOptionsConflict,
            format!("Index already exists with a different name: {}", other.name),
        )),
        false if texts => Err(Error::user(
            ErrorCode::CannotCreateIndex,
            format!(
                "only one text index per collection allowed, found existing text index \"{}\"",
                other.name
            ),
        )),
        false => Ok(false),
    }
}

/// What may differ between indexes that are one.
fn other_options(spec: &IndexSpec) -> (Option<i32>, bool) {
    (spec.expire_after_seconds, spec.prepare_unique)
}

fn shell(spec: &IndexSpec) -> String {
    shell_text(spec.to_document().as_raw())
}

/// Refuses what no collection could have side by side, before one is made for it.
pub fn check_for_new_collection(namespace: &Namespace, specs: &[IndexSpec]) -> Result<()> {
    for (at, spec) in specs.iter().enumerate() {
        for other in &specs[..at] {
            same(spec, other)?;
        }
    }
    // Beside these it has the one on `_id`.
    check_room(namespace, 1, &specs.iter().filter(|spec| spec.name != "_id_").collect::<Vec<_>>())
}

/// Refuses specs beyond what one collection may have.
pub fn check_index_count(collection: &Collection, added: &[IndexSpec]) -> Result<()> {
    let present = collection.indexes.len() + collection.building.len();
    check_room(&collection.namespace, present, &added.iter().collect::<Vec<_>>())
}

fn check_room(namespace: &Namespace, present: usize, added: &[&IndexSpec]) -> Result<()> {
    match added.get(crate::limits::INDEXES_MAX.saturating_sub(present)) {
        None => Ok(()),
        Some(first) => Err(Error::user(
            ErrorCode::CannotCreateIndex,
            format!(
                "add index fails, too many indexes for {namespace} key:{}",
                shell_text(first.key_document.as_raw())
            ),
        )),
    }
}
