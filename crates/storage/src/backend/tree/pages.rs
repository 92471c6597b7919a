//! The pages of a state, for a check of those that are on disk.

use super::TreeView;
use crate::check::check_tree;
use crate::tree::TreeName;
use kilim_error::Result;

impl TreeView {
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeName> {
        self.forest.roots.keys().copied()
    }

    /// What is wrong with a tree's pages on disk. The view keeps them from being used again meanwhile.
    pub(crate) fn check_tree(
        &self,
        name: TreeName,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<String>> {
        match self.forest.roots.get(&name) {
            Some(root) => check_tree(&self.file, name, root, pace),
            None => Ok(Vec::new()),
        }
    }
}
