//! Declared patterns: what a declaration says, and which writes keep it true.
//!
//! A pattern is a function. Given a document before and after a change, and a way to ask for other documents,
//! it says what else must be true: [`Kind::evaluate`] answers with [`Effect`]s, which are data. Nothing here knows how
//! documents are stored, locked or sent: the engine applies effects inside a write's transaction, and whoever reads a
//! change stream can apply those of its events.
//!
//! Invariant: what a pattern keeps by changes equals what it computes from scratch, after any history.

mod argument;
pub mod declaration;
mod effect;
mod exact_sum;
mod expression;
mod graph;
mod kind;
mod packed;
mod path;
mod rollup;

pub use declaration::{Declaration, Options};
pub use effect::{Cause, Change, Copied, Due, DueByKey, Effect, Reader, Role, Sight, key_bytes};
pub use exact_sum::ExactSum;
pub use graph::{check_claims, in_order};
pub use kind::{
    Breach, Bucketing, Forest, Judgement, Kind, LabelSide, Nodes, OnError, Packed, Paging, Place, Position,
    Rules, Served, Shift, Step, StoredRange, Title, Tree, VersionCheck, VersionStep, Versions, WantedIndex,
    bytes_of, elements_of, extended_page, page, page_len, stored_ranges,
};
pub use path::{has_value, lies_within, overlap, with_value};
pub use rollup::{Gathering, GroupState, Outcome, Refill, Rollup, Row, Walk, WhenNotMatched};
