//! The declaration of patterns: what is checked, and what is made before a pattern is in force.
//!
//! A pattern is put in force while no writer is inside its collections. Writes before do not maintain it, all writes after do.
//! A job then fills the documents that were written before ([`super::fill`]).

use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Declaration, WantedIndex, check_claims, overlap};
use kilim_storage::Durability;

use super::versions::Way;
use crate::catalog::Collection;
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::index::{Index, PATTERN_PREFIX};
use crate::maintenance::unique_index;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, has_collation, refuse_change, serves, spec_of};

impl Engine {
    /// Declares a pattern. Gives the pattern in force, which is building unless its collections are empty.
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
        if pattern.kind().version_step().is_some() {
            return self.put_version_in_force(operation, &pattern, Way::Forward, &|engine, registry| {
                engine.check_declaration(&pattern)?;
                Ok(registry.clone())
            });
        }
        self.build_supporting_indexes(operation, &pattern)?;
        let overflow = self.ensure_pages(&pattern)?;
        let held: Vec<&Namespace> = pattern.collections().into_iter().chain(&overflow).collect();
        self.change_patterns(operation, database, &held, |engine, registry| {
            engine.check_declaration(&pattern)?;
            let empty = engine.is_empty(&pattern.target)?
                && pattern.source.as_ref().map_or(Ok(true), |source| engine.is_empty(source))?;
            let state = if empty { PatternState::Active } else { PatternState::Building };
            let pattern = Arc::new(Pattern { state, ..pattern.clone() });
            Ok((registry.with(vec![pattern.clone()])?, pattern))
        })
    }

    /// Checks a declaration without declaring it.
    pub fn check_pattern(&self, database: &str, declaration: Declaration) -> Result<Pattern> {
        let pattern = Pattern::new(PatternId(0), database, declaration, PatternState::Building)?;
        self.check_no_view(&pattern.target)?;
        self.check_declaration(&pattern)?;
        Ok(pattern)
    }

    /// Checks a new declaration against the catalog and the other patterns.
    pub(crate) fn check_declaration(&self, pattern: &Pattern) -> Result<()> {
        for namespace in pattern.collections() {
            let series = self.view(namespace).filter(|view| view.time_series.is_some());
            if let Some(view) = series {
                return Err(view.is_no_collection());
            }
            if namespace.of_measurements().is_some() {
                return Err(Error::user(
                    ErrorCode::InvalidNamespace,
                    format!(
                        "{namespace} holds the buckets of a time-series collection, which no pattern is about"
                    ),
                ));
            }
        }
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

    /// Checks a definition that may replace the one of the same name.
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
        if pattern.kind().tree().is_some() && target.as_ref().is_some_and(|target| target.capped.is_some()) {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!(
                    "{} is capped: its oldest documents go, whatever is below them, so it cannot be a tree",
                    pattern.target
                ),
            ));
        }
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
        self.check_unique(pattern)?;
        self.check_versions(pattern)?;
        self.check_pages(pattern)?;
        self.check_needs(pattern)
    }

    /// Refuses unique indexes of a pattern's own over what another maintains.
    fn check_unique(&self, pattern: &Pattern) -> Result<()> {
        let registry = self.patterns();
        let others =
            registry.of(&pattern.target.database).iter().filter(|other| other.target == pattern.target);
        let wanted = pattern.wanted_indexes();
        for other in others {
            let maintained = other.declaration.maintained_paths();
            for (_, index) in
                wanted.iter().filter(|(place, wanted)| wanted.is_unique() && **place == pattern.target)
            {
                let is_over = |own: &str| index.key.iter().any(|(path, _)| overlap(own, path));
                if let Some(path) = maintained.iter().find(|own| is_over(own)) {
                    return Err(pattern.refusal(
                        ErrorCode::PatternFieldConflict,
                        Some(path),
                        format!(
                            "a unique index of '{}' would be over '{path}', which {} '{}' maintains, and maintenance may \
                             not fail: index other fields",
                            pattern.declaration.name, other.declaration.kind_name, other.declaration.name
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Refuses a pattern whose documents cannot be found by a unique index.
    pub(crate) fn check_needs(&self, pattern: &Pattern) -> Result<()> {
        match pattern.found_by() {
            Some((namespace, field)) => self.check_found_by(self.collection(namespace), namespace, field),
            None => Ok(()),
        }
    }

    /// Refuses if no unique index is over the field by which documents are found.
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

    /// The supporting indexes that a pattern wants and that do not exist. An index that begins with the wanted parts serves
    /// too.
    pub fn missing_indexes<'p>(&self, pattern: &'p Pattern) -> Vec<(&'p Namespace, WantedIndex)> {
        let mut wanted = match pattern.declaration.options.create_indexes {
            true => pattern.wanted_indexes(),
            false => Vec::new(),
        };
        wanted.retain(|(namespace, wanted)| {
            let collection = self.collection(namespace);
            !collection.is_some_and(|collection| collection.indexes.iter().any(|index| serves(index, wanted)))
        });
        wanted
    }

    pub(crate) fn build_supporting_indexes(
        &self,
        operation: &Arc<Operation>,
        pattern: &Pattern,
    ) -> Result<()> {
        let missing = self.missing_indexes(pattern);
        for namespace in pattern.collections() {
            let taken = |name: &String| {
                self.collection(namespace).is_some_and(|collection| collection.index_named(name).is_some())
            };
            let mut names = (1..)
                .map(|number| format!("{PATTERN_PREFIX}{}_{number}", pattern.declaration.name))
                .filter(|name| !taken(name));
            let mut specs = Vec::new();
            for (_, wanted) in missing.iter().filter(|(place, _)| *place == namespace) {
                let spec = spec_of(&names.next().unwrap_or_default(), wanted);
                specs.push(spec.ok_or_else(|| Error::bug("a pattern wants no sound index"))?);
            }
            // All of them or none: one may meet documents that it has to refuse.
            if !specs.is_empty() {
                match self.build_indexes(operation, namespace, specs) {
                    // Somebody else has made the same index under another name meanwhile, or a collection that has one
                    // was given this name.
                    Err(error)
                        if error.code() == ErrorCode::IndexOptionsConflict
                            && !self
                                .missing_indexes(pattern)
                                .iter()
                                .any(|(place, _)| *place == namespace) => {}
                    built => drop(built?),
                }
            }
            if pattern.source.as_ref() == Some(&pattern.target) {
                break;
            }
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

    /// Whether a collection that the caller holds is empty.
    pub(crate) fn is_empty(&self, namespace: &Namespace) -> Result<bool> {
        match self.collection(namespace) {
            None => Ok(true),
            Some(collection) => {
                // Writers release a collection when their commits are queued, which is before they are published.
                self.store.settle(Durability::Relaxed)?;
                let counter = collection.home().counts(&self.store.snapshot())?;
                Ok(counter.count == 0)
            }
        }
    }
}
