//! How arrays of a collection were divided before a pattern was dropped.
//!
//! A drop folds all arrays back, but states from before it still have the pages. Transactions, reads at an earlier time, and reads
//! that took their snapshot just before the drop are shown them as they were. The next start forgets all of this, because
//! no state from before outlives the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kilim_storage::{CommitTime, Snapshot};
use parking_lot::Mutex;

use super::Collection;
use crate::records::{Home, Paged, Shape};

#[derive(Debug, Default)]
pub(crate) struct OldPages {
    /// States from this commit on need none of them. Readers compare it before they take the lock.
    until: AtomicU64,
    /// By the commit from which on no document is divided so, which grows.
    divisions: Mutex<Vec<(CommitTime, Arc<Paged>)>>,
}

impl OldPages {
    /// Notes how arrays were divided in states before a commit.
    pub(crate) fn note(&self, paged: Arc<Paged>, until: CommitTime) {
        let mut divisions = self.divisions.lock();
        divisions.push((until, paged));
        self.until.store(until, Ordering::Release);
    }

    fn of(&self, time: CommitTime) -> Option<Arc<Paged>> {
        if time >= self.until.load(Ordering::Acquire) {
            return None;
        }
        let divisions = self.divisions.lock();
        divisions.iter().find(|(until, _)| time < *until).map(|(_, paged)| paged.clone())
    }
}

impl Collection {
    /// Where its records lie, and how they are read in a state.
    pub(crate) fn home_in(&self, snapshot: &Snapshot) -> Home {
        match self.shared.old_pages.of(snapshot.commit_time()) {
            Some(paged) => self.home_as(&Shape::Paged(paged, None)),
            None => self.home(),
        }
    }

    /// The collection with the shape that its records have in a state.
    pub(crate) fn seen_in(self: Arc<Collection>, snapshot: &Snapshot) -> Arc<Collection> {
        match self.shared.old_pages.of(snapshot.commit_time()) {
            Some(paged) => Arc::new(Collection { shape: Shape::Paged(paged, None), ..(*self).clone() }),
            None => self,
        }
    }
}
