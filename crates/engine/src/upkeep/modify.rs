//! Patterns modified: another definition in the place of the old one.
//!
//! New options take effect while the pattern goes on. If what it maintains changes, it is filled again under a new id, like
//! a new pattern: all documents are visited, and those with wrong fields are written. Fields that it no longer maintains
//! stay as plain fields.

use std::sync::Arc;

use kilim_bson::RawDocument;
use kilim_error::Result;

use super::buckets::check_no_buckets;
use super::pages::check_no_pages;
use super::states::current;
use super::states::not_ready;
use super::versions::check_no_version;
use crate::engine::Engine;
use crate::ids::PatternId;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, Registry};

impl Engine {
    /// Merges changes into a pattern's definition. Gives the pattern in force, which is building if it must be filled again.
    pub fn modify_pattern(
        &self,
        operation: &Arc<Operation>,
        pattern: &Arc<Pattern>,
        changes: RawDocument<'_>,
    ) -> Result<Arc<Pattern>> {
        let declaration = pattern.declaration.modified(changes)?;
        let rebuilds = !declaration.maintains_alike(&pattern.declaration);
        if rebuilds {
            check_no_version(
                pattern,
                "modified but for 'background': complete it or roll it back, then declare another",
            )?;
            check_no_pages(pattern, "modified: drop it, which folds arrays back, and declare another")?;
        }
        if let (Some(now), Some(then)) = (pattern.kind().bucketing(), declaration.kind.bucketing())
            && now.unique != then.unique
        {
            check_no_buckets(pattern, "given another 'unique': drop it, and declare another")?;
        }
        let modified = Pattern {
            counters: pattern.counters.clone(),
            ..Pattern::new(pattern.id, &pattern.target.database, declaration, pattern.state.clone())?
        };
        let is_unverified = pattern.state == PatternState::Unverified;
        if !is_unverified {
            self.check_definition(&modified)?;
        }
        let id = PatternId(self.next_index_id().0);
        let held: Vec<&Namespace> = match rebuilds {
            true => pattern.collections().into_iter().chain(modified.collections()).collect(),
            false => Vec::new(),
        };
        let change = |engine: &Engine, registry: &Registry| {
            let now = current(registry, pattern)?;
            if !Arc::ptr_eq(&now.declaration, &pattern.declaration) {
                return Err(not_ready(pattern, "was modified meanwhile: look again"));
            }
            let filled_anew = rebuilds && now.is_maintained();
            let state = if filled_anew { PatternState::Building } else { now.state.clone() };
            let id = if filled_anew { id } else { now.id };
            let modified = Arc::new(Pattern { id, state, ..modified.clone() });
            if modified.is_maintained() {
                engine.check_definition(&modified)?;
            }
            Ok((registry.replacing(modified.clone())?, modified))
        };
        let modified = match is_unverified {
            true => self.change_patterns(operation, &pattern.target.database, &held, change)?,
            false => self.with_supporting_indexes(operation, &modified, &held, change)?,
        };
        if modified.id != pattern.id {
            self.kill_jobs_of(pattern.id);
        }
        if rebuilds {
            self.drop_supporting_index(operation, pattern)?;
        }
        Ok(modified)
    }
}
