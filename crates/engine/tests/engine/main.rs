//! The engine as commands use it, without commands: schema changes, writes, transactions, retries and cursors,
//! over a store in memory and one on disk. After whatever a test did, `validate` must find nothing.

mod capped;
mod catalog;
mod collation;
mod cursor;
mod damage;
mod expiry;
mod index_build;
mod index_change;
mod model;
mod pattern;
mod pattern_attack;
mod pattern_behind;
mod pattern_chain;
mod pattern_collections;
mod pattern_copies;
mod pattern_counts;
mod pattern_crash;
mod pattern_history;
mod pattern_lifecycle;
mod pattern_out;
mod pattern_refill;
mod pattern_regression;
mod pattern_why;
mod pipeline;
mod retry;
mod schema;
mod support;
mod transaction;
mod validation;
mod write;
