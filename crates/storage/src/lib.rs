//! Ordered bytes: snapshots, transactions, group commit and recovery.
//!
//! A [`Store`] holds four ordered maps from bytes to bytes, the [`Space`]s. Readers take a [`Snapshot`], an
//! immutable view that costs an `Arc` clone. Writers take a [`Transaction`]: a snapshot, an overlay of its own
//! writes, and write intents that make the first writer win. A transaction ends in the commit queue, where
//! leaders merge waiting write sets into one batch and one sync (`queue.rs`).
//!
//! What the bytes mean is for the engine to say: no BSON and no collections here. Two things only are shared
//! with it. A `Records` value begins with its commit time (8 bytes, little-endian), which is written as zeros and
//! filled in when the transaction enters the queue, because it is known there alone. And the first four bytes of a
//! key in `Records` and `Index` name the tree that it lies in.
//!
//! Invariant: a snapshot shows whole transactions, in commit order, without holes, and a transaction
//! acknowledged as [`Durability::Durable`] is in every snapshot of every later run.

mod backend;
mod background;
pub mod backup;
pub mod check;
mod clock;
mod compact;
mod counter;
mod disk;
mod environment;
mod extents;
mod format;
mod free_space;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod intents;
mod journal;
mod log;
mod memtable;
#[cfg(all(test, feature = "model"))]
mod model;
mod overlay;
mod points;
mod prefetch;
mod queue;
pub mod rebuild;
mod reclaim;
mod runs;
pub mod salvage;
mod scrub;
#[cfg(feature = "simulated")]
pub mod simulated;
#[cfg(any(test, feature = "fuzzing"))]
mod small;
mod snapshot;
mod space;
mod store;
mod sync;
mod transaction;
mod tree;
mod waiters;

pub use backend::memory_disk::{MemoryDisk, Survivors};
pub use clock::CommitTime;
pub use compact::Compacted;
pub use counter::Counter;
pub use environment::{Environment, World};
pub use intents::{Locked, Wait};
pub use log::{LogEvent, LogListener, LogOptions, LogPosition, LogRows, LogStats};
pub use queue::Ticket;
pub use snapshot::{Direction, Scan, Snapshot};
pub use space::{Bytes, Space};
pub use store::{Options, Stats, Store};
pub use transaction::{Durability, Savepoint, Transaction};
pub use waiters::Waiters;
