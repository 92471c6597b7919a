//! Rows that are fetched one after the other and lie side by side in a bucket, as an index on meta and time has them.
//!
//! Each would need a look at its slip and one for its bucket. Once two of them were neighbours, the bucket is taken up with
//! its holes: it tells which record has the next position, and that this record is a slip where there is no hole.

use kilim_error::Result;

use super::buckets::{FoundBucket, Slip, buckets};
use super::{Image, Records, RowId, Shape};

/// Where the row lay that was fetched last.
#[derive(Default)]
pub(crate) enum Following {
    #[default]
    Nowhere,
    /// In a bucket that is not taken up.
    Beside(Slip),
    Within(Box<Walked>),
}

/// A bucket in which rows are fetched.
pub(crate) struct Walked {
    bucket: FoundBucket,
    /// The records of all positions.
    records: Vec<u64>,
    /// The position that was fetched last.
    at: usize,
}

impl Records {
    /// [`Records::fetch`] for rows one after the other.
    pub fn fetch_following(&self, row: RowId, last: &mut Following) -> Result<Option<Image>> {
        let Shape::Bucketed(_) = self.home.shape else { return self.fetch(row) };
        if let Following::Within(walked) = last
            && let Some(position) = walked.next_to(row.record.0)
        {
            walked.at = position;
            return self.see(Some(walked.bucket.image_of(&self.home, position)?));
        }
        let (image, slip) = self.fetch_with_slip(row)?;
        match (slip, &mut *last) {
            // One that was changed since is a row of its own amid its bucket's.
            (None, Following::Within(_)) => {}
            (Some(slip), Following::Within(walked)) if walked.bucket.number == slip.bucket => {
                walked.at = slip.position;
            }
            (Some(slip), Following::Beside(before)) if slip.is_next_to(*before) => {
                *last = self.walk_from(slip)?;
            }
            (Some(slip), _) => *last = Following::Beside(slip),
            (None, _) => *last = Following::Nowhere,
        }
        self.see(Some(image))
    }

    /// Takes up the bucket of a row that was just fetched.
    fn walk_from(&self, slip: Slip) -> Result<Following> {
        let found = buckets(&self.home, &self.snapshot, Some(slip.bucket)).next().transpose()?;
        let records = found.as_ref().and_then(FoundBucket::packed).and_then(|packed| packed.records());
        Ok(match (found, records) {
            (Some(bucket), Some(records)) => {
                Following::Within(Box::new(Walked { bucket, records, at: slip.position }))
            }
            _ => Following::Nowhere,
        })
    }
}

impl Walked {
    /// The position of a record, if it is one beside the last and the record is a slip.
    fn next_to(&self, record: u64) -> Option<usize> {
        let behind = self.at + 1;
        let position = match self.records.get(behind) == Some(&record) {
            true => behind,
            false => self.at.checked_sub(1).filter(|before| self.records.get(*before) == Some(&record))?,
        };
        self.bucket.is_in_use(position).then_some(position)
    }
}
