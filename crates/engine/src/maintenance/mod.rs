//! Maintenance: declared patterns kept true by the write that would break them.
//!
//! The door hands every change of a document that patterns concern to `carry`. It runs the database's patterns
//! in the order of their graph over the documents touched so far: those that keep fields of a touched document
//! shape its after-image, those that read from it touch others. At the end every touched document is written
//! once, and everything goes in one commit.
//!
//! What a pattern relies on may not change before that commit. So it shares the source documents that it copies
//! from, holds the groups that it changes alone, and reads both as of the newest commit: see `locks`.
//!
//! Invariant: nothing is written before everything that can fail has succeeded.

mod behind;
mod carry;
mod catch_up;
mod caused;
mod collections;
mod declare;
mod definitions;
mod drop;
mod estimate;
mod fill;
mod forecast;
mod group;
mod groups;
mod holder_walk;
mod holders;
mod jobs;
mod lag;
mod locks;
mod look;
mod modify;
mod pending;
mod reader;
mod ready;
mod refill;
mod refusal;
mod registry;
mod scrub;
mod sources;
mod states;
mod stats;
mod verify;

pub(crate) use behind::{Audience, Patches, see_newest};
pub(crate) use carry::{carry, carry_deferred};
pub use caused::{Caused, LeftPending};
pub(crate) use collections::ending_with;
pub(crate) use declare::check_user_paths;
pub use definitions::DEFINITIONS;
pub(crate) use definitions::{adopt, load, put_changes, refuse_change};
pub use estimate::{Estimate, FanOutSizes};
pub use forecast::{Planned, forecast, maintained_among};
pub(crate) use groups::Deferred;
pub use jobs::{Job, JobKind};
pub(crate) use lag::Lagging;
pub(crate) use locks::Contended;
pub use refusal::about;
pub use registry::{Counters, Pattern, PatternId, PatternState, Registry};
pub use scrub::Scrubbing;
pub use stats::Behind;
pub use verify::{Part, Verification};
