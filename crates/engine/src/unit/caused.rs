//! What a command's writes caused beside themselves: for its reply.

/// Gathered by a unit; what a failed attempt had caused is taken back with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caused {
    /// Documents that maintenance wrote in the same commits.
    pub maintained: u64,
    /// What it left for later.
    pub pending: Option<LeftPending>,
}

/// Work that a job does behind the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftPending {
    /// The job, as `patternJobs` shows it.
    pub job: u64,
    /// About how many documents it will write.
    pub documents: u64,
}

impl Caused {
    pub fn is_nothing(&self) -> bool {
        *self == Caused::default()
    }

    /// Notes work that was left to a job. A command tells of the first job, and of all documents.
    pub fn leave(&mut self, job: u64, documents: u64) {
        let pending = self.pending.get_or_insert(LeftPending { job, documents: 0 });
        pending.documents += documents;
    }
}
