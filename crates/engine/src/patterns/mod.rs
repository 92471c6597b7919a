//! The patterns in force: what they are, the jobs that work on them, and what is pending of them on disk.

mod facts;
mod job;
mod pending;
mod pending_patterns;
mod refusal;
mod registry;
mod rewriters;

pub use facts::PendingSources;
pub(crate) use facts::{
    bare_of, check_over_elements, has_collation, owned_pages, refuse_change, serves, spec_of,
};
pub use job::{Job, JobKind};
pub(crate) use pending::{Pending, all_of, count_of, in_snapshot};
pub(crate) use pending_patterns::PendingPatterns;
pub use refusal::about;
pub use registry::{Counters, Pattern, PatternState, Registry};
pub(crate) use rewriters::Rewriters;
