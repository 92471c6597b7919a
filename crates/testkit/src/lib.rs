//! What the tests stand on: specs, a real mongod to record them from, generators, servers to run.
pub mod shell;
