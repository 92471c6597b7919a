//! Plans against mongod's, and plans against collection scans.

mod fixture;
mod property;
mod recorded;
