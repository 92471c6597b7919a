//! Maintenance: declared patterns kept true by the write that would break them.
//!
//! The door hands every change of a document that patterns concern to `evaluation`. It evaluates the database's patterns
//! in the order of their graph over the documents touched so far. A pattern that maintains fields of a touched document
//! changes its after-image; a pattern that reads from it touches other documents. At the end every touched document is
//! stored once, and everything goes in one commit.
//!
//! What a pattern relies on must not change before that commit. So the unit shares the source documents that are copied
//! from, holds the groups that change alone, and reads both as of the newest commit: see [`crate::unit`].
//!
//! Invariant: nothing is written before everything that can fail has succeeded.

mod evaluation;
mod forecast;
mod forecast_pages;
mod group;
mod groups;
mod holder_walk;
mod holders;
mod kept;
mod look;
mod look_at_trees;
mod pending;
mod reader;
mod refill;
mod sources;
mod trees;
mod user_paths;

pub(crate) use evaluation::{
    Evaluation, Refresh, carry_deferred, evaluate, refresh_document, refresh_groups,
};
pub use forecast::{Planned, forecast, maintained_among};
pub(crate) use group::Group;
pub(crate) use holder_walk::HolderWalk;
pub(crate) use holders::{catch_up_holder, restricted};
pub(crate) use look::{count_of, find_by_unique};
pub(crate) use pending::{is_async, is_read_by_others, is_same, reader_of};
pub(crate) use reader::SnapshotReader;
pub(crate) use sources::{Use, find_unique, read_newest, unique_index};
pub(crate) use trees::{is_noted, note_all};
pub(crate) use user_paths::{check_user_paths, read_only};
