//! The profiler: which commands are written down in a database's `system.profile`, and how.
//!
//! What a database asks for is known to this process only, as on mongod. Where nobody asks, a command costs one look
//! at a flag.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kilim_bson::Document;
use kilim_query::filter::Filter;
use kilim_storage::Environment;
use parking_lot::Mutex;

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
    environment: Environment,
}

#[derive(Debug)]
struct Settings {
    databases: HashMap<String, Asked>,
    /// How many of the slow ones are written down: none at 0, all at 1.
    sample_rate: f64,
}

/// What one database asks for.
#[derive(Debug, Clone, Default)]
struct Asked {
    level: ProfileLevel,
    /// Decides in place of time and sample rate.
    filter: Option<Arc<Filter>>,
}

/// Where a command is to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub log: bool,
    pub profile: bool,
}

impl Default for Profiler {
    fn default() -> Profiler {
        let settings = Settings { databases: HashMap::new(), sample_rate: 1.0 };
        let environment = Environment::default();
        Profiler { active: AtomicBool::new(false), settings: Mutex::new(settings), environment }
    }
}

impl Profiler {
    pub(crate) fn new(environment: Environment) -> Profiler {
        Profiler { environment, ..Profiler::default() }
    }

    /// Whether any database asks for anything beside slow commands in the log.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// What a database asked for goes with it.
    pub fn forget(&self, database: &str) {
        self.change(database, |asked| *asked = Asked::default());
    }

    pub fn level(&self, database: &str) -> ProfileLevel {
        self.asked(database).level
    }

    pub fn set_level(&self, database: &str, level: ProfileLevel) {
        self.change(database, |asked| asked.level = level);
    }

    pub fn filter(&self, database: &str) -> Option<Arc<Filter>> {
        self.asked(database).filter
    }

    /// Has a filter over entries decide which commands are told of.
    pub fn set_filter(&self, database: &str, filter: Option<Filter>) {
        self.change(database, |asked| asked.filter = filter.map(Arc::new));
    }

    pub fn sample_rate(&self) -> f64 {
        self.settings.lock().sample_rate
    }

    pub fn set_sample_rate(&self, rate: f64) {
        self.settings.lock().sample_rate = rate;
    }

    fn asked(&self, database: &str) -> Asked {
        match self.is_active() {
            true => self.settings.lock().databases.get(database).cloned().unwrap_or_default(),
            false => Asked::default(),
        }
    }

    fn change(&self, database: &str, change: impl FnOnce(&mut Asked)) {
        let mut settings = self.settings.lock();
        change(settings.databases.entry(database.to_owned()).or_default());
        settings.databases.retain(|_, asked| asked.level != ProfileLevel::Off || asked.filter.is_some());
        self.active.store(!settings.databases.is_empty(), Ordering::Relaxed);
    }

    /// Where a command that took so long is to be told of. `entry` is what a filter is asked about.
    pub fn wants(
        &self,
        database: &str,
        time: Duration,
        slow: Duration,
        entry: impl FnOnce() -> Document,
    ) -> Wanted {
        let asked = self.asked(database);
        let told = match &asked.filter {
            // One that fails on an entry does not ask for it.
            Some(filter) => filter.matches(entry().as_raw()).unwrap_or(false),
            None => time >= slow && self.is_drawn(),
        };
        let profile = match asked.level {
            ProfileLevel::Off => false,
            ProfileLevel::Slow => told,
            ProfileLevel::All => true,
        };
        Wanted { log: told, profile }
    }

    fn is_drawn(&self) -> bool {
        let rate = self.sample_rate();
        rate >= 1.0 || self.environment.random_share() < rate
    }
}
