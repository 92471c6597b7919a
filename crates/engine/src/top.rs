//! How often collections are used, and how long that takes: what the command `top` shows.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use kilim_query::names;
use parking_lot::RwLock;

use crate::metrics::{Histogram, Latency};

/// So many collections are told apart; names that come later are not counted.
const COLLECTIONS_MAX: usize = 10_000;

/// What a command does to a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Query,
    GetMore,
    Insert,
    Update,
    Remove,
    /// A command that reads: `aggregate`, `count`, `distinct`.
    ReadCommand,
    /// `findAndModify`.
    WriteCommand,
    /// One that neither reads nor writes documents.
    Command,
}

#[derive(Debug, Default)]
pub struct Usage {
    pub reads: Latency,
    pub writes: Latency,
    pub queries: Latency,
    pub get_more: Latency,
    pub inserts: Latency,
    pub updates: Latency,
    pub removes: Latency,
    pub commands: Latency,
    /// What `$collStats` shows: by what a command is rather than by which locks it would take.
    pub reading: Histogram,
    pub writing: Histogram,
    pub other: Histogram,
}

#[derive(Debug, Default)]
pub struct Top {
    /// By database, then by collection.
    used: RwLock<HashMap<String, HashMap<String, Usage, RandomState>, RandomState>>,
}

impl Top {
    pub fn note(&self, database: &str, collection: &str, what: Use, time: Duration) {
        {
            let used = self.used.read();
            if let Some(usage) = used.get(database).and_then(|collections| collections.get(collection)) {
                usage.add(what, time);
                return;
            }
        }
        // The command was refused, and no reply can hold such a name.
        if names::check_parts(database, collection).is_err() {
            return;
        }
        let mut used = self.used.write();
        if used.values().map(|collections| collections.len()).sum::<usize>() >= COLLECTIONS_MAX {
            return;
        }
        let collections = used.entry(database.to_owned()).or_default();
        collections.entry(collection.to_owned()).or_default().add(what, time);
    }

    /// Forgets a collection that is dropped.
    pub fn forget(&self, database: &str, collection: &str) {
        if let Some(collections) = self.used.write().get_mut(database) {
            collections.remove(collection);
        }
    }

    /// One collection's usage; of one that was never used, nothing.
    pub fn of<T>(&self, database: &str, collection: &str, tell: impl FnOnce(&Usage) -> T) -> T {
        let used = self.used.read();
        match used.get(database).and_then(|collections| collections.get(collection)) {
            Some(usage) => tell(usage),
            None => tell(&Usage::default()),
        }
    }

    /// Every collection's usage, by name.
    pub fn each(&self, mut tell: impl FnMut(&str, &Usage)) {
        let used = self.used.read();
        let mut names: Vec<(String, &Usage)> = Vec::new();
        for (database, collections) in used.iter() {
            let of_database = collections.iter();
            names.extend(of_database.map(|(name, usage)| (format!("{database}.{name}"), usage)));
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        names.iter().for_each(|(name, usage)| tell(name, usage));
    }
}

impl Usage {
    fn add(&self, what: Use, time: Duration) {
        match what {
            Use::Query | Use::GetMore | Use::ReadCommand => {
                self.reads.add(time);
                self.reading.add(time);
            }
            Use::Insert | Use::Update | Use::Remove | Use::WriteCommand => {
                self.writes.add(time);
                self.writing.add(time);
            }
            Use::Command => {
                self.reads.add(time);
                self.other.add(time);
            }
        }
        match what {
            Use::Query => self.queries.add(time),
            Use::GetMore => self.get_more.add(time),
            Use::Insert => self.inserts.add(time),
            Use::Update => self.updates.add(time),
            Use::Remove => self.removes.add(time),
            Use::ReadCommand | Use::WriteCommand | Use::Command => self.commands.add(time),
        }
    }
}
