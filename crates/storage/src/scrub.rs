//! A check of the pages of a store that is open, tree by tree, beside readers and writers.
//!
//! Pages are read from disk and not from the cache, since what is asked is whether the disk still has them. A check
//! holds the state that it began with for one tree only, so that little space waits for it.

use crate::backend::View;
use crate::space::Space;
use crate::store::Store;
use crate::tree::TreeName;
use kilim_error::Result;

impl Store {
    /// The trees on disk: a space, and the first four bytes of the keys in it as a number.
    pub fn trees(&self) -> Vec<(Space, u32)> {
        match &self.shared().published().view {
            View::Tree(view) => view
                .trees()
                .filter_map(|name| Some((*Space::ALL.get(usize::from(name.space))?, name.prefix)))
                .collect(),
            View::Memory(_) => Vec::new(),
        }
    }

    /// What is wrong with the pages of one tree, a sentence each. `pace` is told the bytes of each page before it is
    /// read: it can wait there, and an error of it ends the check.
    pub fn check_tree(
        &self,
        space: Space,
        prefix: u32,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<String>> {
        let published = self.shared().published();
        match &published.view {
            View::Tree(view) => view.check_tree(TreeName { space: space as u8, prefix }, pace),
            View::Memory(_) => Ok(Vec::new()),
        }
    }
}
