//! Fail points: commands fail on request, so that drivers' retries can be tested. Only with `--test-commands`.
//!
//! And moments: between two steps of a schema change, a test may do what another client would have to do just then.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kilim_bson::Document;
use parking_lot::Mutex;

/// The fail points that there are, by MongoDB's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailPoint {
    /// Chosen commands fail.
    FailCommand,
    /// A numbered write fails, or its connection is closed when it is done.
    OnPrimaryTransactionalWrite,
    /// Whatever has a time limit is past it.
    MaxTimeAlwaysTimeOut,
    /// Nothing ever is.
    MaxTimeNeverTimeOut,
    /// A getMore fails and loses its cursor.
    FailGetMoreAfterCursorCheckout,
}

impl FailPoint {
    pub fn named(name: &str) -> Option<FailPoint> {
        Some(match name {
            "failCommand" => FailPoint::FailCommand,
            "onPrimaryTransactionalWrite" => FailPoint::OnPrimaryTransactionalWrite,
            "maxTimeAlwaysTimeOut" => FailPoint::MaxTimeAlwaysTimeOut,
            "maxTimeNeverTimeOut" => FailPoint::MaxTimeNeverTimeOut,
            "failGetMoreAfterCursorCheckout" => FailPoint::FailGetMoreAfterCursorCheckout,
            _ => return None,
        })
    }
}

/// When a fail point fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Off,
    Always,
    /// So many times more.
    Times(u64),
    /// Whenever so many have passed.
    Skip(u64),
}

/// What happens then.
#[derive(Debug, Clone)]
pub enum Consequence {
    Command(FailCommand),
    /// As it was given.
    Data(Document),
}

#[derive(Debug, Clone, Default)]
pub struct FailCommand {
    pub commands: HashSet<String>,
    pub app_name: Option<String>,
    /// Only commands on this collection.
    pub namespace: Option<String>,
    pub error_code: Option<i32>,
    pub error_labels: Option<Vec<String>>,
    pub close_connection: bool,
    pub write_concern_error: Option<Document>,
    pub block_ms: u64,
}

#[derive(Debug)]
struct Set {
    mode: Mode,
    consequence: Consequence,
    /// How often it has fired since the server began.
    fired: u64,
}

#[derive(Debug, Default)]
pub struct FailPoints {
    points: Mutex<HashMap<FailPoint, Set>>,
}

impl FailPoints {
    /// Sets a fail point; gives how often it has fired.
    pub fn set(&self, point: FailPoint, mode: Mode, consequence: Consequence) -> u64 {
        let mut points = self.points.lock();
        let fired = points.get(&point).map_or(0, |set| set.fired);
        points.insert(point, Set { mode, consequence, fired });
        fired
    }

    /// Whether a fail point was ever set.
    pub fn was_set(&self, point: FailPoint) -> bool {
        self.points.lock().contains_key(&point)
    }

    /// Whether a command is to fail now, and how.
    pub fn fire_command(&self, concerns: impl Fn(&FailCommand) -> bool) -> Option<FailCommand> {
        let wanted = |consequence: &Consequence| match consequence {
            Consequence::Command(command) => concerns(command),
            Consequence::Data(_) => false,
        };
        match self.fire_if(FailPoint::FailCommand, wanted)? {
            Consequence::Command(command) => Some(command),
            Consequence::Data(_) => None,
        }
    }

    /// Whether a fail point fires now, and with which data.
    pub fn fire(&self, point: FailPoint) -> Option<Document> {
        match self.fire_if(point, |_| true)? {
            Consequence::Data(data) => Some(data),
            Consequence::Command(_) => None,
        }
    }

    fn fire_if(&self, point: FailPoint, wanted: impl Fn(&Consequence) -> bool) -> Option<Consequence> {
        let mut points = self.points.lock();
        let set = points.get_mut(&point).filter(|set| set.mode != Mode::Off && wanted(&set.consequence))?;
        match &mut set.mode {
            Mode::Skip(0) | Mode::Off | Mode::Always => {}
            Mode::Skip(left) => {
                *left -= 1;
                return None;
            }
            Mode::Times(left) => {
                *left -= 1;
                if *left == 0 {
                    set.mode = Mode::Off;
                }
            }
        }
        set.fired += 1;
        Some(set.consequence.clone())
    }
}

/// Moments at which other clients could get in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A declaration has chosen names for its indexes, and is about to build them.
    IndexesNamed,
    /// It has built them, and is about to put its pattern in force.
    IndexesBuilt,
    /// A filling has found the records of its next batch, and is about to visit them.
    BatchFound,
    /// A filling has ended, and the pattern is about to be checked.
    Filled,
    /// A rename has looked at its collections, and is about to hold them.
    RenameLooked,
    /// A rename has deleted the documents of its target.
    RenameEmptied,
}

/// What a test does at moments.
type Visitor = Arc<dyn Fn(Moment) + Send + Sync>;

/// Moments that a test may step into. Nobody does in a server.
#[derive(Default)]
pub struct Moments {
    is_watched: AtomicBool,
    visitor: Mutex<Option<Visitor>>,
}

impl Moments {
    /// From here on `visitor` is called at every moment, by the thread that comes to it.
    pub fn watch(&self, visitor: impl Fn(Moment) + Send + Sync + 'static) {
        *self.visitor.lock() = Some(Arc::new(visitor));
        self.is_watched.store(true, Ordering::Relaxed);
    }

    pub(crate) fn pass(&self, moment: Moment) {
        if self.is_watched.load(Ordering::Relaxed) {
            // Not held meanwhile: what it does comes to moments too.
            let visitor = self.visitor.lock().clone();
            visitor.iter().for_each(|visitor| visitor(moment));
        }
    }
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moments").field("is_watched", &self.is_watched).finish_non_exhaustive()
    }
}
