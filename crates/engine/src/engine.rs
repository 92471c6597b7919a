//! The database: a store, a catalog, sessions, cursors and running operations.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use kilim_error::Result;
use kilim_storage::{Direction, Durability, Options as StorageOptions, Snapshot, Space, Store};
use parking_lot::{Mutex, RwLock};

use crate::backup::Backups;
use crate::catalog::{Catalog, Collection};
use crate::cursor::Cursors;
use crate::ddl::Ids;
use crate::expiry::Expiry;
use crate::fail_point::FailPoints;
use crate::history::History;
use crate::index::{Index, IndexId, reclaim_unfinished};
use crate::layout;
use crate::maintenance::{self, Job, Lagging, Registry, Scrubbing};
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::operation::Operations;
use crate::page_scrub::PageScrub;
use crate::profile::Profiler;
use crate::session::Sessions;
use crate::top::Top;
use crate::view::View;

#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where the data lies; `None` keeps it in memory.
    pub data: Option<PathBuf>,
    /// What a write without a write concern of its own waits for.
    pub durability: Durability,
    /// How the store uses memory and disk.
    pub storage: StorageOptions,
    /// Enables `configureFailPoint`.
    pub test_commands: bool,
}

pub struct Engine {
    /// Itself, for what outlives a command and must not keep it open.
    me: Weak<Engine>,
    pub options: EngineOptions,
    pub store: Store,
    pub operations: Operations,
    pub sessions: Sessions,
    pub cursors: Cursors,
    pub metrics: Metrics,
    /// Which commands are written down.
    pub profiler: Profiler,
    /// How collections are used.
    pub top: Top,
    pub fail_points: FailPoints,
    pub history: History,
    pub expiry: Expiry,
    pub scrubbing: Scrubbing,
    pub page_scrub: PageScrub,
    pub backups: Backups,
    pub started: Instant,
    catalog: RwLock<Arc<Catalog>>,
    patterns: RwLock<Arc<Registry>>,
    pub jobs: Mutex<Vec<Arc<Job>>>,
    /// The patterns that have something pending.
    pub(crate) lag: Lagging,
    pub(crate) job_threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held by whoever empties or replaces a collection of patterns.
    pub(crate) turn: Mutex<()>,
    /// Held by whoever changes the catalog, so that changes follow each other.
    pub(crate) ids: Mutex<Ids>,
}

impl Engine {
    pub fn open(options: EngineOptions) -> Result<Arc<Engine>> {
        let store = match &options.data {
            Some(directory) => Store::open(directory, options.storage.clone())?,
            None => Store::in_memory(options.storage.clone()),
        };
        Engine::over(store, options)
    }

    /// The database in a store that somebody else has opened.
    pub fn over(store: Store, options: EngineOptions) -> Result<Arc<Engine>> {
        reclaim_unfinished(&store)?;
        let snapshot = store.snapshot();
        let catalog = Catalog::load(&snapshot)?;
        let mut ids = Ids::load(&snapshot)?;
        let patterns = maintenance::load(&snapshot, &catalog, &mut ids)?;
        let sessions = Sessions::default();
        sessions.note_stored(&snapshot, Instant::now())?;
        let engine = Arc::new_cyclic(|me| Engine {
            me: me.clone(),
            options,
            operations: Operations::default(),
            sessions,
            cursors: Cursors::default(),
            metrics: Metrics::default(),
            profiler: Profiler::default(),
            top: Top::default(),
            fail_points: FailPoints::default(),
            history: History::default(),
            expiry: Expiry::default(),
            scrubbing: Scrubbing::default(),
            page_scrub: PageScrub::default(),
            backups: Backups::default(),
            started: Instant::now(),
            catalog: RwLock::new(Arc::new(catalog)),
            patterns: RwLock::new(Arc::new(patterns)),
            jobs: Mutex::default(),
            lag: Lagging::default(),
            job_threads: Mutex::default(),
            turn: Mutex::default(),
            ids: Mutex::new(ids),
            store,
        });
        engine.drop_leftovers()?;
        engine.resume_pending()?;
        engine.resume_filling();
        Ok(engine)
    }

    /// Ends what runs, then closes the store. The engine is of no use afterwards.
    pub fn close(&self) -> Result<()> {
        self.operations.stop();
        self.await_jobs();
        self.cursors.clear();
        self.backups.clear();
        self.sessions.abort_all();
        self.store.clone().close()
    }

    pub(crate) fn weak(&self) -> Weak<Engine> {
        self.me.clone()
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().clone()
    }

    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog.read().get(namespace).cloned()
    }

    pub fn view(&self, namespace: &Namespace) -> Option<Arc<View>> {
        self.catalog.read().view(namespace).cloned()
    }

    /// A snapshot and the catalog to read it with, in the order that keeps them consistent.
    pub fn reading(&self) -> (Snapshot, Arc<Catalog>) {
        let snapshot = self.store.snapshot();
        (snapshot, self.catalog())
    }

    /// The time of day, in milliseconds since 1970.
    pub fn now_millis(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
    }

    /// The patterns in force.
    pub fn patterns(&self) -> Arc<Registry> {
        self.patterns.read().clone()
    }

    /// Whether some pattern keeps readers from what it has not filled yet.
    pub(crate) fn patterns_withhold(&self) -> bool {
        self.patterns.read().withholds
    }

    /// Swaps the patterns. The caller holds `ids`, and the collections that they concern.
    pub(crate) fn publish_patterns(&self, registry: Registry) {
        let before = std::mem::replace(&mut *self.patterns.write(), Arc::new(registry));
        let after = self.patterns();
        for gone in before.iter().filter(|old| after.by_id(old.id).is_none()) {
            self.lag.forget(self, gone.id);
        }
    }

    /// Swaps the catalog. The caller holds `ids`, so no other change comes between.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = self.catalog.write();
        change(Arc::make_mut(&mut catalog));
    }

    /// An estimate of an index's size from its first entries: exact sizes would cost every write.
    pub fn index_bytes(&self, collection: &Collection, index: &Index) -> Result<u64> {
        const SAMPLE: usize = 256;
        let snapshot = self.store.snapshot();
        let (lower, upper) = (layout::index_prefix(index.id), (index.id.0 + 1).to_be_bytes());
        let scan =
            snapshot.scan(Space::Index, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward);
        let (mut bytes, mut entries) = (0, 0);
        for entry in scan.take(SAMPLE) {
            let (key, value) = entry?;
            bytes += key.len() as u64 + value.len() as u64;
            entries += 1;
        }
        if entries < SAMPLE as u64 {
            return Ok(bytes);
        }
        let records = snapshot.counter(&layout::counter_key(collection.id))?.count.max(0) as u64;
        Ok(bytes * records.max(entries) / entries)
    }

    /// A fresh index id; ids are never given out twice.
    pub fn next_index_id(&self) -> IndexId {
        self.ids.lock().next_index()
    }

    /// What must happen now and then: closes idle cursors, forgets idle sessions, ends transactions
    /// that have lived too long, looks for expired documents and at patterns. Returns quickly; called about once a second.
    pub fn tick(&self) {
        let now = Instant::now();
        self.cursors.close_idle(now);
        self.close_cursors_if_memory_is_short();
        self.backups.end_idle(now);
        self.history.forget_old(now);
        self.sessions.end_overdue_transactions(self, now);
        self.sessions.forget_idle(self, now);
        self.expire_if_due(now);
        self.note_suspects();
        self.scrub_if_due();
        self.scrub_pages_if_due(now);
    }

    fn close_cursors_if_memory_is_short(&self) {
        let excess = kilim_memory::excess_bytes();
        if excess > 0 {
            let closed = self.cursors.close_largest(excess);
            tracing::warn!(
                excess,
                cursors_closed = closed,
                "more memory is held than allowed, large operations are refused"
            );
        }
    }
}
