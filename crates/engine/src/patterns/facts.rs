//! What a pattern works on: its collections, the indexes it wants, the fields it keeps.

use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::declaration::WhileBuilding;
use kilim_patterns::{Kind, Place, Rollup, WantedIndex, lies_within, overlap};

use super::{Pattern, PatternState, Registry};
use crate::index::{Index, IndexSpec, KeyPart};
use crate::namespace::Namespace;

/// How the names of supporting indexes begin.
pub(crate) const INDEX_PREFIX: &str = "kilim_";

/// How far the documents of a pattern are behind their sources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behind {
    /// Sources whose changes are still on their way.
    pub pending_sources: u64,
    /// How long the oldest of them has been.
    pub lag_millis: u64,
}

impl Registry {
    /// Refuses a unique index over what a pattern maintains: maintenance cannot fail for a user's write.
    pub(crate) fn check_new_indexes(&self, namespace: &Namespace, specs: &[IndexSpec]) -> Result<()> {
        if namespace.holds_definitions() {
            return Err(refuse_change(namespace));
        }
        for pattern in self.of(&namespace.database).iter().filter(|one| one.target == *namespace) {
            let paths = pattern.declaration.maintained_paths();
            let maintained = |path: &str| paths.iter().any(|own| overlap(own, path));
            let over =
                |spec: &&IndexSpec| spec.unique && spec.key.iter().any(|part| maintained(part.path.as_str()));
            if let Some(spec) = specs.iter().find(over) {
                return Err(Error::user(
                    ErrorCode::PatternFieldConflict,
                    format!(
                        "the index '{}' of {namespace} cannot be unique: it is over a path that {} '{}' maintains, \
                         and maintenance may not fail. Leave out 'unique', or index other fields",
                        spec.name, pattern.declaration.kind_name, pattern.declaration.name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Refuses a collection with a collation where a pattern is at work.
    pub(crate) fn check_no_patterns(&self, namespace: &Namespace) -> Result<()> {
        match self.of(&namespace.database).iter().any(|one| one.concerns(namespace)) {
            true => Err(has_collation(namespace)),
            false => Ok(()),
        }
    }

    /// The indexes that a collection needs from its first document on, where patterns outlived the one before it.
    pub(crate) fn indexes_for_patterns(&self, namespace: &Namespace) -> Vec<IndexSpec> {
        let mut specs: Vec<IndexSpec> = Vec::new();
        for pattern in self.of(&namespace.database).iter().filter(|one| one.concerns(namespace)) {
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
}

impl Pattern {
    /// What it does.
    pub fn kind(&self) -> &dyn Kind {
        &*self.declaration.kind
    }

    /// The groups that it keeps, for whoever was told that it keeps some.
    pub(crate) fn rollup(&self) -> Result<&Rollup> {
        self.kind().rollup().ok_or_else(|| Error::bug("a pattern without groups changes one"))
    }

    fn collection_at(&self, place: Place) -> Option<&Namespace> {
        match place {
            Place::Target => Some(&self.target),
            Place::Source => self.source.as_ref(),
        }
    }

    /// Where it finds documents by a key that is theirs alone, and the key's field.
    pub(crate) fn found_by(&self) -> Option<(&Namespace, &str)> {
        let (place, field) = self.kind().found_by()?;
        Some((self.collection_at(place)?, field))
    }

    /// The same where it is sources that it finds.
    pub(crate) fn sources_found_by(&self) -> Option<(&Namespace, &str)> {
        self.found_by().filter(|_| matches!(self.kind().found_by(), Some((Place::Source, _))))
    }

    /// The indexes that it wants, and of which collection.
    pub(crate) fn wanted_indexes(&self) -> Vec<(&Namespace, WantedIndex)> {
        let placed = |wanted: WantedIndex| Some((self.collection_at(wanted.place)?, wanted));
        self.kind().indexes().into_iter().filter_map(placed).collect()
    }

    /// Whether an index was made for patterns, and this one works with it.
    pub(crate) fn works_with(&self, namespace: &Namespace, index: &Index) -> bool {
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
    pub(crate) fn made_alone(&self, document: RawDocument<'_>) -> bool {
        let mut own = self.declaration.maintained_paths();
        own.push("_id".into());
        own.extend(self.kind().key_path().map(Into::into));
        document.iter().all(|(name, _)| own.iter().any(|path| lies_within(path, name)))
    }

    /// Whether groups have documents of their own, made and removed with them.
    pub fn inserts_parents(&self) -> bool {
        self.kind().rollup().is_some_and(Rollup::inserts_parents)
    }

    /// Whether readers are kept from what it has not filled yet.
    pub(crate) fn withholds(&self) -> bool {
        self.state.is_unfinished() && self.declaration.options.while_building == WhileBuilding::Fail
    }

    /// The pattern in a few words.
    pub fn summary(&self) -> Document {
        doc! {
            "name": &*self.declaration.name,
            "kind": self.declaration.kind_name,
            "state": self.shown_state(),
            "fields": self.fields(),
        }
    }

    pub(crate) fn fields(&self) -> Vec<Value> {
        self.declaration.maintained_paths().iter().map(|path| Value::from(&**path)).collect()
    }

    /// Its state, also where a write has made it suspect and its document does not tell yet.
    pub fn shown_state(&self) -> &'static str {
        match &self.state {
            PatternState::Active if self.counters.has_kept.load(Ordering::Relaxed) => {
                PatternState::Suspect.name()
            }
            state => state.name(),
        }
    }
}

/// What a pattern keeps true it keeps true to the byte, and it finds documents by what they hold.
pub(crate) fn has_collation(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::PatternNotReady,
        format!(
            "{namespace} has a collation of its own, under which patterns cannot find documents: patterns work with \
             collections of the simple collation"
        ),
    )
}

/// Definitions are changed by commands.
pub(crate) fn refuse_change(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::CollectionOwnedByPattern,
        format!(
            "{namespace} holds the definitions of patterns: modifyPattern, pausePattern and resumePattern change them, \
             dropPattern ends them"
        ),
    )
}
