//! The patterns in force.
//!
//! Like the catalog an immutable value behind a lock: writers take it whole. On disk each pattern is a document of its
//! database ([`super::definitions`]), written in the commit that changes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};

use kilim_bson::{Document, doc};
use kilim_error::{Error, Result};
use kilim_patterns::{Declaration, in_order};

use super::Behind;
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
    /// Its definition was inserted, not declared: it is not maintained, and nobody knows whether its data is true.
    Unverified,
    /// The same while a check finds out: maintained, so that what is written meanwhile does not count against it.
    OnTrial,
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
    /// A document kept its old value because the new one would have made it too large.
    pub(crate) has_kept: AtomicBool,
    /// When a scrub looked at it last, or it was declared, in milliseconds since 1970.
    pub(crate) looked_at: AtomicI64,
}

impl Counters {
    pub fn to_document(&self, behind: Behind) -> Document {
        doc! {
            "maintained": self.maintained.get() as i64,
            "userWritesReplaced": self.user_writes_replaced.get() as i64,
            "pendingSources": behind.pending_sources as i64,
            "drift": self.drift.get() as i64,
        }
    }
}

/// All patterns, by database, each behind those that it reads from.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    databases: HashMap<String, Arc<[Arc<Pattern>]>>,
    /// Some of them keep readers from what is not filled yet.
    pub(crate) withholds: bool,
}

impl Registry {
    /// The patterns of one database, each behind those that it reads from.
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
        Ok(Registry { databases: ordered, withholds })
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
