//! A collection gets other versions: the indexes whose keys differ are built anew beside those that serve, and take their
//! places in the commit with which the versions are in force.

use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::Versions;
use kilim_storage::Transaction;

use super::{Beginning, Build, TURN, published};
use crate::catalog::{Collection, differs};
use crate::engine::Engine;
use crate::ids::IndexId;
use crate::index::{BuildingIndex, Index, IndexSpec};
use crate::namespace::Namespace;
use crate::operation::Operation;

/// Changes the description of the collection within a commit.
pub(crate) type Put<'p> = &'p mut dyn FnMut(&mut Collection, &mut Transaction);

/// Commits the change with all that belongs to it. No writer is inside the collection.
pub(crate) type Commit<'c> = &'c dyn Fn(&Collection, Put<'_>) -> Result<Arc<Collection>>;

/// What a collection becomes together with its indexes.
pub(crate) struct Switch<'c> {
    /// The versions to come.
    pub versions: Versions,
    /// Versions before or after, for which some indexes have other keys.
    pub between: Versions,
    pub commit: Commit<'c>,
}

impl Switch<'_> {
    fn concerns(&self, spec: &IndexSpec) -> bool {
        differs(&self.between, spec)
    }

    /// Commits what was built, if the indexes that are concerned are still those that were replaced.
    pub(super) fn commit(
        self,
        current: &Collection,
        own: &[Arc<BuildingIndex>],
        replaced: &[IndexId],
        put: impl FnOnce(&mut Collection, &mut Transaction),
    ) -> Result<Arc<Collection>> {
        let concerned = current.indexes.iter().filter(|index| self.concerns(&index.spec));
        let mut ids: Vec<IndexId> = concerned.map(|index| index.id).collect();
        let mut expected = replaced.to_vec();
        ids.sort_unstable();
        expected.sort_unstable();
        let is_other = |building: &&Arc<BuildingIndex>| {
            !own.iter().any(|one| Arc::ptr_eq(one, building)) && self.concerns(&building.index.spec)
        };
        if ids != expected || current.building.iter().any(|building| is_other(&building)) {
            return Err(Error::user(
                ErrorCode::ConflictingOperationInProgress,
                format!(
                    "indexes of {} were created or dropped while versions were declared: declare them again",
                    current.namespace
                ),
            ));
        }
        let mut put = Some(put);
        (self.commit)(current, &mut |collection, transaction| {
            if let Some(put) = put.take() {
                put(collection, transaction);
            }
        })
    }
}

impl Engine {
    /// Gives a collection other versions, and indexes that go with them.
    pub(crate) fn switch_versions<'e>(
        &'e self,
        operation: &'e Operation,
        namespace: &'e Namespace,
        make: impl Fn() -> Switch<'e>,
    ) -> Result<()> {
        loop {
            let collection =
                self.collection(namespace).ok_or_else(|| crate::catalog::not_found(namespace))?;
            let switch = make();
            let concerned: Vec<&Arc<Index>> =
                collection.indexes.iter().filter(|index| switch.concerns(&index.spec)).collect();
            if concerned.is_empty() {
                let _held = self.hold_between_statements(operation, &collection)?;
                let current = match self.collection(namespace) {
                    Some(current) if current.id == collection.id => current,
                    _ => continue,
                };
                published(self)?;
                switch.commit(&current, &[], &[], |_, _| {})?.shared.plan_cache.clear();
                return Ok(());
            }
            let specs: Vec<IndexSpec> = concerned.iter().map(|index| index.spec.clone()).collect();
            let replaced = concerned.iter().map(|index| index.id).collect();
            match Build::begin(self, operation, namespace, &specs, replaced, Some(switch))? {
                Beginning::Begun(build) => return build.run_to_end(),
                // Somebody builds or drops one of them.
                Beginning::Elsewhere | Beginning::Nothing { .. } => self.environment().sleep(TURN),
            }
        }
    }
}
