//! The offline check of a database: the store's pages, then what they mean.
//!
//! The store is checked page by page first (`kilim_storage::check`). Then the database is opened over a store that
//! loses its writes, and each collection is compared with its indexes and counts as `validate` does, each pattern
//! with its sources as `verifyPattern` does. What is found is listed by collection.
//!
//! Invariant: the directory is not changed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kilim_error::{Error, Result};
use kilim_storage::{Durability, Options, Space, check};

use super::compact::trees_of;
use super::validate::{Validated, validate};
use crate::catalog::Collection;
use crate::engine::{Engine, EngineOptions};
use crate::upkeep::Part;

/// What a check found.
#[derive(Debug, Default)]
pub struct Checked {
    pub store: check::Report,
    /// In the order of their names.
    pub collections: Vec<CheckedCollection>,
    /// What concerns no collection in particular, a sentence each.
    pub problems: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Debug, Default)]
pub struct CheckedCollection {
    pub namespace: String,
    pub records: u64,
    pub indexes: usize,
    pub patterns: usize,
    pub problems: Vec<String>,
    pub notes: Vec<String>,
}

impl Checked {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.collections.iter().all(|collection| collection.problems.is_empty())
    }
}

/// Problems of one page, tree or pattern that are told; more of them say nothing new.
const TOLD_MAX: usize = 100;

/// Checks the database in a directory that no server uses. An error says that it could not be checked.
pub fn check_directory(dir: &Path, cache_bytes: Option<u64>) -> Result<Checked> {
    let store = check::check(dir)?;
    let mut checked =
        Checked { problems: store.problems.clone(), notes: store.notes.clone(), ..Checked::default() };
    checked.store = store;
    let opened = open(dir, cache_bytes);
    let engine = match opened {
        Ok(engine) => Some(engine),
        // What keeps it from being opened is most likely among the problems already.
        Err(error) if !checked.store.is_clean() => {
            checked.notes.push(format!("collections cannot be compared with their indexes: {error}"));
            None
        }
        Err(error @ Error::Storage(_)) => {
            checked.problems.push(format!("the database cannot be opened: {error}"));
            None
        }
        Err(error) => return Err(error),
    };
    let mut named = Vec::new();
    if let Some(engine) = &engine {
        let (_, catalog) = engine.reading();
        for collection in catalog.iter() {
            named.push((collection.namespace.to_string(), CheckedCollection::of(engine, collection)));
        }
    }
    for tree in &checked.store.trees {
        let owner = engine.as_ref().and_then(|engine| namespace_of(engine, tree.space, tree.prefix));
        let found = owner.and_then(|owner| named.iter_mut().find(|(name, _)| *name == owner));
        let problems = match found {
            Some((_, collection)) => &mut collection.problems,
            None => &mut checked.problems,
        };
        for problem in tree.problems.iter().take(TOLD_MAX) {
            // The comparison met the same page.
            let problem = problem.strip_prefix("storage is corrupt: ").unwrap_or(problem);
            if !problems.iter().any(|known| known == problem) {
                problems.push(problem.to_owned());
            }
        }
    }
    checked.collections = named.into_iter().map(|(_, collection)| collection).collect();
    if let Some(Err(error)) = engine.map(|engine| engine.close()) {
        checked.notes.push(format!("the database cannot be closed: {error}"));
    }
    Ok(checked)
}

fn open(dir: &Path, cache_bytes: Option<u64>) -> Result<Arc<Engine>> {
    // What was written is lost, so closing has nothing to put on disk.
    let mut storage = Options { close_within: Duration::ZERO, ..Options::default() };
    if let Some(bytes) = cache_bytes {
        storage.cache_bytes = bytes;
    }
    let store = check::open_to_look(dir, storage.clone())?;
    let options = EngineOptions {
        data: Some(dir.to_owned()),
        durability: Durability::Relaxed,
        storage,
        test_commands: false,
    };
    Engine::over(store, options)
}

/// The collection that a tree belongs to, if it is one's.
fn namespace_of(engine: &Engine, space: Space, prefix: u32) -> Option<String> {
    let catalog = engine.catalog();
    let owns = |collection: &&Arc<Collection>| trees_of(collection).contains(&(space, prefix.to_be_bytes()));
    catalog.iter().find(owns).map(|collection| collection.namespace.to_string())
}

impl CheckedCollection {
    /// What is wrong with a collection. That one of them cannot be read is found, and ends nothing.
    fn of(engine: &Engine, collection: &Collection) -> CheckedCollection {
        let operation = engine.operations.start(0);
        let found = validate(engine, collection, &engine.store.snapshot(), &operation);
        let found = found.unwrap_or_else(|error| Validated {
            errors: vec![format!("its records cannot be compared with their indexes: {error}")],
            ..Validated::default()
        });
        let mut checked = CheckedCollection {
            namespace: collection.namespace.to_string(),
            records: found.records,
            indexes: collection.indexes.len(),
            notes: found.warnings,
            ..CheckedCollection::default()
        };
        // A validator can be younger than the documents, so these are no damage.
        let (notes, problems): (Vec<_>, Vec<_>) =
            found.errors.into_iter().partition(|error| error.contains("not compliant with"));
        checked.notes.extend(notes);
        checked.problems = problems;
        let patterns = engine.patterns();
        for pattern in patterns.iter().filter(|pattern| pattern.target == collection.namespace) {
            checked.patterns += 1;
            let name = &pattern.declaration.name;
            match engine.verify_pattern(&operation, pattern, Part::default(), 3) {
                Ok(found) if found.wrong == 0 => {}
                Ok(found) => checked.problems.push(format!(
                    "pattern {name}: {} of {} documents are not what their sources say, for example _id {}",
                    found.wrong,
                    found.checked,
                    found
                        .examples
                        .first()
                        .and_then(|example| example.get("_id"))
                        .map_or_else(|| "unknown".to_owned(), |id| format!("{:?}", id.to_value())),
                )),
                Err(error @ Error::Storage(_)) => {
                    checked.problems.push(format!("pattern {name} cannot be compared: {error}"))
                }
                // It is paused, or being filled.
                Err(error) => checked.notes.push(format!("pattern {name} was not compared: {error}")),
            }
        }
        checked
    }
}
