//! The store: opening, snapshots, transactions, bulk loads, closing.
//!
//! [`Store`] is a handle; when the last clone goes, the background threads end. Snapshots, scans and
//! transactions keep the state they need alive by themselves.

use crate::backend::Backend;
use crate::backend::memory::MemoryBackend;
use crate::backend::tree::{Memory, TreeBackend};
use crate::background::Background;
use crate::clock::{self, CommitTime};
use crate::disk::Disk;
use crate::disk::directory::{self, Directory, DirectoryLock};
use crate::environment::Environment;
use crate::free_space::{self, FreeSpace};
use crate::intents::Intents;
use crate::log::{Log, LogOptions};
use crate::queue::CommitQueue;
use crate::snapshot::{Kept, Published, Snapshot};
use crate::space::{Bytes, Space, Write};
use crate::transaction::{Durability, Transaction};
use crate::waiters::Waiters;
use kilim_error::{Error, Result};
use parking_lot::RwLock;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How a store uses memory and disk.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory for decoded pages, for rows that are not in the trees yet, and for what was read lately.
    pub cache_bytes: u64,
    /// Rows that are kept in memory before a checkpoint puts them into trees; by default [a part of the cache](TABLES_BYTES).
    pub checkpoint_bytes: Option<u64>,
    /// Writes are refused while the disk has less than this free; by default it follows the disk's size.
    pub free_space_reserve_bytes: Option<u64>,
    /// How long [`Store::close`] may work on a checkpoint, so that the next start has nothing to replay.
    pub close_within: Duration,
    /// How much of the change log is kept. Without it nothing is logged, and a log that is there is dropped.
    pub log: Option<LogOptions>,
    /// Where time, chance and threads come from.
    pub environment: Environment,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache_bytes: default_cache_bytes(),
            checkpoint_bytes: None,
            free_space_reserve_bytes: None,
            close_within: Duration::from_secs(5),
            log: Some(LogOptions::default()),
            environment: Environment::default(),
        }
    }
}

/// Rows in memory before a checkpoint: an eighth of the cache. More makes for fewer checkpoints, less for a
/// quicker start after a crash, which replays as much.
const TABLES_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=128 << 20;

/// A quarter of the memory that the process may use: the page cache serves what this one does not hold, and documents
/// in flight need room too.
fn default_cache_bytes() -> u64 {
    (kilim_memory::available_bytes() / 4).clamp(64 << 20, 32 << 30)
}

/// Figures of a running store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions committed since the store was opened.
    pub commits: u64,
    /// Batches they were merged into; each took one sync at most.
    pub batches: u64,
    pub disk_bytes: u64,
}

/// A handle to an open store.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

/// What all handles, transactions and background threads share.
pub(crate) struct Shared {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) queue: CommitQueue,
    pub(crate) intents: Intents,
    pub(crate) free_space: FreeSpace,
    pub(crate) background: Background,
    pub(crate) environment: Environment,
    close_within: Duration,
    published: RwLock<Arc<Published>>,
    waiters: Arc<Waiters>,
    /// Those who wait for the next commit.
    commits: Arc<Waiters>,
    pub(crate) log: Log,
    /// The clock's reading when the store was opened. Every commit since then is younger, also if the clock steps back.
    opened: CommitTime,
    /// The newest commit that is on disk with all before it. It may not be published yet.
    pub(crate) durable: AtomicU64,
    transactions: AtomicU64,
    /// Batches applied without a sync, and how many of them a later sync has covered.
    unsynced: AtomicU64,
    covered: AtomicU64,
}

impl Store {
    /// Opens the store in a directory, or makes one there. The directory is locked while the store is open.
    pub fn open(dir: &Path, options: Options) -> Result<Store> {
        let lock = directory::lock(dir)?;
        let disk: Arc<dyn Disk> = Arc::new(Directory::open_in(dir, options.environment.clone())?);
        Store::open_on(disk, options, Some(lock))
    }

    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        lock: Option<DirectoryLock>,
    ) -> Result<Store> {
        // A quarter of the cache holds what was read, the rest the backend's pages.
        let kept = Kept::new(options.cache_bytes / 4);
        // When writes stop at the reserve, tables of up to three times this are still to be written.
        let largest = (free_space::default_reserve_bytes(&*disk) / 4).min(*TABLES_BYTES.end());
        let tables = (options.cache_bytes / 8).min(largest).max(*TABLES_BYTES.start());
        let tables = options.checkpoint_bytes.unwrap_or(tables);
        let memory = Memory {
            cache_bytes: options.cache_bytes.saturating_sub(options.cache_bytes / 4 + tables),
            tables_bytes_max: tables as usize,
        };
        let free_space = FreeSpace::of_disk(disk.clone(), options.free_space_reserve_bytes);
        let backend = TreeBackend::open(disk, memory, options.log.is_some(), lock)?;
        Store::over(Box::new(backend), free_space, Some(kept), options)
    }

    /// A store that lives in memory and ends with the process.
    ///
    /// # Panics
    ///
    /// If the system gives no threads, the one thing that can fail here.
    pub fn in_memory(options: Options) -> Store {
        let backend = Box::new(MemoryBackend::default());
        match Store::over(backend, FreeSpace::unbounded(), None, options) {
            Ok(store) => store,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn over(
        backend: Box<dyn Backend>,
        free_space: FreeSpace,
        kept: Option<Kept>,
        options: Options,
    ) -> Result<Store> {
        let store = Store::unattended(backend, free_space, kept, options)?;
        // With the store at hand: if this fails, dropping the handle ends the threads that were started.
        Background::start(store.shared())?;
        if store.shared().has_log_to_end() {
            store.trim_log()?;
        }
        Ok(store)
    }

    /// A store without its background threads.
    pub(crate) fn unattended(
        backend: Box<dyn Backend>,
        free_space: FreeSpace,
        kept: Option<Kept>,
        options: Options,
    ) -> Result<Store> {
        let Options { close_within, environment, log, .. } = options;
        let log = Log::open(&*backend, free_space.total_bytes(), log)?;
        let commit_time = backend.commit_time();
        let opened = clock::wall(&environment) - 1;
        let published = Published { view: backend.view(), commit_time, kept };
        let waiters = Arc::<Waiters>::default();
        let shared = Arc::new(Shared {
            backend,
            opened,
            queue: CommitQueue::new(commit_time.max(opened)),
            intents: Intents::new(environment.clone()),
            environment,
            free_space,
            background: Background::default(),
            close_within,
            published: RwLock::new(Arc::new(published)),
            commits: waiters.group(),
            waiters,
            log,
            durable: AtomicU64::new(commit_time),
            transactions: AtomicU64::new(1),
            unsynced: AtomicU64::new(0),
            covered: AtomicU64::new(0),
        });
        Ok(Store { handle: Arc::new(Handle { shared }) })
    }

    /// Where it takes time, chance and threads from.
    pub fn environment(&self) -> &Environment {
        &self.shared().environment
    }

    /// The newest published state.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.shared().published(), None)
    }

    /// A transaction that may conflict with commits that are queued and not yet in its snapshot.
    pub fn begin(&self) -> Transaction {
        let id = self.shared().transactions.fetch_add(1, Ordering::Relaxed);
        Transaction::new(self.shared().clone(), id)
    }

    /// Returns once everything committed so far is published, and on disk if `durability` asks for that.
    ///
    /// Writers see each other's commits before these are on disk. Who answers on the ground of what it saw,
    /// without a commit of its own to wait for, waits here: a refusal or a no-op may otherwise be the only
    /// trace that a crash leaves of the commit behind it.
    pub fn settle(&self, durability: Durability) -> Result<()> {
        let shared = self.shared();
        shared.queue.drain(shared)?;
        match durability {
            Durability::Durable if shared.has_unsynced() => shared.sync(),
            _ => Ok(()),
        }
    }

    /// Puts on disk what readers see already, for a durable answer that has no commit of its own: it may rest on a commit
    /// whose writer asked for no sync.
    pub fn sync_published(&self) -> Result<()> {
        match self.shared().has_unsynced() {
            true => self.shared().sync(),
            false => Ok(()),
        }
    }

    /// An error once a commit has failed, after which nothing can be written: who waits for others to write waits in vain.
    pub fn check_healthy(&self) -> Result<()> {
        self.shared().queue.check_healthy()
    }

    /// The newest version of a key, also one that is committed but not yet published.
    pub fn latest(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.shared().latest(space, key)
    }

    /// The time of the newest published commit.
    pub fn last_commit_time(&self) -> CommitTime {
        self.shared().published().commit_time
    }

    /// No commit that is not published yet has an earlier time.
    pub fn next_commit_time(&self) -> CommitTime {
        self.last_commit_time().max(self.shared().opened) + 1
    }

    /// Waits until there is a published commit younger than `time`, until a time has come, or until `is_ended` says that
    /// nobody wants to wait any longer. Whoever makes that true calls [`Waiters::wake`].
    pub fn wait_past(&self, time: CommitTime, until: Instant, is_ended: &dyn Fn() -> bool) {
        self.shared().commits.wait(until, &|| self.last_commit_time() > time || is_ended());
    }

    /// Those who wait in [`Store::wait_past`], and groups that others have made.
    pub fn waiters(&self) -> &Arc<Waiters> {
        &self.shared().waiters
    }

    /// The clock's reading, never before the newest published commit.
    pub fn now(&self) -> CommitTime {
        clock::wall(&self.shared().environment).max(self.last_commit_time())
    }

    /// Loads ascending keys that do not exist yet, faster than commits can. Durable on return, and in every
    /// snapshot taken after it.
    pub fn ingest(&self, space: Space, sorted: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        self.ingest_shared(space, sorted.map(|(key, value)| (key.into(), value.into())))
    }

    /// The same of rows that may share memory with others.
    pub fn ingest_shared(&self, space: Space, sorted: impl Iterator<Item = (Bytes, Bytes)>) -> Result<()> {
        let shared = self.shared();
        shared.queue.check_healthy()?;
        shared.free_space.check()?;
        let mut last = Bytes::default();
        let mut rows = sorted.enumerate().map(|(at, (key, value))| {
            if key <= last {
                return Err(Error::bug("the keys of a bulk load must ascend"));
            }
            last = key.clone();
            // A load can be larger than the reserve.
            if at % 1024 == 0 {
                shared.free_space.check()?;
            }
            Ok((key, value))
        });
        shared.backend.ingest(space, &mut rows, &mut |finish| {
            shared.exclusively(&mut || {
                finish()?;
                // What was read before the load may not be true behind it.
                let published = shared.published();
                if let Some(kept) = &published.kept {
                    kept.clear(space, published.commit_time);
                }
                Ok(())
            })?;
            shared.queue.forget_recent();
            Ok(())
        })
    }

    /// Declares a prefix dead: its space is given back once no older snapshot lives, also after a restart.
    pub fn reclaim(&self, space: Space, prefix: &[u8]) -> Result<()> {
        let mut transaction = self.begin();
        transaction.reclaim(space, prefix);
        transaction.commit(Durability::Durable).map(|_| ())
    }

    /// Puts everything committed so far on disk.
    pub fn sync(&self) -> Result<()> {
        self.shared().sync()
    }

    pub fn disk_bytes(&self) -> u64 {
        self.shared().backend.disk_bytes()
    }

    /// Commits so far.
    pub fn commits(&self) -> u64 {
        self.shared().queue.tally().0
    }

    pub fn stats(&self) -> Stats {
        let (commits, batches) = self.shared().queue.tally();
        Stats { commits, batches, disk_bytes: self.disk_bytes() }
    }

    /// Merges what is in memory into the trees and gives free space back.
    pub fn checkpoint(&self) -> Result<()> {
        let shared = self.shared();
        shared.queue.drain(shared)?;
        shared.backend.checkpoint(&mut |step| shared.exclusively(step))
    }

    /// Runs something while everything that was committed is on disk and stays as it is there: no batch is committed and no
    /// checkpoint made. Commits that are asked for meanwhile wait.
    pub fn stand_still(&self, meanwhile: &mut dyn FnMut()) -> Result<()> {
        self.checkpoint()?;
        let shared = self.shared();
        shared.backend.stand_still(&mut || {
            shared.queue.exclusively(shared, || {
                // What was committed behind the checkpoint is in the journal.
                shared.backend.sync()?;
                meanwhile();
                Ok(())
            })
        })
    }

    /// Ends the background work and makes a checkpoint, so that the next start has nothing to replay; if there is
    /// no time for that, a sync is enough. Snapshots that live on keep the directory locked.
    pub fn close(self) -> Result<()> {
        let shared = self.shared();
        shared.queue.drain(shared)?;
        shared.queue.check_healthy()?;
        shared.backend.end_by(shared.environment.now() + shared.close_within);
        shared.background.stop();
        shared.sync()?;
        shared.backend.close(&mut |step| shared.exclusively(step))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.background.stop();
        // Tickets that nobody waited for are promised too.
        if let Err(error) = self.shared.sync() {
            tracing::warn!(%error, "the store was closed without a last sync");
        }
    }
}

impl Shared {
    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.read().clone()
    }

    /// Replaces the published state; the commit queue's leader alone does so.
    pub(crate) fn publish(&self, published: Published) {
        let published = Arc::new(published);
        debug_assert!(self.published().commit_time <= published.commit_time);
        let before = std::mem::replace(&mut *self.published.write(), published);
        // Outside the lock, for it may be the last of its kind and free a lot.
        drop(before);
        self.commits.wake();
    }

    pub(crate) fn latest(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = self.queue.newest(space, key) {
            return Ok(value);
        }
        // Only now: what left the queue was published before.
        self.published().get_to_write(space, key)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.queue.drain(self)?;
        self.queue.check_healthy()?;
        let (unsynced, published) = (self.unsynced.load(Ordering::SeqCst), self.published().commit_time);
        self.backend.sync().inspect_err(|error| {
            if let Error::Storage(error) = error {
                self.queue.poison(error);
            }
        })?;
        self.covered.fetch_max(unsynced, Ordering::SeqCst);
        if self.durable.fetch_max(published, Ordering::SeqCst) < published {
            self.log.tell_shown(self.durable_time());
        }
        Ok(())
    }

    /// Runs a step of the backend with no batch under way, and shows readers the state after it.
    pub(crate) fn exclusively(&self, step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.queue.exclusively(self, || {
            step()?;
            // No batch is under way, so the view holds the newest published commit and nothing else.
            let before = self.published();
            let (commit_time, kept) = (before.commit_time, before.kept.clone());
            self.publish(Published { view: self.backend.view(), commit_time, kept });
            Ok(())
        })
    }

    /// Applies a batch and notes whether a sync is still due. The commit queue's leader alone does so.
    pub(crate) fn apply(
        &self,
        batch: &mut dyn Iterator<Item = &Write>,
        commit_time: CommitTime,
        sync: bool,
    ) -> Result<()> {
        if !sync {
            // Before the batch can be seen, so that nobody relies on it without knowing.
            self.unsynced.fetch_add(1, Ordering::SeqCst);
            self.backend.apply(batch, commit_time, false)?;
            if self.backend.is_volatile() {
                self.durable.fetch_max(commit_time, Ordering::SeqCst);
            }
            return Ok(());
        }
        let unsynced = self.unsynced.load(Ordering::SeqCst);
        self.backend.apply(batch, commit_time, true)?;
        self.covered.fetch_max(unsynced, Ordering::SeqCst);
        self.durable.fetch_max(commit_time, Ordering::SeqCst);
        Ok(())
    }

    /// The time of the newest published commit that is on disk with all before it.
    pub(crate) fn durable_time(&self) -> CommitTime {
        self.durable.load(Ordering::SeqCst).min(self.published().commit_time)
    }

    fn has_unsynced(&self) -> bool {
        self.covered.load(Ordering::SeqCst) < self.unsynced.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Scan, Snapshot, Store, Ticket, Transaction};

    #[test]
    fn handles_move_between_threads() {
        fn sends<T: Send>() {}
        fn shares<T: Send + Sync>() {}
        shares::<Store>();
        shares::<Snapshot>();
        sends::<Scan>();
        sends::<Transaction>();
        sends::<Ticket>();
    }
}
