//! Patterns declared: what is checked, and what is made before they are in force.
//!
//! A pattern is installed while no writer is inside its collections: every write before saw none of it, every
//! write after keeps it. What was written before is then filled in by a job ([`super::fill`]).

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Declaration, WantedIndex, check_claims, overlap};
use kilim_storage::Durability;

use crate::catalog::Collection;
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::index::{Index, IndexSpec, KeyPart};
use crate::maintenance::unique_index;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::INDEX_PREFIX;
use crate::patterns::has_collation;
use crate::patterns::{Pattern, PatternState, refuse_change};

impl Engine {
    /// Declares a pattern. It comes back in force, and building unless there is nothing to build.
    pub fn create_pattern(
        &self,
        operation: &Arc<Operation>,
        database: &str,
        declaration: Declaration,
    ) -> Result<Arc<Pattern>> {
        let id = PatternId(self.next_index_id().0);
        let pattern = Pattern::new(id, database, declaration, PatternState::Building)?;
        self.check_no_view(&pattern.target)?;
        self.check_declaration(&pattern)?;
        self.ensure_collection(&pattern.target)?;
        self.build_supporting_indexes(operation, &pattern)?;
        self.change_patterns(operation, database, &pattern.collections(), |engine, registry| {
            engine.check_declaration(&pattern)?;
            let empty = engine.is_empty(&pattern.target)?
                && pattern.source.as_ref().map_or(Ok(true), |source| engine.is_empty(source))?;
            let state = if empty { PatternState::Active } else { PatternState::Building };
            let pattern = Arc::new(Pattern { state, ..pattern.clone() });
            Ok((registry.with(vec![pattern.clone()])?, pattern))
        })
    }

    /// What can be said against a declaration, without declaring it.
    pub fn check_pattern(&self, database: &str, declaration: Declaration) -> Result<Pattern> {
        let pattern = Pattern::new(PatternId(0), database, declaration, PatternState::Building)?;
        self.check_no_view(&pattern.target)?;
        self.check_declaration(&pattern)?;
        Ok(pattern)
    }

    /// What can be said against a new declaration by looking at the catalog.
    fn check_declaration(&self, pattern: &Pattern) -> Result<()> {
        if self.patterns().find(&pattern.target, &pattern.declaration.name).is_some() {
            return Err(Error::user(
                ErrorCode::PatternAlreadyExists,
                format!(
                    "{} has a pattern '{}' already: drop it, or modify it",
                    pattern.target, pattern.declaration.name
                ),
            ));
        }
        self.check_definition(pattern)
    }

    /// The same for one that may take another's place, that of the same name.
    pub(crate) fn check_definition(&self, pattern: &Pattern) -> Result<()> {
        let registry = self.patterns();
        let declaration = &pattern.declaration;
        if let Some(namespace) = pattern.collections().into_iter().find(|it| it.holds_definitions()) {
            return Err(refuse_change(namespace));
        }
        if let Some(namespace) = pattern
            .collections()
            .into_iter()
            .find(|it| self.collection(it).is_some_and(|collection| collection.collation.is_some()))
        {
            return Err(has_collation(namespace));
        }
        let others: Vec<&Declaration> =
            registry.of(&pattern.target.database).iter().map(|other| &*other.declaration).collect();
        check_claims(declaration, &others)?;
        self.check_chain(pattern)?;
        registry.replacing(Arc::new(pattern.clone()))?;
        if let Some(source) = &pattern.source
            && self.collection(source).is_none()
        {
            return Err(Error::user(
                ErrorCode::PatternSourceMissing,
                format!("{source} does not exist: create it, or correct 'from'"),
            ));
        }
        let target = self.collection(&pattern.target);
        if let Some(target) = &target {
            let maintained = declaration.maintained_paths();
            let over = |index: &&Arc<Index>| {
                index.spec.unique
                    && index
                        .spec
                        .key
                        .iter()
                        .any(|part| maintained.iter().any(|path| overlap(path, part.path.as_str())))
            };
            if let Some(index) = target.indexes.iter().find(over) {
                return Err(Error::user(
                    ErrorCode::PatternFieldConflict,
                    format!(
                        "the unique index '{}' of {} is over a path that the pattern would maintain: maintenance \
                         cannot fail for a user's write; drop the index, or choose another path",
                        index.spec.name, pattern.target
                    ),
                ));
            }
        }
        self.check_needs(pattern)
    }

    /// Whether its documents can be found.
    pub(crate) fn check_needs(&self, pattern: &Pattern) -> Result<()> {
        match pattern.found_by() {
            Some((namespace, field)) => self.check_found_by(self.collection(namespace), namespace, field),
            None => Ok(()),
        }
    }

    /// Documents are found by a key that is theirs alone.
    fn check_found_by(
        &self,
        collection: Option<Arc<Collection>>,
        namespace: &Namespace,
        field: &str,
    ) -> Result<()> {
        let found = match collection {
            Some(collection) => unique_index(&collection, field).is_some(),
            None => field == "_id",
        };
        if found {
            return Ok(());
        }
        Err(Error::user(
            ErrorCode::PatternNotReady,
            format!(
                "{namespace} has no unique index on '{field}', by which the pattern finds its documents: \
                 createIndex({{{field}: 1}}, {{unique: true}})"
            ),
        ))
    }

    /// The supporting indexes that a pattern wants and does not find. One that begins with their parts serves as well.
    pub fn missing_indexes<'p>(&self, pattern: &'p Pattern) -> Vec<(&'p Namespace, Document)> {
        let mut wanted = match pattern.declaration.options.create_indexes {
            true => pattern.wanted_indexes(),
            false => Vec::new(),
        };
        wanted.retain(|(namespace, WantedIndex { key, exact, .. })| {
            let parts = KeyPart::all_of(key.as_raw());
            let serves = |index: &Arc<Index>| {
                index.spec.key.starts_with(&parts)
                    && (!exact || index.spec.key.len() == parts.len())
                    && !index.spec.sparse
                    && !index.spec.hidden
                    && index.spec.partial.is_none()
                    && index.spec.has_plain_keys()
            };
            let collection = self.collection(namespace);
            !collection.is_some_and(|collection| collection.indexes.iter().any(serves))
        });
        wanted.into_iter().map(|(namespace, wanted)| (namespace, wanted.key)).collect()
    }

    pub(crate) fn build_supporting_indexes(
        &self,
        operation: &Arc<Operation>,
        pattern: &Pattern,
    ) -> Result<()> {
        for (namespace, key) in self.missing_indexes(pattern) {
            let taken = |name: &String| {
                self.collection(namespace).is_some_and(|collection| collection.index_named(name).is_some())
            };
            let mut names =
                (1..).map(|number| format!("{INDEX_PREFIX}{}_{number}", pattern.declaration.name));
            let name = names.find(|name| !taken(name)).unwrap_or_default();
            self.build_indexes(operation, namespace, vec![IndexSpec::over(name, key)])?;
        }
        Ok(())
    }

    /// The pattern of that name.
    pub fn pattern(&self, target: &Namespace, name: &str) -> Result<Arc<Pattern>> {
        self.patterns().find(target, name).cloned().ok_or_else(|| {
            let message = format!("{target} has no pattern '{name}': listPatterns shows those it has");
            Error::user(ErrorCode::PatternNotFound, message)
        })
    }

    /// Whether nothing is in a collection that the caller holds.
    fn is_empty(&self, namespace: &Namespace) -> Result<bool> {
        match self.collection(namespace) {
            None => Ok(true),
            Some(collection) => {
                // Writers let go of a collection when their commits are queued, which is before they are published.
                self.store.settle(Durability::Relaxed)?;
                let counter = collection.home().counts(&self.store.snapshot())?;
                Ok(counter.count == 0)
            }
        }
    }
}
