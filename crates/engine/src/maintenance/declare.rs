//! Patterns declared: what is checked, and what is made before they are in force.
//!
//! A pattern is installed while no writer is inside its collections: every write before saw none of it, every
//! write after keeps it. What was written before is then filled in by a job ([`super::fill`]).

use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Declaration, Kind, Place, Rollup, WantedIndex, check_claims, lies_within, overlap};
use kilim_storage::Durability;

use super::definitions::refuse_change;
use super::sources::unique_index;
use super::{Pattern, PatternId, PatternState};
use crate::catalog::Collection;
use crate::engine::Engine;
use crate::index::{Index, IndexSpec, KeyPart};
use crate::namespace::Namespace;
use crate::operation::Operation;

/// How the names of supporting indexes begin.
const INDEX_PREFIX: &str = "kilim_";

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
    pub(super) fn check_definition(&self, pattern: &Pattern) -> Result<()> {
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
    pub(super) fn check_needs(&self, pattern: &Pattern) -> Result<()> {
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

    pub(super) fn build_supporting_indexes(
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

    /// Refuses a collection with a collation where a pattern is at work.
    pub(crate) fn check_no_patterns(&self, namespace: &Namespace) -> Result<()> {
        match self.patterns().of(&namespace.database).iter().any(|one| one.concerns(namespace)) {
            true => Err(has_collation(namespace)),
            false => Ok(()),
        }
    }

    /// The indexes that a collection needs from its first document on, where patterns outlived the one before it.
    pub(crate) fn indexes_for_patterns(&self, namespace: &Namespace) -> Vec<IndexSpec> {
        let registry = self.patterns();
        let mut specs: Vec<IndexSpec> = Vec::new();
        for pattern in registry.of(&namespace.database).iter().filter(|one| one.concerns(namespace)) {
            if let Some((place, field)) = pattern.found_by()
                && place == namespace
                && field != "_id"
            {
                let mut key = Document::new();
                key.push(field, 1);
                specs.push(IndexSpec { unique: true, ..IndexSpec::over(format!("{field}_1"), key) });
            }
            if !pattern.declaration.options.create_indexes {
                continue;
            }
            let own = pattern.wanted_indexes().into_iter().filter(|(place, _)| *place == namespace);
            for (number, (_, WantedIndex { key, .. })) in own.enumerate() {
                let name = format!("{INDEX_PREFIX}{}_{}", pattern.declaration.name, number + 1);
                specs.push(IndexSpec::over(name, key));
            }
        }
        // Two patterns may want the same.
        let mut seen: Vec<Vec<u8>> = Vec::new();
        specs.retain(|spec| {
            let key = spec.key_document.as_bytes().to_vec();
            let new = !seen.contains(&key);
            seen.push(key);
            new
        });
        specs
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

impl Pattern {
    /// What it does.
    pub fn kind(&self) -> &dyn Kind {
        &*self.declaration.kind
    }

    /// The groups that it keeps, for whoever was told that it keeps some.
    pub(super) fn rollup(&self) -> Result<&Rollup> {
        self.kind().rollup().ok_or_else(|| Error::bug("a pattern without groups changes one"))
    }

    fn collection_at(&self, place: Place) -> Option<&Namespace> {
        match place {
            Place::Target => Some(&self.target),
            Place::Source => self.source.as_ref(),
        }
    }

    /// Where it finds documents by a key that is theirs alone, and the key's field.
    pub(super) fn found_by(&self) -> Option<(&Namespace, &str)> {
        let (place, field) = self.kind().found_by()?;
        Some((self.collection_at(place)?, field))
    }

    /// The same where it is sources that it finds.
    pub(super) fn sources_found_by(&self) -> Option<(&Namespace, &str)> {
        self.found_by().filter(|_| matches!(self.kind().found_by(), Some((Place::Source, _))))
    }

    /// The indexes that it wants, and of which collection.
    pub(super) fn wanted_indexes(&self) -> Vec<(&Namespace, WantedIndex)> {
        let placed = |wanted: WantedIndex| Some((self.collection_at(wanted.place)?, wanted));
        self.kind().indexes().into_iter().filter_map(placed).collect()
    }

    /// Whether an index was made for patterns, and this one works with it.
    pub(super) fn works_with(&self, namespace: &Namespace, index: &Index) -> bool {
        index.spec.name.starts_with(INDEX_PREFIX)
            && self.wanted_indexes().iter().any(|(place, wanted)| {
                *place == namespace && index.spec.key.starts_with(&KeyPart::all_of(wanted.key.as_raw()))
            })
    }

    /// The collections that it writes to and reads from.
    pub fn collections(&self) -> Vec<&Namespace> {
        [Some(&self.target), self.source.as_ref()].into_iter().flatten().collect()
    }

    /// The collection whose documents are visited to fill it.
    pub fn walked(&self) -> &Namespace {
        match (&self.source, self.inserts_parents()) {
            (Some(source), true) => source,
            _ => &self.target,
        }
    }

    /// Whether a document of a rollup collection has nothing but what the pattern gives it.
    pub(super) fn made_alone(&self, document: RawDocument<'_>) -> bool {
        let mut own = self.declaration.maintained_paths();
        own.push("_id".into());
        own.extend(self.kind().key_path().map(Into::into));
        document.iter().all(|(name, _)| own.iter().any(|path| lies_within(path, name)))
    }

    /// Whether groups have documents of their own, made and removed with them.
    pub fn inserts_parents(&self) -> bool {
        self.kind().rollup().is_some_and(Rollup::inserts_parents)
    }
}

/// What a pattern keeps true it keeps true to the byte, and it finds documents by what they hold.
fn has_collation(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::PatternNotReady,
        format!(
            "{namespace} has a collation of its own, under which patterns cannot find documents: patterns work with \
             collections of the simple collation"
        ),
    )
}

/// Refuses a path that a user names and a pattern maintains.
pub(crate) fn check_user_paths(engine: &Engine, namespace: &Namespace, paths: &[Path]) -> Result<()> {
    let Some(patterns) = engine.patterns().concerned(namespace) else { return Ok(()) };
    for pattern in patterns.iter().filter(|pattern| pattern.is_maintained() && pattern.target == *namespace) {
        let maintained = pattern.declaration.maintained_paths();
        for path in paths.iter().map(Path::as_str).filter(|path| !pattern.kind().is_user_path(path)) {
            if maintained.iter().any(|own| kilim_patterns::lies_within(path, own)) {
                return Err(read_only(pattern, path));
            }
        }
    }
    Ok(())
}

pub(super) fn read_only(pattern: &Pattern, path: &str) -> Error {
    let from = match &pattern.source {
        Some(source) => match pattern.kind().path_in_source(path) {
            Some(field) => format!(" from {source}.{field}"),
            None => format!(" from {source}"),
        },
        None => String::new(),
    };
    let way_out = match &pattern.source {
        Some(_) => "Change the source, or dropPattern",
        None => "Change what it is computed from, or dropPattern",
    };
    pattern.refusal(
        ErrorCode::PatternFieldReadOnly,
        Some(path),
        format!(
            "Path '{path}' of {} is maintained by {} '{}'{from}. {way_out}.",
            pattern.target, pattern.declaration.kind_name, pattern.declaration.name
        ),
    )
}
