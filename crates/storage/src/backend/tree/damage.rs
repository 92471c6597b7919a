//! Trees that cannot be merged, because a page of theirs cannot be read.
//!
//! Their rows stay in memory and in the journal (`checkpoint.rs`), so these must not grow: writes to such a tree are
//! refused with what is wrong with it. All other trees are written as always. A checkpoint tries again after a while,
//! since a disk that failed once may answer later; a drop of the tree ends the matter.

use super::Frozen;
use crate::environment::Environment;
use crate::space::Write;
use crate::tree::{META, TreeName};
use kilim_error::{Result, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// From one try to merge a damaged tree to the next, where nothing else asks for a checkpoint.
const RETRY_AFTER: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Damage {
    trees: BTreeMap<TreeName, StorageError>,
    /// What their rows take in the active tables.
    bytes: usize,
    noted: Option<Instant>,
}

impl Damage {
    /// Takes over what a checkpoint found, and what it put into the active tables again. Trees that it had nothing for
    /// stay, unless they are gone.
    pub(super) fn note(
        &mut self,
        found: BTreeMap<TreeName, StorageError>,
        bytes: usize,
        frozen: &Frozen,
        dead: &BTreeSet<TreeName>,
        now: Instant,
    ) {
        for (name, error) in &found {
            if !self.trees.contains_key(name) {
                tracing::error!(%error, tree = %name, "a tree is damaged and takes no more writes");
            }
        }
        let touched = |name: &TreeName| dead.contains(name) || frozen.tables.rows_of(*name).next().is_some();
        self.trees.retain(|name, _| !touched(name));
        self.bytes = bytes;
        self.trees.extend(found);
        self.noted = Some(now);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is time to try again.
    pub(super) fn is_due(&self, environment: &Environment) -> bool {
        !self.trees.is_empty() && self.noted.is_none_or(|noted| environment.since(noted) > RETRY_AFTER)
    }

    /// Refuses writes to damaged trees. Every commit may write counters, which are in `Meta`.
    pub(super) fn check(&self, writes: &[Write]) -> Result<()> {
        if self.trees.is_empty() {
            return Ok(());
        }
        let names = writes.iter().map(|write| TreeName::of(write.space, &write.key));
        match names.chain([META]).find_map(|name| self.trees.get(&name)) {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    }

    pub(super) fn check_none(&self) -> Result<()> {
        match self.trees.values().next() {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    }
}
