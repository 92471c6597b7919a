//! The patterns in force.
//!
//! Like the catalog an immutable value behind a lock: writers take it whole. On disk each pattern is a document of its
//! database ([`super::definitions`]), written in the commit that changes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use kilim_bson::{Document, doc};
use kilim_error::{Error, Result};
use kilim_patterns::{Declaration, in_order};

use super::PendingSources;
pub use crate::ids::PatternId;
use crate::metrics::Counter;
use crate::namespace::Namespace;

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
    /// Filled, and being checked as a whole before it counts as active.
    Verifying,
    Active,
    /// Not maintained: its fields stay as they are.
    Paused,
    /// Documents were found that are not as they should be.
    Suspect,
    /// Why its filling ended early. What is written is maintained all the same, so that filling can go on.
    Failed(String),
    /// Its definition was inserted, not declared. It is not maintained, and its data has not been checked.
    Unverified,
    /// Its definition was inserted, and its data is being checked. It is maintained meanwhile, so that writes do not make it
    /// wrong.
    OnTrial,
}

/// What a pattern did since the server started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Documents written for it.
    pub maintained: Counter,
    /// Users' values that were overwritten.
    pub user_writes_replaced: Counter,
    /// Documents that checks found wrong.
    pub drift: Counter,
    /// A document kept its old value because the new one would have made it too large.
    pub(crate) has_kept: AtomicBool,
    /// When a scrub last checked it, or when it was declared, in milliseconds since 1970.
    pub(crate) looked_at: AtomicI64,
    /// The commit time from which on all its documents are as it says; zero where they were when the server started.
    pub(crate) active_since: AtomicU64,
}

impl Counters {
    pub fn to_document(&self, pending: PendingSources) -> Document {
        doc! {
            "maintained": self.maintained.get() as i64,
            "userWritesReplaced": self.user_writes_replaced.get() as i64,
            "pendingSources": pending.count as i64,
            "drift": self.drift.get() as i64,
        }
    }
}

/// All patterns, by database. Each comes after those that it reads from.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    databases: HashMap<String, Arc<[Arc<Pattern>]>>,
    /// Some of them refuse readers of fields that are not filled yet (`whileBuilding: "fail"`).
    pub(crate) withholds: bool,
    /// Some of them store documents in another form than users may ask by.
    pub(super) rewrites: bool,
}

impl Registry {
    /// The patterns of one database. Each comes after those that it reads from.
    pub fn of(&self, database: &str) -> &[Arc<Pattern>] {
        self.databases.get(database).map_or(&[], |patterns| patterns)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pattern>> {
        self.databases.values().flat_map(|patterns| patterns.iter())
    }

    pub fn by_id(&self, id: PatternId) -> Option<&Arc<Pattern>> {
        self.iter().find(|pattern| pattern.id == id)
    }

    pub fn find(&self, target: &Namespace, name: &str) -> Option<&Arc<Pattern>> {
        let is = |pattern: &&Arc<Pattern>| pattern.target == *target && *pattern.declaration.name == *name;
        self.of(&target.database).iter().find(is)
    }

    /// The patterns of the database, if one of them concerns this collection.
    pub fn concerned(&self, namespace: &Namespace) -> Option<Arc<[Arc<Pattern>]>> {
        if self.databases.is_empty() {
            return None;
        }
        let patterns = self.databases.get(&namespace.database)?;
        patterns.iter().any(|pattern| pattern.concerns(namespace)).then(|| patterns.clone())
    }

    /// The patterns of the database, if one of them may make something of a change in this collection. One that says how
    /// documents are packed makes nothing of it.
    pub(crate) fn evaluating(&self, namespace: &Namespace) -> Option<Arc<[Arc<Pattern>]>> {
        let patterns = self.concerned(namespace)?;
        let evaluates =
            |pattern: &Arc<Pattern>| pattern.kind().bucketing().is_none() && pattern.concerns(namespace);
        patterns.iter().any(evaluates).then_some(patterns)
    }

    /// The trees of a collection that keep ancestors, whatever the scope of a node, and had filled them at a commit time.
    pub(crate) fn with_ancestors(&self, namespace: &Namespace, time: u64) -> Vec<Arc<Pattern>> {
        let has_ancestors = |pattern: &&Arc<Pattern>| {
            let tree = pattern.kind().tree().filter(|_| pattern.target == *namespace);
            tree.is_some_and(|tree| tree.ancestors_path().is_some() && tree.scope_path().is_none())
                && pattern.is_filled_at(time)
        };
        self.of(&namespace.database).iter().filter(has_ancestors).cloned().collect()
    }

    /// With these instead of those of the same ids. Refuses a circle.
    pub fn with(&self, changed: Vec<Arc<Pattern>>) -> Result<Registry> {
        let ids: Vec<PatternId> = changed.iter().map(|pattern| pattern.id).collect();
        let kept = self.iter().filter(|pattern| !ids.contains(&pattern.id)).cloned();
        Registry::of_all(kept.chain(changed).collect())
    }

    /// With this in the place of the one of the same name, or beside the others.
    pub fn replacing(&self, pattern: Arc<Pattern>) -> Result<Registry> {
        let same = |other: &&Arc<Pattern>| {
            other.target == pattern.target && other.declaration.name == pattern.declaration.name
        };
        let kept = self.iter().filter(|other| !same(other)).cloned();
        Registry::of_all(kept.chain([pattern.clone()]).collect())
    }

    pub fn without(&self, ids: &[PatternId]) -> Result<Registry> {
        Registry::of_all(self.iter().filter(|pattern| !ids.contains(&pattern.id)).cloned().collect())
    }

    fn of_all(patterns: Vec<Arc<Pattern>>) -> Result<Registry> {
        let mut databases: HashMap<String, Vec<Arc<Pattern>>> = HashMap::new();
        let withholds = patterns.iter().any(|pattern| pattern.withholds());
        let rewrites = patterns.iter().any(|pattern| pattern.kind().rewrites());
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
        Ok(Registry { databases: ordered, withholds, rewrites })
    }
}

impl Pattern {
    /// Whether a change of a document there may mean work.
    pub fn concerns(&self, namespace: &Namespace) -> bool {
        self.is_maintained() && (self.target == *namespace || self.source.as_ref() == Some(namespace))
    }

    pub fn is_maintained(&self) -> bool {
        !matches!(self.state, PatternState::Paused | PatternState::Unverified)
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
    /// Whether documents from before may still lack its fields.
    pub fn is_unfinished(&self) -> bool {
        matches!(self, PatternState::Building | PatternState::Verifying | PatternState::Failed(_))
    }

    pub fn name(&self) -> &'static str {
        match self {
            PatternState::Building => "building",
            PatternState::Verifying => "verifying",
            PatternState::Active => "active",
            PatternState::Paused => "paused",
            PatternState::Suspect => "suspect",
            PatternState::Failed(_) => "failed",
            PatternState::Unverified | PatternState::OnTrial => "unverified",
        }
    }
}
