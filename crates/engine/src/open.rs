//! The life of a database: opened, looked after once a second, closed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use kilim_error::Result;
use kilim_storage::Store;
use parking_lot::{Mutex, RwLock};

use crate::backup::Backups;
use crate::build::reclaim_unfinished;
use crate::catalog::{Catalog, Ids};
use crate::connections::Connections;
use crate::cursor::Cursors;
use crate::engine::{Engine, EngineOptions};
use crate::fail_point::{FailPoints, Moments};
use crate::feed::Feed;
use crate::fsync_lock::FsyncLock;
use crate::history::History;
use crate::ids::SessionId;
use crate::metrics::Metrics;
use crate::operation::Operations;
use crate::passes::{Expiry, PageScrub, Scrubbing, Sealing};
use crate::patterns::PendingPatterns;
use crate::profile::Profiler;
use crate::server_log::ServerLog;
use crate::session::Sessions;
use crate::settings::Settings;
use crate::top::Top;
use crate::upkeep::{load, put_buckets_in_force, put_pages_in_force, put_versions_in_force};

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
        let mut catalog = Catalog::load(&snapshot)?;
        let mut ids = Ids::load(&snapshot)?;
        let patterns = load(&snapshot, &catalog, &mut ids)?;
        put_versions_in_force(&mut catalog, &patterns)?;
        put_pages_in_force(&mut catalog, &patterns, 0);
        put_buckets_in_force(&mut catalog, &patterns);
        let environment = store.environment().clone();
        let feed = Arc::new(Feed::new(store.waiters().clone()));
        store.tell_of_events(feed.clone());
        let sessions = Sessions::default();
        sessions.note_stored(&snapshot, environment.now())?;
        let engine = Arc::new_cyclic(|me| Engine {
            me: me.clone(),
            options,
            operations: Operations::new(store.waiters().clone(), environment.clone()),
            sessions,
            cursors: Cursors::new(store.waiters().clone(), environment.clone()),
            metrics: Metrics::default(),
            settings: Settings::default(),
            profiler: Profiler::new(environment.clone()),
            top: Top::default(),
            fail_points: FailPoints::default(),
            moments: Moments::default(),
            history: History::new(environment.clone()),
            expiry: Expiry::new(environment.now()),
            scrubbing: Scrubbing::default(),
            sealing: Sealing::default(),
            page_scrub: PageScrub::default(),
            backups: Backups::new(environment.clone()),
            fsync_lock: FsyncLock::default(),
            log: ServerLog::default(),
            connections: Connections::default(),
            feed,
            started: environment.now(),
            catalog: RwLock::new(Arc::new(catalog)),
            patterns: RwLock::new(Arc::new(patterns)),
            jobs: Mutex::default(),
            pending: PendingPatterns::default(),
            last_stamp: AtomicU64::default(),
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
        self.fsync_lock.clear();
        self.await_jobs();
        self.cursors.clear();
        self.backups.clear();
        self.sessions.abort_all();
        self.store.clone().close()
    }

    /// What must happen now and then: closes idle cursors, forgets idle sessions, ends transactions
    /// that have lived too long, looks for expired documents and at patterns. Returns quickly; called about once a second.
    pub fn tick(&self) {
        let now = self.environment().now();
        self.cursors.close_idle(now, self.settings.cursor_idle());
        self.close_cursors_if_memory_is_short();
        self.backups.end_idle(now);
        self.history.forget_old(now);
        self.end_overdue_transactions(now);
        if self.fsync_lock.count() > 0 {
            // The rest writes, and would wait for the unlock.
            return;
        }
        self.forget_idle_sessions(now);
        self.expire_if_due(now);
        self.note_suspects();
        self.scrub_if_due();
        self.seal_if_due();
        self.scrub_pages_if_due(now);
        self.feed.forget_old(self.store.now());
        if let Err(error) = self.store.trim_log() {
            tracing::warn!(%error, "the change log could not be trimmed");
        }
    }

    fn close_cursors_if_memory_is_short(&self) {
        let shortage = kilim_memory::shortage_bytes();
        if shortage > 0 {
            let closed = self.cursors.close_largest(shortage);
            tracing::warn!(
                shortage,
                cursors_closed = closed,
                "all the memory that is allowed is held, large operations wait or are refused"
            );
        }
    }

    /// Ends a session: its transaction is aborted, its cursors closed. Waits for the operation it runs.
    ///
    /// What its retries must be answered stays on disk.
    pub fn end_session(&self, id: SessionId) {
        self.sessions.end(id);
        self.cursors.close_of_session(id);
    }

    /// Aborts transactions past their lifetime, and closes their cursors.
    pub fn end_overdue_transactions(&self, now: Instant) {
        for (session, number) in
            self.sessions.end_overdue_transactions(now, self.settings.transaction_lifetime())
        {
            self.metrics.transactions_aborted.add(1);
            self.cursors.close_of_transaction(session, number);
        }
    }

    /// Forgets sessions past their idle time, in memory and on disk, and closes their cursors.
    pub fn forget_idle_sessions(&self, now: Instant) {
        let mut gone = self.sessions.forget_idle(now);
        gone.iter().for_each(|id| self.cursors.close_of_session(*id));
        gone.extend(self.sessions.take_stored_idle(now));
        if let Err(error) = self.sessions.forget_stored(&self.store, &gone) {
            tracing::warn!(%error, "could not forget idle sessions");
        }
    }
}
