//! The roots of all trees as of one checkpoint.
//!
//! A forest is immutable. Whoever holds it can read its pages, because its epoch is counted in [`Epochs`] until it
//! is dropped, and blocks of a counted epoch are not used again (`blocks.rs`).

use super::{Root, TreeName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Forest {
    pub(crate) epoch: u64,
    pub(crate) roots: BTreeMap<TreeName, Root>,
    epochs: Arc<Epochs>,
}

/// The epochs that are held, and by how many forests.
#[derive(Default)]
pub(crate) struct Epochs(Mutex<BTreeMap<u64, usize>>);

impl Forest {
    pub(crate) fn new(epoch: u64, roots: BTreeMap<TreeName, Root>, epochs: &Arc<Epochs>) -> Forest {
        *epochs.0.lock().entry(epoch).or_default() += 1;
        Forest { epoch, roots, epochs: epochs.clone() }
    }
}

impl Drop for Forest {
    fn drop(&mut self) {
        let mut held = self.epochs.0.lock();
        if let Some(count) = held.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.epoch);
            }
        }
    }
}

impl Epochs {
    /// Ascending.
    pub(crate) fn held(&self) -> Vec<u64> {
        self.0.lock().keys().copied().collect()
    }
}
