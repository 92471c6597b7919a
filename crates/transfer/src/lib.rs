//! Data in and out: dumps and restores in mongodump's layout, imports and exports as text.
//!
//! Everything goes through a connection, so it works on a live server, Kilim or MongoDB, in either direction.
//! Memory is bounded by a batch. What a server refuses is counted and told, and does not end the transfer.

mod archive;
mod columns;
mod dump;
mod export;
mod import;
mod manifest;
mod metadata;
mod pages;
mod pieces;
mod place;
mod restore;
mod sink;
mod unfinished;

pub use columns::{Column, ColumnKind};
pub use dump::{Dump, Dumped};
pub use export::{Export, ExportFormat};
pub use import::{Import, ImportFormat, ImportMode, Imported};
pub use restore::{Restore, Restored};
pub use sink::Refused;
pub use unfinished::Unfinished;

/// Looks on while documents move.
pub trait Watch {
    /// So much of a collection or a file is done.
    fn moved(&mut self, what: &str, done: u64, total: u64);
    /// Something that the user should know although it goes on.
    fn warn(&mut self, message: &str);
}
