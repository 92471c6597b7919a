//! The memory of one blocking stage.

use kilim_error::{Error, ErrorCode, Result};

use super::Options;

/// As on MongoDB: beyond it a stage goes to disk, or fails.
pub(crate) const STAGE_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Counts the bytes that a stage holds. The stage asks [`Budget::is_exceeded`] after each row and writes what
/// it holds to disk once [`Budget::spill`] has agreed.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// As error messages name it: `$group`.
    stage: &'static str,
    used: usize,
    max: usize,
    peak: usize,
    allow_disk_use: bool,
    spills: u64,
}

impl Budget {
    pub(crate) fn new(stage: &'static str, options: Options) -> Budget {
        let allow_disk_use = options.allow_disk_use;
        Budget { stage, used: 0, max: STAGE_BYTES_MAX, peak: 0, allow_disk_use, spills: 0 }
    }

    /// With another bound, for tests that want to see a spill.
    #[cfg(test)]
    pub(crate) fn with_max(self, max: usize) -> Budget {
        Budget { max, ..self }
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    pub(crate) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// The most that was ever held, for explain.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used > self.max
    }

    pub(crate) fn spills(&self) -> u64 {
        self.spills
    }

    /// Asks whether what is held may go to disk; from then on nothing is held.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if !self.allow_disk_use {
            return Err(Error::user(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Exceeded memory limit for {}, but didn't allow external sort. Pass allowDiskUse:true to opt in.",
                    self.stage
                ),
            ));
        }
        self.spills += 1;
        self.used = 0;
        Ok(())
    }
}
