//! Who may run what: logins of connections, and the check that stands before every command.
//!
//! One [`Access`] belongs to a server, one [`Login`] to a connection. Every command passes [`admit`] and [`authorize`] in
//! dispatch. Users and roles are documents ([`store`]); whoever changes them takes a new generation, by which every
//! connection sees at its next command that it must look again. Where access is not enforced, both are a look at a flag.

mod audit;
mod check;
mod demands;
mod identity;
mod limits;
mod redaction;
pub(crate) mod store;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kilim_bson::{RawDocument, RawValue};
use kilim_engine::Engine;
use kilim_error::Result;
use parking_lot::Mutex;

pub use audit::Audit;
pub(crate) use check::{
    admit, authorize, check_cursor, claims_of, is_outdated, is_own, may_on_cluster, rights, unauthorized,
};
pub use demands::Demands;
pub(crate) use demands::asked;
pub(crate) use identity::{Conversation, Identity, Login};
pub(crate) use redaction::redacted;

use crate::registry::CommandSpec;
use limits::Failures;

/// What a server knows of access.
#[derive(Debug)]
pub struct Access {
    /// Whether commands are refused to those who may not run them: `--auth`.
    enforced: bool,
    /// Whether the first user may be made from this machine without a login.
    localhost_exception: bool,
    generation: AtomicU64,
    /// Held while a command changes users or roles, so that it changes what it has read.
    pub(crate) change: Mutex<()>,
    /// Set once there is a user or a role; from then on nobody gets in without a login.
    has_users: AtomicBool,
    failures: Failures,
    audit: Option<Audit>,
}

impl Access {
    /// Everybody may do everything.
    pub fn open() -> Access {
        Access {
            enforced: false,
            localhost_exception: false,
            generation: AtomicU64::new(0),
            change: Mutex::default(),
            has_users: AtomicBool::new(false),
            failures: Failures::default(),
            audit: None,
        }
    }

    /// Has logins and changes written down.
    pub fn with_audit(self, audit: Option<Audit>) -> Access {
        Access { audit, ..self }
    }

    /// Goes on in a new file of the same name.
    pub fn reopen_audit(&self) -> std::io::Result<()> {
        self.audit.as_ref().map_or(Ok(()), Audit::reopen)
    }

    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// Users log in, and may do what their roles say.
    pub fn enforced(localhost_exception: bool) -> Access {
        Access { enforced: true, localhost_exception, ..Access::open() }
    }

    pub fn is_enforced(&self) -> bool {
        self.enforced
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Users or roles have changed: every connection looks again.
    pub(crate) fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Whether somebody without a login may make the first user: he is on this machine, and nobody is there yet.
    pub(crate) fn excepts(&self, engine: &Engine, peer: std::net::IpAddr) -> Result<bool> {
        if !self.localhost_exception || !peer.to_canonical().is_loopback() {
            return Ok(false);
        }
        if !self.has_users.load(Ordering::Relaxed) && store::is_any(engine)? {
            self.has_users.store(true, Ordering::Relaxed);
        }
        Ok(!self.has_users.load(Ordering::Relaxed))
    }

    /// Called when a command has ended, and what it wrote is committed. Documents of users and roles may be written by any
    /// command that writes to `admin`, a restore's inserts among them.
    pub(crate) fn note_end(&self, spec: &CommandSpec, database: &str, body: RawDocument<'_>) {
        if !self.enforced {
            return;
        }
        let writes_to_admin = spec.writes && !spec.ends_transaction && database == "admin";
        let writes_by_pipeline = spec.name == "aggregate" && {
            let stages = body.get("pipeline").and_then(RawValue::as_array);
            let writes = |stage: RawValue<'_>| {
                let stage = stage.as_document().and_then(|stage| stage.iter().next());
                matches!(stage, Some(("$out" | "$merge", _)))
            };
            stages.is_some_and(|stages| stages.iter().any(writes))
        };
        // Its entries name their collections themselves.
        let writes_anywhere = spec.name == "applyOps";
        if writes_to_admin || writes_by_pipeline || writes_anywhere || spec.changes_access {
            self.note_change();
        }
    }

    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }
}

impl Default for Access {
    fn default() -> Access {
        Access::open()
    }
}
