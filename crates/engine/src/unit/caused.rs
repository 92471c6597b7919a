//! What a command's writes caused beside themselves: for its reply.

/// Gathered by a unit. What a failed attempt caused is removed again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caused {
    /// Documents that maintenance wrote in the same commits.
    pub maintained: u64,
    /// What is pending because of the writes.
    pub pending: Option<CausedPending>,
}

/// Documents that a job writes after the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CausedPending {
    /// The job, as `patternJobs` shows it.
    pub job: u64,
    /// About how many documents it will write.
    pub documents: u64,
}

impl Caused {
    pub fn is_nothing(&self) -> bool {
        *self == Caused::default()
    }

    /// Notes that documents are pending. A reply names the first job, and the documents of all of them.
    pub fn add_pending(&mut self, job: u64, documents: u64) {
        let pending = self.pending.get_or_insert(CausedPending { job, documents: 0 });
        pending.documents += documents;
    }
}
