//! What the tests stand on: specs, a real mongod to record them from, generators, servers to run.
//!
//! - [`shell`] reads and prints BSON as people write it.
//! - [`spec`] reads spec files, runs them against a server, compares or records.
//! - [`generate`] sends random histories to two servers and shrinks what differs.
//! - [`crash`] kills servers, cuts their power and fails their disks; [`history`] looks for anomalies.
//! - [`seeds`] makes fuzz inputs of specs.
//! - [`oracle`] is a mongod, [`server`] the `kilim` binary, [`link`] a connection to either.

pub mod crash;
pub mod generate;
pub mod history;
pub mod link;
pub mod oracle;
pub mod process;
pub mod seeds;
pub mod server;
pub mod shell;
pub mod spec;
pub mod subject;
pub mod transfer;
