//! What commands change for the whole server while it runs: `setParameter` and its like. Parameters begin as in
//! [`crate::limits`], as on MongoDB.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kilim_bson::Document;
use parking_lot::RwLock;

use crate::limits;

#[derive(Debug)]
pub struct Settings {
    cursor_idle_ms: AtomicI64,
    transaction_lifetime_seconds: AtomicU64,
    transaction_lock_wait_ms: AtomicI64,
    no_table_scan: AtomicBool,
    scram_sha_1_iterations: AtomicU32,
    scram_sha_256_iterations: AtomicU32,
    densified_documents_max: AtomicU64,
    requires_api_version: AtomicBool,
    user_writes_blocked: AtomicBool,
    /// The write concern of commands that name none, where somebody has set it.
    default_write_concern: RwLock<Option<Arc<Document>>>,
    /// Whether what an earlier run kept has been looked up.
    recalled: AtomicBool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cursor_idle_ms: AtomicI64::new(limits::CURSOR_IDLE.as_millis() as i64),
            transaction_lifetime_seconds: AtomicU64::new(limits::TRANSACTION_LIFETIME.as_secs()),
            transaction_lock_wait_ms: AtomicI64::new(limits::TRANSACTION_LOCK_WAIT.as_millis() as i64),
            no_table_scan: AtomicBool::new(false),
            scram_sha_1_iterations: AtomicU32::new(limits::SCRAM_SHA_1_ITERATIONS),
            scram_sha_256_iterations: AtomicU32::new(limits::SCRAM_SHA_256_ITERATIONS),
            densified_documents_max: AtomicU64::new(limits::DENSIFIED_DOCUMENTS_MAX),
            requires_api_version: AtomicBool::new(false),
            user_writes_blocked: AtomicBool::new(false),
            default_write_concern: RwLock::default(),
            recalled: AtomicBool::new(false),
        }
    }
}

impl Settings {
    pub fn cursor_idle_ms(&self) -> i64 {
        self.cursor_idle_ms.load(Ordering::Relaxed)
    }

    pub fn set_cursor_idle_ms(&self, millis: i64) {
        self.cursor_idle_ms.store(millis, Ordering::Relaxed);
    }

    /// How long a cursor may be left alone. Below zero counts as zero.
    pub fn cursor_idle(&self) -> Duration {
        Duration::from_millis(self.cursor_idle_ms().max(0) as u64)
    }

    /// How long a transaction that begins now may live.
    pub fn transaction_lifetime(&self) -> Duration {
        Duration::from_secs(self.transaction_lifetime_seconds.load(Ordering::Relaxed))
    }

    pub fn set_transaction_lifetime_seconds(&self, seconds: u64) {
        self.transaction_lifetime_seconds.store(seconds, Ordering::Relaxed);
    }

    pub fn transaction_lock_wait_ms(&self) -> i64 {
        self.transaction_lock_wait_ms.load(Ordering::Relaxed)
    }

    pub fn set_transaction_lock_wait_ms(&self, millis: i64) {
        self.transaction_lock_wait_ms.store(millis, Ordering::Relaxed);
    }

    /// How long a statement of a transaction waits for a collection that a schema change holds. Below zero it waits as
    /// long as its transaction may live.
    pub fn transaction_lock_wait(&self) -> Duration {
        match u64::try_from(self.transaction_lock_wait_ms()) {
            Ok(millis) => Duration::from_millis(millis),
            Err(_) => self.transaction_lifetime(),
        }
    }

    /// Whether a query that could only be answered by reading a whole collection is refused.
    pub fn no_table_scan(&self) -> bool {
        self.no_table_scan.load(Ordering::Relaxed)
    }

    pub fn set_no_table_scan(&self, refused: bool) {
        self.no_table_scan.store(refused, Ordering::Relaxed);
    }

    /// How often a password is hashed that is set from now on.
    pub fn scram_sha_1_iterations(&self) -> u32 {
        self.scram_sha_1_iterations.load(Ordering::Relaxed)
    }

    pub fn set_scram_sha_1_iterations(&self, iterations: u32) {
        self.scram_sha_1_iterations.store(iterations, Ordering::Relaxed);
    }

    /// How often a password is hashed that is set from now on.
    pub fn scram_sha_256_iterations(&self) -> u32 {
        self.scram_sha_256_iterations.load(Ordering::Relaxed)
    }

    pub fn set_scram_sha_256_iterations(&self, iterations: u32) {
        self.scram_sha_256_iterations.store(iterations, Ordering::Relaxed);
    }

    /// How many documents one `$densify` may make.
    pub fn densified_documents_max(&self) -> u64 {
        self.densified_documents_max.load(Ordering::Relaxed)
    }

    pub fn set_densified_documents_max(&self, most: u64) {
        self.densified_documents_max.store(most, Ordering::Relaxed);
    }

    /// Whether a command must name the version of the stable API that it means.
    pub fn requires_api_version(&self) -> bool {
        self.requires_api_version.load(Ordering::Relaxed)
    }

    pub fn set_requires_api_version(&self, required: bool) {
        self.requires_api_version.store(required, Ordering::Relaxed);
    }

    /// Whether users may change no data: `setUserWriteBlockMode`.
    pub fn user_writes_blocked(&self) -> bool {
        self.user_writes_blocked.load(Ordering::Relaxed)
    }

    pub fn block_user_writes(&self, blocked: bool) {
        self.user_writes_blocked.store(blocked, Ordering::Relaxed);
    }

    pub fn default_write_concern(&self) -> Option<Arc<Document>> {
        self.default_write_concern.read().clone()
    }

    pub fn set_default_write_concern(&self, concern: Option<Document>) {
        *self.default_write_concern.write() = concern.map(Arc::new);
    }

    /// Whether what an earlier run kept has been looked up.
    pub fn is_recalled(&self) -> bool {
        self.recalled.load(Ordering::Acquire)
    }

    pub fn note_recalled(&self) {
        self.recalled.store(true, Ordering::Release);
    }
}
