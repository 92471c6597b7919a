//! Records chosen at random.

use kilim_error::Result;
use kilim_storage::{Direction, Environment};

use super::{Records, ids};
use crate::ids::RecordId;

/// From this share on, visiting all and leaving some out costs less than looking for each.
pub(crate) const SCANNED_SHARE: f64 = 0.2;

impl Records {
    /// About this share of the records, whose numbers are below `end`: in order, each once; at least one where there
    /// are any.
    ///
    /// Numbers are drawn, and each stands for the first record from there on. So a record behind a gap is drawn more
    /// often: good enough to find drift, and as cheap as the sample is small.
    pub fn chosen(&self, share: f64, end: u64, environment: &Environment) -> Result<Vec<RecordId>> {
        let from = |record| ids(&self.snapshot, self.home.collection, record.., Direction::Forward).next();
        let count = self.home.counts(&self.snapshot)?.count.max(0) as u64;
        let wanted = (count as f64 * share).ceil() as usize;
        let mut drawn: Vec<u64> = (0..wanted).map(|_| environment.random() % end.max(1)).collect();
        drawn.sort_unstable();
        let mut records: Vec<RecordId> = Vec::with_capacity(drawn.len());
        for number in drawn {
            if records.last().is_some_and(|last| last.0 >= number) {
                continue;
            }
            match from(RecordId(number)) {
                Some(record) => records.push(record?),
                None => break,
            }
        }
        if records.is_empty() && count > 0 {
            records.extend(from(RecordId(0)).transpose()?);
        }
        Ok(records)
    }
}
