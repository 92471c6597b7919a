//! Patterns that store documents in another form than users may ask by: what a user's filter means there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_error::Result;
use kilim_patterns::{Served, overlap};
use kilim_query::expression::Dependencies;

use super::{Pattern, PatternState, Registry};
use crate::index::{Index, PATTERN_PREFIX};
use crate::namespace::Namespace;
use crate::plan::{ReadRequest, Rewritten};

/// Those of one collection, as of one snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Rewriters(Vec<Rewriter>);

#[derive(Debug, Clone)]
struct Rewriter {
    pattern: Arc<Pattern>,
    /// All documents are stored in the pattern's form.
    is_filled: bool,
}

impl Registry {
    /// Those of a collection; none at no cost where there are none. `time`: that of the snapshot that is read.
    pub(crate) fn rewriters(&self, namespace: &Namespace, time: u64) -> Option<Rewriters> {
        if !self.rewrites {
            return None;
        }
        let concerned = |pattern: &&Arc<Pattern>| pattern.target == *namespace && pattern.kind().rewrites();
        let of = |pattern: &Arc<Pattern>| Rewriter {
            pattern: pattern.clone(),
            is_filled: pattern.is_filled_at(time),
        };
        let found: Vec<Rewriter> = self.of(&namespace.database).iter().filter(concerned).map(of).collect();
        (!found.is_empty()).then_some(Rewriters(found))
    }
}

impl Rewriters {
    /// Has a request ask for what its filter means in the form that is stored.
    pub(crate) fn mean(&self, request: &mut ReadRequest) -> Result<()> {
        for Rewriter { pattern, is_filled } in &self.0 {
            let kind = pattern.kind();
            let sort = request.sort.as_ref().and_then(|sort| sort.with_pairs(|path| kind.sorts_by(path)));
            if sort.is_some() {
                request.sort = sort;
            }
            if let Some(meant) = kind.meaning(&request.filter, *is_filled)? {
                request.rewritten.push(Rewritten::of(
                    &pattern.declaration.name,
                    &request.filter,
                    &meant,
                    None,
                ));
                request.filter = Arc::new(meant);
            }
        }
        Ok(())
    }

    /// Has a request ask for the same in words that the pattern's index knows, where no index of a user's knows those
    /// that it has.
    pub(crate) fn serve(&self, request: &mut ReadRequest, indexes: &[Arc<Index>]) {
        for Rewriter { pattern, .. } in self.0.iter().filter(|one| one.is_filled) {
            let own = format!("{PATTERN_PREFIX}{}_", pattern.declaration.name);
            let served = pattern.kind().served(&request.filter);
            let words = match &served {
                Some(Served::Instead(words) | Served::AsItIs(words)) => words,
                None => continue,
            };
            let name = &pattern.declaration.name;
            request.rewritten.push(Rewritten::of(name, &request.filter, words, Some(&own)));
            let is_better_served = || {
                let mut needed = Dependencies::default();
                request.filter.dependencies(&mut needed);
                let paths = pattern.declaration.maintained_paths();
                let is_asked = |path: &str| {
                    needed.fields.iter().any(|field| **field == *path)
                        && paths.iter().any(|own| overlap(own, path))
                };
                indexes.iter().any(|index| {
                    !index.spec.name.starts_with(&own)
                        && !index.spec.hidden
                        && index.spec.key.first().is_some_and(|part| is_asked(part.path.as_str()))
                })
            };
            if let Some(Served::Instead(filter)) = served
                && !is_better_served()
            {
                request.filter = Arc::new(filter);
            }
        }
    }
}

impl Pattern {
    /// Whether all documents of a snapshot have what it maintains.
    pub(crate) fn is_filled_at(&self, time: u64) -> bool {
        self.state == PatternState::Active && self.counters.active_since.load(Ordering::Relaxed) <= time
    }
}
