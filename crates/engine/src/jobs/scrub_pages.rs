//! A slow background pass over the pages on disk, to find damage before somebody needs what is damaged.
//!
//! A pass reads every page of every tree from disk and compares its checksum, at a bounded rate. It runs in a thread of
//! its own, one at a time, some time after the start and then once a week, and ends with the engine. What it finds is
//! logged and counted for `serverStatus`; nothing is repaired.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kilim_error::Result;
use kilim_storage::Space;

use crate::engine::Engine;
use crate::operation::Operation;
use crate::passes::BYTES_PER_SECOND;

impl Engine {
    /// Begins a pass if one is due. Returns at once.
    pub(crate) fn scrub_pages_if_due(&self, now: Instant) {
        if self.options.data.is_none() || !self.page_scrub.begin_if_due(self.started, now) {
            return;
        }
        let begun = self.spawn_job(move |engine| {
            let operation = engine.operations.start(0);
            if let Err(error) = engine.scrub_pages(&operation, BYTES_PER_SECOND) {
                tracing::warn!(%error, "the pages on disk could not be checked to the end");
            }
            engine.page_scrub.end();
        });
        if !begun {
            self.page_scrub.end();
        }
    }

    /// Reads every page from disk at this rate; how many are damaged.
    pub fn scrub_pages(&self, operation: &Operation, bytes_per_second: u64) -> Result<u64> {
        let begun = self.environment().now();
        let (mut bytes, mut damaged) = (0u64, 0u64);
        for (space, prefix) in self.store.trees() {
            let mut pace = |page_bytes: u64| {
                bytes += page_bytes;
                self.page_scrub.bytes.add(page_bytes);
                let due = Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64);
                // In short pieces, so that a server that stops need not wait.
                while let Some(wait) =
                    due.checked_sub(self.environment().since(begun)).filter(|wait| !wait.is_zero())
                {
                    operation.check()?;
                    self.environment().sleep(wait.min(Duration::from_millis(50)));
                }
                operation.check()
            };
            for problem in self.store.check_tree(space, prefix, &mut pace)? {
                damaged += 1;
                self.page_scrub.damaged_pages.add(1);
                let owner = self.owner_of(space, prefix);
                tracing::error!(owner, problem, "a page on disk is damaged");
            }
        }
        self.page_scrub.passes.add(1);
        self.page_scrub.ended_millis.store(self.now_millis(), Ordering::Relaxed);
        tracing::info!(
            bytes,
            damaged,
            seconds = self.environment().since(begun).as_secs(),
            "the pages on disk were checked"
        );
        Ok(damaged)
    }

    /// The collection or index that a tree belongs to, for people.
    pub(crate) fn owner_of(&self, space: Space, prefix: u32) -> String {
        let catalog = self.catalog();
        let mut collections = catalog.iter();
        let found = match space {
            Space::Meta => Some("the catalog".to_owned()),
            Space::Log => Some("the change log".to_owned()),
            _ => collections.find_map(|collection| {
                if collection.home().is_tree(space, prefix) {
                    return Some(collection.namespace.to_string());
                }
                let index =
                    collection.indexes.iter().find(|index| space == Space::Index && index.id.0 == prefix)?;
                Some(format!("{}, index {}", collection.namespace, index.spec.name))
            }),
        };
        found.unwrap_or_else(|| "something that was dropped".to_owned())
    }
}
