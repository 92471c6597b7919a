//! The upkeep of patterns: declared, filled, checked, repaired, changed, dropped, and what is pending of them written.
//!
//! All of it goes through the door, as writes of users do. What a write leaves for later and what is inserted among the
//! definitions comes back here by the trait [`crate::engine::Upkeep`].

mod catch_up;
mod chain;
mod collections;
mod declare;
mod definitions;
mod drop;
mod estimate;
mod fill;
mod hand_over;
mod jobs;
mod lag;
mod modify;
mod scrub;
mod states;
mod stats;
mod verify;

pub(crate) use collections::ending_with;
pub(crate) use definitions::{load, put_changes};
pub use estimate::{Estimate, FanOutSizes};
pub use verify::{Part, Verification};
