//! `schemaVersion`: documents of an older version are read and written as those of the newest.
//!
//! A declaration is one step between two versions ([`VersionStep`]); the steps of a collection make its [`Versions`].
//! Nothing is copied from other documents, so there are no effects: whoever stores records asks `Versions` what a stored
//! document is in the current version, and what a document that a user writes is stored as.

mod conversion;
mod merge;
mod parse;
mod step;
#[cfg(test)]
mod tests;
mod versions;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

pub(super) use self::parse::parse;
pub use self::step::{OnError, VersionCheck, VersionStep};
pub use self::versions::Versions;
use super::{Kind, Readings};
use crate::declaration::{OnUserWrite, Options, WhileBuilding};
use crate::effect::{Change, Effect, Reader};
use crate::path::with_value;

const PLACE: &str = "schemaVersion";

#[derive(Debug)]
struct SchemaVersion {
    step: Arc<VersionStep>,
}

impl Kind for SchemaVersion {
    /// The version is the pattern's; what conversions write is the users'.
    fn maintained_paths(&self) -> Vec<Box<str>> {
        vec![self.step.field.clone()]
    }

    fn evaluate(&self, _: &Change<'_>, _: &mut dyn Reader, _: &mut Vec<Effect>) -> Result<()> {
        Ok(())
    }

    fn readings(&self) -> Readings {
        Readings::default()
    }

    fn way_out(&self, path: &str) -> Option<String> {
        Some(format!(
            "'{path}' says which version a document has: write the whole document in another version, or write through the \
             name of that version"
        ))
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        let wrong = if options.while_building == WhileBuilding::Fail {
            "whileBuilding: \"fail\" is not for versions: all documents are seen in the new one at once. Leave it out"
        } else if options.touch.is_some() {
            "'touch' is not for versions: a conversion changes nothing that readers see. Leave it out"
        } else if options.on_user_write == OnUserWrite::Reject {
            "onUserWrite: \"reject\" is not for versions: whole documents are written in any of them. Leave it out"
        } else if options.backfill != Options::default().backfill {
            "'backfill' is not for versions: 'schemaVersion.background' says how fast documents are converted"
        } else if !options.create_indexes {
            "createIndexes: false is not for versions, which need no index of their own: leave it out"
        } else {
            return options.check_never_behind("versions, which cost no further write");
        };
        Err(Error::user(ErrorCode::BadValue, wrong))
    }

    fn is_about_data(&self, field: &str) -> bool {
        field != "background"
    }

    /// A document that is seen in an older version could not be converted (`onError: "keepOld"`).
    fn corrected(&self, target: RawDocument<'_>, _: &mut dyn Reader) -> Result<Option<Document>> {
        // One that is seen without a version was not converted either: it would say so.
        let says_none = matches!(target.get(&self.step.field), None | Some(RawValue::Null));
        let is_old = says_none || self.step.says(target) == Some(self.step.from);
        let expected = || with_value(target, &self.step.field, Some(self.step.to_value().as_raw()));
        Ok(is_old.then(expected))
    }

    /// Documents keep their version.
    fn stripped(&self, _: RawDocument<'_>) -> Result<Option<Document>> {
        Ok(None)
    }

    fn version_step(&self) -> Option<&Arc<VersionStep>> {
        Some(&self.step)
    }
}
