//! The patterns in force: what they are, the jobs that work on them, and what is pending of them on disk.

mod facts;
mod job;
mod lag;
mod pending;
mod refusal;
mod registry;

pub use facts::Behind;
pub(crate) use facts::{INDEX_PREFIX, has_collation, refuse_change};
pub use job::{Job, JobKind};
pub(crate) use lag::Lagging;
pub(crate) use pending::{Pending, all_of, count_of, in_snapshot};
pub use refusal::about;
pub use registry::{Counters, Pattern, PatternState, Registry};
