//! The patterns in force.
//!
//! Like the catalog an immutable value behind a lock: writers take it whole. On disk each pattern is one document in
//! `meta`, written in the commit that changes it.

use std::collections::HashMap;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, Result, StorageError};
use kilim_patterns::{Declaration, in_order};
use kilim_storage::{Direction, Snapshot, Space};

use crate::layout;
use crate::metrics::Counter;
use crate::namespace::Namespace;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PatternId(pub u32);

/// A pattern in force.
#[derive(Debug, Clone)]
pub struct Pattern {
    pub id: PatternId,
    /// The collection whose fields it maintains.
    pub target: Namespace,
    /// The collection that it reads from, if it is another document's fields that it maintains from.
    pub source: Option<Namespace>,
    pub declaration: Arc<Declaration>,
    pub state: PatternState,
    pub counters: Arc<Counters>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternState {
    /// Maintained, and documents from before are being filled.
    Building,
    Active,
    /// Not maintained: its fields stay as they are.
    Paused,
    /// Documents were found that are not as they should be.
    Suspect,
    /// Why it could not be built.
    Failed(String),
}

/// What a pattern did since the server started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Documents written for it.
    pub maintained: Counter,
    /// Users' values that gave way.
    pub user_writes_replaced: Counter,
    /// Documents that checks found wrong.
    pub drift: Counter,
}

/// All patterns, by database, each behind those that it reads from.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    databases: HashMap<String, Arc<[Arc<Pattern>]>>,
}

impl Registry {
    pub(crate) fn load(snapshot: &Snapshot) -> Result<Registry> {
        let mut patterns = Vec::new();
        let (lower, upper) = ([layout::PATTERN_TAG], [layout::PATTERN_TAG + 1]);
        let bounds = (std::ops::Bound::Included(&lower[..]), std::ops::Bound::Excluded(&upper[..]));
        for entry in snapshot.scan(Space::Meta, bounds.0, bounds.1, Direction::Forward) {
            let (key, value) = entry?;
            let pattern = Pattern::decode(&key, &value)
                .ok_or_else(|| StorageError::Corrupt("a pattern in the catalog is unreadable".to_owned()))?;
            patterns.push(Arc::new(pattern));
        }
        Registry::default().with(patterns)
    }

    /// The patterns of one database, each behind those that it reads from.
    pub fn of(&self, database: &str) -> &[Arc<Pattern>] {
        self.databases.get(database).map_or(&[], |patterns| patterns)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pattern>> {
        self.databases.values().flat_map(|patterns| patterns.iter())
    }

    pub fn find(&self, target: &Namespace, name: &str) -> Option<&Arc<Pattern>> {
        let is = |pattern: &&Arc<Pattern>| pattern.target == *target && *pattern.declaration.name == *name;
        self.of(&target.database).iter().find(is)
    }

    /// The patterns that a change in a collection concerns; none at no cost where there are none.
    pub fn concerned(&self, namespace: &Namespace) -> Option<Arc<[Arc<Pattern>]>> {
        if self.databases.is_empty() {
            return None;
        }
        let patterns = self.databases.get(&namespace.database)?;
        patterns.iter().any(|pattern| pattern.concerns(namespace)).then(|| patterns.clone())
    }

    /// With these instead of those of the same ids. Refuses a circle.
    pub fn with(&self, changed: Vec<Arc<Pattern>>) -> Result<Registry> {
        let ids: Vec<PatternId> = changed.iter().map(|pattern| pattern.id).collect();
        let kept = self.iter().filter(|pattern| !ids.contains(&pattern.id)).cloned();
        Registry::of_all(kept.chain(changed).collect())
    }

    pub fn without(&self, ids: &[PatternId]) -> Result<Registry> {
        Registry::of_all(self.iter().filter(|pattern| !ids.contains(&pattern.id)).cloned().collect())
    }

    fn of_all(patterns: Vec<Arc<Pattern>>) -> Result<Registry> {
        let mut databases: HashMap<String, Vec<Arc<Pattern>>> = HashMap::new();
        for pattern in patterns {
            databases.entry(pattern.target.database.clone()).or_default().push(pattern);
        }
        let mut ordered = HashMap::new();
        for (database, patterns) in databases {
            let declarations: Vec<&Declaration> =
                patterns.iter().map(|pattern| &*pattern.declaration).collect();
            let order = in_order(&declarations)?;
            let place = |pattern: &Arc<Pattern>| {
                order.iter().position(|declaration| std::ptr::eq(*declaration, &*pattern.declaration))
            };
            let mut list = patterns.clone();
            list.sort_by_key(|pattern| place(pattern));
            ordered.insert(database, list.into());
        }
        Ok(Registry { databases: ordered })
    }
}

impl Pattern {
    /// Whether a change of a document there may mean work.
    pub fn concerns(&self, namespace: &Namespace) -> bool {
        self.is_maintained() && (self.target == *namespace || self.source.as_ref() == Some(namespace))
    }

    pub fn is_maintained(&self) -> bool {
        matches!(self.state, PatternState::Building | PatternState::Active | PatternState::Suspect)
    }

    pub(crate) fn meta_key(&self) -> Vec<u8> {
        layout::pattern_key(self.id).to_vec()
    }

    /// As it lies in `meta`.
    pub(crate) fn encode(&self) -> Document {
        let mut document = doc! {
            "db": &self.target.database,
            "target": &self.target.collection,
            "definition": self.declaration.to_document(),
            "state": self.state.name(),
        };
        if let PatternState::Failed(reason) = &self.state {
            document.push("reason", reason);
        }
        document
    }

    fn decode(key: &[u8], value: &[u8]) -> Option<Pattern> {
        let id = PatternId(u32::from_be_bytes(key.get(1..5)?.try_into().ok()?));
        let document = RawDocument::parse(value).ok()?;
        let text = |name: &str| document.get(name).and_then(RawValue::as_str);
        let state = match text("state")? {
            "building" => PatternState::Building,
            "active" => PatternState::Active,
            "paused" => PatternState::Paused,
            "suspect" => PatternState::Suspect,
            "failed" => PatternState::Failed(text("reason")?.to_owned()),
            _ => return None,
        };
        let definition = document.get("definition")?.as_document()?;
        let declaration = Declaration::restore(text("target")?, definition).ok()?;
        Pattern::new(id, text("db")?, declaration, state).ok()
    }

    pub fn new(
        id: PatternId,
        database: &str,
        declaration: Declaration,
        state: PatternState,
    ) -> Result<Pattern, Error> {
        let source = declaration.source().map(|source| Namespace::parse(database, source)).transpose()?;
        Ok(Pattern {
            id,
            target: Namespace::parse(database, &declaration.target)?,
            source,
            declaration: Arc::new(declaration),
            state,
            counters: Arc::default(),
        })
    }
}

impl PatternState {
    pub fn name(&self) -> &'static str {
        match self {
            PatternState::Building => "building",
            PatternState::Active => "active",
            PatternState::Paused => "paused",
            PatternState::Suspect => "suspect",
            PatternState::Failed(_) => "failed",
        }
    }
}
