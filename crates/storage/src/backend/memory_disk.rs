//! A disk in memory that can lose its power: for tests of whatever must survive that.
//!
//! It counts commits and stops after any given one, which a real disk does not do on command; and it is copied in no
//! time, so that a test can stop at every one of them. A store that was open when the power went sees nothing but
//! failed writes from then on, also after the power is back.

use std::sync::Arc;

use kilim_error::{Result, StorageError};
use parking_lot::Mutex;

use super::memory::{MemoryBackend, MemoryView};
use super::{Backend, Exclusively, Sorted, View};
use crate::clock::CommitTime;
use crate::free_space::FreeSpace;
use crate::space::{Space, Write};
use crate::store::{Options, Store};

/// Clones are the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    platter: Arc<Mutex<Platter>>,
}

#[derive(Clone, Default)]
struct Platter {
    /// What was synced.
    synced: MemoryView,
    /// What was written.
    written: MemoryView,
    commits: u64,
    /// Commits until the power goes.
    left: Option<u64>,
    /// How often it was opened or the power came back. Stores of earlier lives cannot write.
    life: u64,
    off: bool,
}

/// What is there after the power was off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// What was synced: the machine has lost its power.
    Synced,
    /// What was written: only the process was killed.
    Written,
}

impl MemoryDisk {
    /// Opens a store on it. One that was open cannot write any more.
    pub fn open(&self) -> Result<Store> {
        let (life, view) = {
            let mut platter = self.platter.lock();
            platter.life += 1;
            (platter.life, platter.written.clone())
        };
        let backend = MortalBackend { disk: self.clone(), life, inner: MemoryBackend::of(view) };
        Store::over(Box::new(backend), FreeSpace::unbounded(), None, Options::default())
    }

    /// Commits until now.
    pub fn commits(&self) -> u64 {
        self.platter.lock().commits
    }

    /// The power goes after so many more commits.
    pub fn stop_after(&self, commits: u64) {
        self.platter.lock().left = Some(commits);
    }

    pub fn is_off(&self) -> bool {
        self.platter.lock().off
    }

    /// The power is cut now, if it is not off, and comes back.
    pub fn restart(&self, survivors: Survivors) {
        let mut platter = self.platter.lock();
        match survivors {
            Survivors::Synced => platter.written = platter.synced.clone(),
            Survivors::Written => platter.synced = platter.written.clone(),
        }
        platter.life += 1;
        platter.off = false;
        platter.left = None;
    }

    /// Another disk with the same content.
    pub fn copy(&self) -> MemoryDisk {
        MemoryDisk { platter: Arc::new(Mutex::new(self.platter.lock().clone())) }
    }
}

struct MortalBackend {
    disk: MemoryDisk,
    life: u64,
    inner: MemoryBackend,
}

impl MortalBackend {
    /// Runs a write while there is power; `commits` says whether it is one of those that are counted.
    fn write(&self, commits: bool, write: impl FnOnce() -> Result<bool>) -> Result<()> {
        let mut platter = self.disk.platter.lock();
        if commits && platter.life == self.life && platter.left == Some(0) {
            platter.off = true;
        }
        if platter.off || platter.life != self.life {
            return Err(StorageError::Io("the power is off".to_owned()).into());
        }
        let synced = write()?;
        platter.written = self.inner.state();
        if synced {
            platter.synced = platter.written.clone();
        }
        if commits {
            platter.commits += 1;
            platter.left = platter.left.map(|left| left - 1);
        }
        Ok(())
    }
}

impl Backend for MortalBackend {
    fn view(&self) -> View {
        self.inner.view()
    }

    fn commit_time(&self) -> CommitTime {
        self.inner.commit_time()
    }

    fn apply(
        &self,
        batch: &mut dyn Iterator<Item = &Write>,
        commit_time: CommitTime,
        sync: bool,
    ) -> Result<()> {
        self.write(true, || self.inner.apply(batch, commit_time, sync).map(|()| sync))
    }

    fn sync(&self) -> Result<()> {
        self.write(false, || Ok(true))
    }

    fn ingest(&self, space: Space, rows: &mut Sorted, exclusively: &mut Exclusively) -> Result<()> {
        let mut all = Vec::new();
        for row in rows {
            all.push(row?);
        }
        exclusively(&mut || {
            let mut rows = all.drain(..).map(Ok);
            self.write(true, || self.inner.ingest(space, &mut rows, &mut |step| step()).map(|()| true))
        })
    }

    fn drop_trees(&self, prefixes: &[(Space, [u8; 4])], exclusively: &mut Exclusively) -> Result<()> {
        exclusively(&mut || {
            self.write(true, || self.inner.drop_trees(prefixes, &mut |step| step()).map(|()| true))
        })
    }

    fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::Durability;

    fn put(store: &Store, key: u8, durability: Durability) -> Result<()> {
        let mut transaction = store.begin();
        transaction.put(Space::Index, [key], [key]);
        transaction.commit(durability).map(drop)
    }

    fn has(store: &Store, key: u8) -> bool {
        store.snapshot().get(Space::Index, &[key]).unwrap().is_some()
    }

    #[test]
    fn what_was_synced_is_there_when_the_power_is_back() {
        let disk = MemoryDisk::default();
        let store = disk.open().unwrap();
        put(&store, 1, Durability::Durable).unwrap();
        let copy = disk.copy();
        disk.stop_after(1);
        put(&store, 2, Durability::Durable).unwrap();
        assert!(put(&store, 3, Durability::Durable).is_err());
        assert!(disk.is_off());
        disk.restart(Survivors::Synced);
        assert!(put(&store, 4, Durability::Durable).is_err());
        let store = disk.open().unwrap();
        assert_eq!([1, 2, 3, 4].map(|key| has(&store, key)), [true, true, false, false]);
        let other = copy.open().unwrap();
        assert_eq!([1, 2].map(|key| has(&other, key)), [true, false]);
    }

    #[test]
    fn a_kill_keeps_what_was_written() {
        let disk = MemoryDisk::default();
        let store = disk.open().unwrap();
        disk.stop_after(1);
        put(&store, 1, Durability::Relaxed).unwrap();
        assert!(put(&store, 2, Durability::Durable).is_err());
        disk.restart(Survivors::Written);
        assert!(has(&disk.open().unwrap(), 1));
    }
}
