//! The profiler: which commands are written down in a database's `system.profile`, and how.
//!
//! What a database asks for is known to this process only, as on mongod. Where nobody asks, a command costs one look
//! at a flag.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kilim_bson::{Document, doc};
use kilim_error::Result;
use kilim_storage::Durability;
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::write::{Unit, insert};

/// How much a profile holds, as mongod's.
const PROFILE_BYTES: i32 = 1024 * 1024;

/// Which commands of a database are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProfileLevel {
    #[default]
    Off,
    Slow,
    All,
}

#[derive(Debug)]
pub struct Profiler {
    /// Some database asks for something.
    active: AtomicBool,
    settings: Mutex<Settings>,
}

#[derive(Debug)]
struct Settings {
    levels: HashMap<String, ProfileLevel>,
    /// How many of the slow ones are written down: none at 0, all at 1.
    sample_rate: f64,
}

impl Default for Profiler {
    fn default() -> Profiler {
        let settings = Settings { levels: HashMap::new(), sample_rate: 1.0 };
        Profiler { active: AtomicBool::new(false), settings: Mutex::new(settings) }
    }
}

impl Profiler {
    pub fn level(&self, database: &str) -> ProfileLevel {
        self.settings.lock().levels.get(database).copied().unwrap_or_default()
    }

    pub fn set_level(&self, database: &str, level: ProfileLevel) {
        let mut settings = self.settings.lock();
        settings.levels.insert(database.to_owned(), level);
        settings.levels.retain(|_, level| *level != ProfileLevel::Off);
        self.active.store(!settings.levels.is_empty(), Ordering::Relaxed);
    }

    pub fn sample_rate(&self) -> f64 {
        self.settings.lock().sample_rate
    }

    pub fn set_sample_rate(&self, rate: f64) {
        self.settings.lock().sample_rate = rate;
    }

    /// Whether a command that took so long is to be written down.
    pub fn wants(&self, database: &str, time: Duration, slow: Duration) -> bool {
        if !self.active.load(Ordering::Relaxed) {
            return false;
        }
        match self.level(database) {
            ProfileLevel::Off => false,
            ProfileLevel::All => true,
            ProfileLevel::Slow => time >= slow && rand::random::<f64>() < self.sample_rate(),
        }
    }
}

impl Engine {
    /// Writes a command down in its database's profile, which is made where it is missing.
    pub fn write_profile(&self, operation: &Arc<Operation>, database: &str, entry: &Document) -> Result<()> {
        let namespace =
            Namespace { database: database.to_owned(), collection: Namespace::PROFILE.to_owned() };
        if self.collection(&namespace).is_none() {
            self.create_collection(&namespace, doc! {"capped": true, "size": PROFILE_BYTES})?;
        }
        let mut unit = Unit::new(self, operation.clone(), Durability::Relaxed);
        insert(&mut unit, &namespace, &[entry.as_raw()], true, |_| 0)?;
        unit.settle()
    }
}
