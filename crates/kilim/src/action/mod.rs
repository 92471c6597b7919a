//! Questions and writes on their way: options are methods, and `run` runs them.

mod aggregate;
mod count;
mod create_collection;
mod delete;
mod find;
mod find_and_modify;
mod index;
mod insert;
pub(crate) mod setters;
mod update;
mod watch;

pub use aggregate::Aggregate;
pub use count::{Count, Distinct};
pub use create_collection::CreateCollection;
pub use delete::Delete;
pub use find::{Find, FindOne, Many, One};
pub use find_and_modify::FindAndModify;
pub(crate) use find_and_modify::Modify;
pub use index::CreateIndex;
pub use insert::{InsertMany, InsertOne};
pub use update::{Update, UpdateModifications};
pub use watch::Watch;
pub(crate) use watch::Watched;

/// One document, or all that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    One,
    Many,
}
