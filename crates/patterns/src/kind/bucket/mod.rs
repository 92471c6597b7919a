//! `bucket`: measurements are stored many in a record, and read and written one by one.
//!
//! The declaration is a [`Bucketing`]: which measurements belong together, how many of them, and what is told of them.
//! Nothing is copied from other documents, so there are no effects: whoever stores records asks `Bucketing` how documents
//! are packed, and takes them out again.

mod bucketing;
mod columns;
mod parse;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result};

pub use self::bucketing::{Bucketing, Packed, Place};
pub(super) use self::parse::parse;
use super::{Kind, Readings, WantedIndex};
use crate::declaration::{OnUserWrite, Options, WhileBuilding};
use crate::effect::{Change, Effect, Reader, Role};

const PLACE: &str = "bucket";

#[derive(Debug)]
struct Bucket {
    bucketing: Arc<Bucketing>,
}

impl Kind for Bucket {
    /// Measurements are the users'.
    fn maintained_paths(&self) -> Vec<Box<str>> {
        Vec::new()
    }

    fn evaluate(&self, _: &Change<'_>, _: &mut dyn Reader, _: &mut Vec<Effect>) -> Result<()> {
        Ok(())
    }

    fn readings(&self) -> Readings {
        Readings { source: Some(Vec::new()), target: Vec::new() }
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        let wrong = if options.while_building == WhileBuilding::Fail {
            "whileBuilding: \"fail\" is not for buckets: a measurement that is not packed yet is read as any other. Leave it out"
        } else if options.touch.is_some() {
            "'touch' is not for buckets: packing a measurement changes nothing that it holds. Leave it out"
        } else if options.on_user_write == OnUserWrite::Reject {
            "onUserWrite: \"reject\" is not for buckets: they maintain no fields. Leave it out"
        } else {
            return options.check_never_behind("buckets, which change nothing in measurements");
        };
        Err(Error::user(ErrorCode::BadValue, wrong))
    }

    /// By the first measurements are found; by the second those whose time has passed.
    fn indexes(&self) -> Vec<WantedIndex> {
        let Bucketing { field, meta, unique, expire_after_seconds, .. } = &*self.bucketing;
        let mut key = Document::new();
        meta.iter().for_each(|meta| key.push(meta, 1));
        key.push(field, 1);
        let mut wanted = WantedIndex::over(Role::Target, key, false);
        if *unique {
            wanted.options.push("unique", true);
        }
        let mut all = vec![wanted];
        if expire_after_seconds.is_some() && meta.is_some() {
            let mut key = Document::new();
            key.push(field, 1);
            all.push(WantedIndex::over(Role::Target, key, false));
        }
        all
    }

    /// Buckets are compared with their measurements by those who can read them.
    fn corrected(&self, _: RawDocument<'_>, _: &mut dyn Reader) -> Result<Option<Document>> {
        Ok(None)
    }

    fn bucketing(&self) -> Option<&Arc<Bucketing>> {
        Some(&self.bucketing)
    }
}
