//! The upkeep of patterns: they are declared, filled, verified, repaired, modified and dropped, and what is pending of them
//! is written.
//!
//! All of it goes through the door, like writes of users. Lower layers reach it by the trait [`crate::engine::Upkeep`]: when
//! a write makes something pending, and when a document is inserted among the definitions.

mod buckets;
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
mod modify;
mod pace;
mod pages;
mod pending_job;
mod scrub;
mod seal;
mod states;
mod stats;
mod verify;
mod versions;

pub(crate) use buckets::{faults_of, put_buckets_in_force};
pub(crate) use collections::ending_with;
pub(crate) use definitions::{load, put_changes};
pub use estimate::{Estimate, FanOutSizes};
pub(crate) use pages::{expected as expected_head, put_pages_in_force};
pub(crate) use states::are_same;
pub use verify::{Part, Verification};
pub(crate) use versions::put_versions_in_force;
