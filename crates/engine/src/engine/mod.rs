//! The database: a store, a catalog, sessions, cursors and running operations.

mod expected;
mod schema;

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use kilim_bson::{RawDocument, Timestamp};
use kilim_error::Result;
use kilim_query::validator::Now;
use kilim_storage::{Direction, Durability, Environment, Options as StorageOptions, Snapshot, Space, Store};
use parking_lot::{Mutex, RwLock};

use crate::backup::Backups;
pub use schema::{Modification, new_uuid};

use crate::catalog::{Catalog, Collection, Ids, View};
use crate::connections::Connections;
use crate::cursor::Cursors;
use crate::fail_point::{FailPoints, Moments};
use crate::feed::Feed;
use crate::fsync_lock::FsyncLock;
use crate::history::History;
use crate::ids::IndexId;
use crate::index::Index;
use crate::layout;
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::operation::{Operation, Operations};
use crate::passes::{Expiry, PageScrub, Scrubbing, Sealing};
use crate::patterns::{Job, JobKind, Pattern, PatternState, PendingPatterns, Registry};
use crate::profile::Profiler;
use crate::server_log::ServerLog;
use crate::session::Sessions;
use crate::settings::Settings;
use crate::top::Top;

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
    pub(crate) me: Weak<Engine>,
    pub options: EngineOptions,
    pub store: Store,
    pub operations: Operations,
    pub sessions: Sessions,
    pub cursors: Cursors,
    pub log: ServerLog,
    /// Who is connected.
    pub connections: Connections,
    pub metrics: Metrics,
    pub settings: Settings,
    /// Which commands are written down.
    pub profiler: Profiler,
    /// How collections are used.
    pub top: Top,
    pub fail_points: FailPoints,
    /// Where a test may step in between.
    pub moments: Moments,
    pub history: History,
    pub expiry: Expiry,
    pub scrubbing: Scrubbing,
    pub sealing: Sealing,
    pub page_scrub: PageScrub,
    pub backups: Backups,
    /// Who keeps everybody from writing.
    pub fsync_lock: FsyncLock,
    /// The tail of the change log, for change streams.
    pub feed: Arc<Feed>,
    pub started: Instant,
    pub(crate) catalog: RwLock<Arc<Catalog>>,
    pub(crate) patterns: RwLock<Arc<Registry>>,
    pub jobs: Mutex<Vec<Arc<Job>>>,
    /// The patterns that may have something pending.
    pub(crate) pending: PendingPatterns,
    /// The last of the timestamps that [`Engine::stamp`] gave.
    pub(crate) last_stamp: AtomicU64,
    pub(crate) job_threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held by a command that empties or replaces a collection of patterns.
    pub(crate) turn: Mutex<()>,
    /// Held by a command that changes the catalog, so that changes follow each other.
    pub(crate) ids: Mutex<Ids>,
}

impl Engine {
    pub(crate) fn weak(&self) -> Weak<Engine> {
        self.me.clone()
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().clone()
    }

    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog.read().get(namespace).cloned()
    }

    /// The collection whose documents are read and written under a name: [`Catalog::documents`].
    pub fn documents(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog.read().documents(namespace).cloned()
    }

    pub fn view(&self, namespace: &Namespace) -> Option<Arc<View>> {
        self.catalog.read().view(namespace).cloned()
    }

    /// A snapshot and the catalog to read it with, in the order that keeps them consistent.
    pub fn reading(&self) -> (Snapshot, Arc<Catalog>) {
        let snapshot = self.store.snapshot();
        (snapshot, self.catalog())
    }

    /// Where it takes time, chance and threads from.
    pub fn environment(&self) -> &Environment {
        self.store.environment()
    }

    /// The time of day, in milliseconds since 1970.
    pub fn now_millis(&self) -> i64 {
        self.environment().since_epoch().as_millis() as i64
    }

    /// The moment as validators ask for it.
    pub fn now(&self) -> Now {
        Now { millis: self.now_millis(), cluster_time: Timestamp::from_bits(self.store.now()) }
    }

    /// The present as a timestamp that no other call gets.
    pub(crate) fn stamp(&self) -> Timestamp {
        let now = self.store.now();
        let next = |last: u64| Some(now.max(last + 1));
        let last =
            self.last_stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        Timestamp::from_bits(now.max(last + 1))
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
        let now = self.store.last_commit_time();
        let is_active = |pattern: &&Arc<Pattern>| pattern.state == PatternState::Active;
        for pattern in registry.iter().filter(is_active) {
            if self.patterns().by_id(pattern.id).as_ref().is_none_or(|old| !is_active(old)) {
                pattern.counters.active_since.store(now, Ordering::Relaxed);
            }
        }
        let before = std::mem::replace(&mut *self.patterns.write(), Arc::new(registry));
        let after = self.patterns();
        for gone in before.iter().filter(|old| after.by_id(old.id).is_none()) {
            self.jobs.lock().retain(|job| job.kind != JobKind::FanOut || job.pattern.id != gone.id);
            self.pending.forget(gone.id, self.store.last_commit_time());
        }
        self.operations.note_pattern_moved();
    }

    /// Swaps the patterns and the catalog as one, for a rename: whoever has both from [`Engine::in_force`] finds each
    /// pattern under the name that its target has there.
    pub(crate) fn publish_renamed(&self, registry: Registry, change: impl FnOnce(&mut Catalog)) {
        self.publish(|catalog| {
            self.publish_patterns(registry);
            change(catalog);
        });
    }

    /// The catalog and the patterns in force, which go together.
    pub(crate) fn in_force(&self) -> (Arc<Catalog>, Arc<Registry>) {
        let catalog = self.catalog.read();
        (catalog.clone(), self.patterns())
    }

    /// Swaps the catalog. The caller holds `ids`, so no other change comes between.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = self.catalog.write();
        change(Arc::make_mut(&mut catalog));
    }

    /// Enters a pattern of which something becomes pending. Gives the number of the job that will write it.
    pub(crate) fn note_pending(&self, pattern: &Arc<Pattern>) -> u64 {
        if let Some(job) = self.pending.job_of(pattern.id) {
            return job.id;
        }
        let (job, is_new) = self.pending.note(u64::from(self.next_index_id().0), pattern, self.environment());
        let id = job.id;
        if is_new {
            self.begin_catching_up(job);
        }
        id
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
        let records = collection.home().counts(&snapshot)?.count.max(0) as u64;
        Ok(bytes * records.max(entries) / entries)
    }

    /// A fresh index id; ids are never given out twice.
    pub fn next_index_id(&self) -> IndexId {
        self.ids.lock().next_index()
    }
}

/// What lower layers ask of the upkeep of patterns, a layer above them, which implements it.
pub(crate) trait Upkeep {
    /// Begins the job that writes what is pending of a pattern.
    fn begin_catching_up(&self, job: Arc<Job>);

    /// Makes a pattern of a document that a user inserted among the definitions of a database.
    fn adopt(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        document: RawDocument<'_>,
    ) -> Result<()>;
}
