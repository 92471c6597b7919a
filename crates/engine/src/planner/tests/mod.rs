//! Plans against mongod's, and plans against collection scans.

mod fixture;
mod intersection;
mod property;
mod recorded;
