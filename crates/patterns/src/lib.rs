//! Declared patterns: what a declaration says, and which writes keep it true.
//!
//! A pattern is a function. Given a document before and after a change, and a way to ask for other documents,
//! it says what else must be written. Nothing here knows how documents are stored, locked or sent: the
//! engine runs these functions inside a write's transaction, and whoever reads a change stream can run them on its
//! events.
//!
//! Invariant: what a pattern keeps by changes equals what it computes from scratch, after any history.

pub mod declaration;
mod derived;
mod exact_sum;
mod graph;
mod packed;
mod path;
mod reference;
mod rollup;

pub use declaration::{Declaration, Kind, Options};
pub use derived::Derived;
pub use exact_sum::ExactSum;
pub use graph::{check_claims, in_order};
pub use path::{lies_within, overlap, with_value};
pub use reference::{Copied, FanOut, OnMissing, OnSourceDelete, Reference, Shaped};
pub use rollup::{GroupState, Outcome, Refill, Rollup, Row, Upkeep, Walk, WhenNotMatched};
