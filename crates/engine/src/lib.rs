//! The database without a socket: catalog, indexes, planner, operators, the one write door, sessions, cursors.

pub mod backup;
pub mod catalog;
pub mod cursor;
pub mod ddl;
mod engine;
pub mod fail_point;
pub mod figures;
pub mod history;
pub mod ids;
pub mod index;
pub mod jobs;
pub mod layout;
pub mod limits;
pub mod maintenance;
pub mod metrics;
mod namespace;
mod open;
pub mod operation;
pub mod operator;
pub mod passes;
pub mod pipeline;
pub mod plan;
pub mod planner;
pub mod profile;
pub mod read;
pub mod records;
pub mod session;
pub mod tail;
pub mod top;
pub mod unit;
pub mod write;

pub use engine::{Engine, EngineOptions, new_uuid};
pub use kilim_query::names::check_database;
pub use kilim_storage::{CommitTime, Durability, Options as StorageOptions, Snapshot};
pub use namespace::Namespace;
