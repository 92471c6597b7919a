//! What the tests stand on: specs, a real mongod to record them from, generators, servers to run.
//!
//! - [`shell`] reads and prints BSON as people write it.
//! - [`spec`] reads spec files, runs them against a server, compares or records.
//! - [`generate`] sends random histories to two servers and shrinks what differs.
//! - [`crash`] kills servers, cuts their power and fails their disks; [`history`] looks for anomalies.
//! - [`soak`] keeps a server under mixed load and watches whether it grows.
//! - [`seeds`] makes fuzz inputs of specs.
//! - [`subject`] starts servers, Kilim and mongod; [`oracle`] is a mongod to ask, [`link`] a connection to either.
//! - [`histories()`] says how many random histories a test runs.
//! - [`eventually()`] waits for what another thread or process is about to do.

pub mod crash;
mod eventually;
pub mod generate;
mod histories;
pub mod history;
pub mod link;
pub mod oracle;
pub mod process;
pub mod seeds;
pub mod shell;
pub mod soak;
pub mod spec;
pub mod subject;
pub mod transfer;

pub use eventually::{eventually, look_for};
pub use histories::histories;
