//! What a plan did when it ran, shaped like the plan.

use std::sync::Arc;

use super::Node;

/// What an operator did; explain shows it. Fields that a kind of operator does not use stay zero.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub works: u64,
    pub advanced: u64,
    pub need_time: u64,
    pub is_eof: bool,
    pub keys_examined: u64,
    pub docs_examined: u64,
    /// Candidates of a `$text` that lack a phrase, or have what is negated.
    pub docs_rejected: u64,
    pub seeks: u64,
    pub dups_tested: u64,
    pub dups_dropped: u64,
    /// Bytes that went through a sort.
    pub sorted_bytes: u64,
    pub spills: u64,
    pub counted: u64,
    pub skipped: u64,
    /// Rows that came with their record.
    pub already_had_document: u64,
    /// What remains to be skipped.
    pub skip_left: u64,
    /// Of an intersection: how often each input did not have what the other had.
    pub failed: [u64; 2],
}

/// The counts of an operator and of its inputs, shaped like the plan.
#[derive(Debug, Clone, Default)]
pub struct StatsTree {
    pub stats: Stats,
    pub inputs: Vec<StatsTree>,
}

impl StatsTree {
    pub fn total_keys_examined(&self) -> u64 {
        self.stats.keys_examined + self.inputs.iter().map(StatsTree::total_keys_examined).sum::<u64>()
    }

    pub fn total_docs_examined(&self) -> u64 {
        self.stats.docs_examined + self.inputs.iter().map(StatsTree::total_docs_examined).sum::<u64>()
    }
}

/// How a candidate did.
#[derive(Debug, Clone)]
pub struct Trial {
    pub node: Arc<Node>,
    pub stats: StatsTree,
    pub score: f64,
}
