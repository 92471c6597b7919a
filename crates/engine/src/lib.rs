//! The database without a socket: catalog, indexes, planner, operators, the one write door, sessions, cursors.

pub mod capped;
pub mod catalog;
pub mod cursor;
pub mod ddl;
mod engine;
pub mod expiry;
pub mod fail_point;
pub mod figures;
pub mod history;
pub mod index;
pub mod layout;
pub mod limits;
pub mod maintenance;
pub mod metrics;
mod namespace;
pub mod operation;
pub mod operator;
pub mod pipeline;
pub mod planner;
pub mod profile;
pub mod read;
pub mod session;
pub mod shape;
pub mod tail;
pub mod top;
pub mod validate;
pub mod validation;
pub mod view;
pub mod write;

pub use engine::{Engine, EngineOptions};
pub use kilim_query::names::check_database;
pub use kilim_storage::{CommitTime, Durability, Options as StorageOptions, Snapshot};
pub use namespace::Namespace;
