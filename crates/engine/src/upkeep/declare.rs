//! The declaration of patterns: what is checked, and what is made before a pattern is in force.
//!
//! A pattern is put in force while no writer is inside its collections. Writes before do not maintain it, all writes after do.
//! A job then fills the documents that were written before ([`super::fill`]).

use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Declaration, WantedIndex, check_claims, overlap};
use kilim_storage::Durability;

use super::versions::{Way, check_forward};
use crate::catalog::{Collection, not_found};
use crate::engine::Engine;
use crate::fail_point::Moment;
use crate::ids::{IndexId, PatternId};
use crate::index::{Index, PATTERN_PREFIX};
use crate::maintenance::unique_index;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, Registry, has_collation, refuse_change, serves, spec_of};

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
        let overflow = self.ensure_pages(&pattern)?;
        let held: Vec<&Namespace> = pattern.collections().into_iter().chain(&overflow).collect();
        self.with_supporting_indexes(operation, &pattern, &held, |engine, registry| {
            engine.check_declaration(&pattern)?;
            let empty = engine.is_empty(&pattern.target)?
                && pattern.source.as_ref().map_or(Ok(true), |source| engine.is_empty(source))?;
            // A measurement that is not packed is as true as one that is.
            let state = if empty || pattern.kind().bucketing().is_some() {
                PatternState::Active
            } else {
                PatternState::Building
            };
            let pattern = Arc::new(Pattern { state, ..pattern.clone() });
            Ok((registry.with(vec![pattern.clone()])?, pattern))
        })
    }

    /// Builds the supporting indexes of a pattern, then changes the patterns of its database. Between the two a collection
    /// may be dropped or renamed and another get its name: then the indexes are built there too, before the change.
    pub(crate) fn with_supporting_indexes(
        &self,
        operation: &Arc<Operation>,
        pattern: &Pattern,
        held: &[&Namespace],
        change: impl Fn(&Engine, &Registry) -> Result<(Registry, Arc<Pattern>)>,
    ) -> Result<Arc<Pattern>> {
        loop {
            self.build_supporting_indexes(operation, pattern)?;
            self.moments.pass(Moment::IndexesBuilt);
            let database = &pattern.target.database;
            let changed = self.change_patterns(operation, database, held, |engine, registry| {
                let (changed, pattern_in_force) = change(engine, registry)?;
                match engine.missing_indexes(pattern).is_empty() {
                    true => Ok((changed, Some(pattern_in_force))),
                    false => Ok((registry.clone(), None)),
                }
            })?;
            if let Some(pattern) = changed {
                return Ok(pattern);
            }
        }
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
        self.check_definition(pattern)?;
        self.check_versions_first(pattern)?;
        check_forward(pattern)
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
            let message = match self.catalog().alias(source) {
                Some(alias) => format!(
                    "{source} is version {} of {}, an older one: patterns read the newest, so say from: '{}'",
                    alias.version, alias.base, alias.base.collection
                ),
                None => format!("{source} does not exist: create it, or correct 'from'"),
            };
            return Err(Error::user(ErrorCode::PatternSourceMissing, message));
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
            if let Some(index) = target.indexes.iter().find(|index| pattern.hides_expiry(&index.spec)) {
                return Err(pattern.hidden_expiry(&index.spec.name));
            }
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
        self.check_buckets(pattern)?;
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
        if !pattern.declaration.options.create_indexes {
            return Vec::new();
        }
        let mut wanted = pattern.wanted_indexes();
        wanted.retain(|(namespace, wanted)| {
            !self.collection(namespace).is_some_and(|collection| has_serving(&collection, wanted))
        });
        wanted
    }

    /// Builds the supporting indexes that are missing, while others drop, rename and index collections.
    fn build_supporting_indexes(&self, operation: &Arc<Operation>, pattern: &Pattern) -> Result<()> {
        if !pattern.declaration.options.create_indexes {
            return Ok(());
        }
        let mut collections = pattern.collections();
        collections.dedup();
        collections
            .into_iter()
            .try_for_each(|place| self.build_supporting_indexes_of(operation, pattern, place))
    }

    fn build_supporting_indexes_of(
        &self,
        operation: &Arc<Operation>,
        pattern: &Pattern,
        namespace: &Namespace,
    ) -> Result<()> {
        let mut wanted = pattern.wanted_indexes();
        wanted.retain(|(place, _)| *place == namespace);
        while !wanted.is_empty() {
            operation.check()?;
            let Some(collection) = self.collection(namespace) else { return Err(not_found(namespace)) };
            let mut names = (1..)
                .map(|number| format!("{PATTERN_PREFIX}{}_{number}", pattern.declaration.name))
                .filter(|name| collection.index_named(name).is_none());
            let mut specs = Vec::new();
            for (_, wanted) in wanted.iter().filter(|(_, wanted)| !has_serving(&collection, wanted)) {
                let spec = spec_of(&names.next().unwrap_or_default(), wanted);
                specs.push(spec.ok_or_else(|| Error::bug("a pattern wants no sound index"))?);
            }
            if specs.is_empty() {
                return Ok(());
            }
            self.moments.pass(Moment::IndexesNamed);
            // All of them or none: one may meet documents that it has to refuse.
            match self.build_indexes(operation, namespace, specs) {
                // The names and keys were free in the collection that was looked at. Another one has its name now, or
                // somebody has indexed it meanwhile.
                Err(error) if is_index_conflict(&error) && !self.has_same_indexes(namespace, &collection) => {
                }
                built => return built.map(drop),
            }
        }
        Ok(())
    }

    /// Whether a name still stands for a collection with the same indexes.
    fn has_same_indexes(&self, namespace: &Namespace, known: &Collection) -> bool {
        let ids = |collection: &Collection| -> Vec<IndexId> {
            collection.indexes.iter().map(|index| index.id).collect()
        };
        self.collection(namespace).is_some_and(|now| now.id == known.id && ids(&now) == ids(known))
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

/// Whether one of a collection's indexes serves where a pattern wants one.
fn has_serving(collection: &Collection, wanted: &WantedIndex) -> bool {
    collection.indexes.iter().any(|index| serves(index, wanted))
}

/// Whether an index was refused because of another one with its name or key.
fn is_index_conflict(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::IndexOptionsConflict | ErrorCode::IndexKeySpecsConflict)
}
