//! The database: a store, a catalog, sessions, cursors and running operations.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kilim_error::Result;
use kilim_storage::{Durability, Options, Snapshot, Store};
use parking_lot::{Mutex, RwLock};

use crate::catalog::{Catalog, Collection};
use crate::cursor::Cursors;
use crate::ddl::Ids;
use crate::fail_point::FailPoints;
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::operation::Operations;
use crate::session::Sessions;

#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where the data lies; `None` keeps it in memory.
    pub data: Option<PathBuf>,
    /// What a write without a write concern of its own waits for.
    pub durability: Durability,
    pub cache_bytes: Option<u64>,
    /// Enables `configureFailPoint`.
    pub test_commands: bool,
}

#[derive(Debug)]
pub struct Engine {
    pub options: EngineOptions,
    pub store: Store,
    pub operations: Operations,
    pub sessions: Sessions,
    pub cursors: Cursors,
    pub metrics: Metrics,
    pub fail_points: FailPoints,
    pub started: Instant,
    pub started_at: SystemTime,
    catalog: RwLock<Arc<Catalog>>,
    /// Held by whoever changes the catalog, so that changes follow each other.
    pub(crate) ids: Mutex<Ids>,
}

impl Engine {
    pub fn open(options: EngineOptions) -> Result<Arc<Engine>> {
        let mut storage = Options::default();
        if let Some(bytes) = options.cache_bytes {
            storage.cache_bytes = bytes;
        }
        let store = match &options.data {
            Some(directory) => Store::open(directory, storage)?,
            None => Store::in_memory(storage),
        };
        let snapshot = store.snapshot();
        let catalog = Catalog::load(&snapshot)?;
        let ids = Ids::load(&snapshot)?;
        Ok(Arc::new(Engine {
            options,
            operations: Operations::default(),
            sessions: Sessions::default(),
            cursors: Cursors::default(),
            metrics: Metrics::default(),
            fail_points: FailPoints::default(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            catalog: RwLock::new(Arc::new(catalog)),
            ids: Mutex::new(ids),
            store,
        }))
    }

    /// Ends what runs, then closes the store. The engine is of no use afterwards.
    pub fn close(&self) -> Result<()> {
        self.operations.stop();
        self.cursors.clear();
        self.sessions.abort_all();
        self.store.sync()
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().clone()
    }

    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog.read().get(namespace).cloned()
    }

    /// A snapshot and the catalog to read it with, in the order that keeps them consistent.
    pub fn reading(&self) -> (Snapshot, Arc<Catalog>) {
        let snapshot = self.store.snapshot();
        (snapshot, self.catalog())
    }

    /// Swaps the catalog. The caller holds `ids`, so no other change comes between.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = self.catalog.write();
        change(Arc::make_mut(&mut catalog));
    }

    /// What must happen now and then: closes idle cursors, forgets idle sessions, ends transactions
    /// that have lived too long. Returns quickly; called about once a second.
    pub fn tick(&self) {
        let now = Instant::now();
        self.cursors.close_idle(now);
        self.sessions.end_overdue_transactions(now);
        self.sessions.forget_idle(self, now);
    }
}
