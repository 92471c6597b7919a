//! `outlier`: a long array continues in pages beside its document.
//!
//! The declaration is a [`Paging`]: which array, how much of it stays inline, which fields tell of the rest. Nothing is copied
//! from other documents, so there are no effects: whoever stores records asks `Paging` how a document is divided.

mod paging;
mod parse;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, doc};
use kilim_error::{Error, ErrorCode, Result};

pub use self::paging::{Paging, bytes_of, elements_of, extended_page, page, page_len};
pub(super) use self::parse::parse;
use super::{Kind, Readings, WantedIndex};
use crate::declaration::{OnUserWrite, Options, WhileBuilding};
use crate::effect::{Change, Effect, Reader, Role};

const PLACE: &str = "outlier";

#[derive(Debug)]
struct Outlier {
    paging: Arc<Paging>,
}

impl Kind for Outlier {
    /// The array is the users'; what tells of it is the pattern's.
    fn maintained_paths(&self) -> Vec<Box<str>> {
        vec![self.paging.flag.clone(), self.paging.count.clone()]
    }

    fn evaluate(&self, _: &Change<'_>, _: &mut dyn Reader, _: &mut Vec<Effect>) -> Result<()> {
        Ok(())
    }

    fn readings(&self) -> Readings {
        Readings { source: Some(Vec::new()), target: vec![self.paging.field.clone()] }
    }

    fn way_out(&self, _: &str) -> Option<String> {
        Some(format!("It follows from the array '{}': change that", self.paging.field))
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        let wrong = if options.while_building == WhileBuilding::Fail {
            "whileBuilding: \"fail\" is not for outliers: an array that is not divided yet is read whole. Leave it out"
        } else if options.touch.is_some() {
            "'touch' is not for outliers: dividing an array changes nothing that it holds. Leave it out"
        } else if options.on_user_write == OnUserWrite::Reject {
            "onUserWrite: \"reject\" is not for outliers: whole documents carry the flag and the count. Leave it out"
        } else {
            return options.check_never_behind("outliers, whose pages are written with their document");
        };
        Err(Error::user(ErrorCode::BadValue, wrong))
    }

    /// By it elements are found, wherever they lie.
    fn indexes(&self) -> Vec<WantedIndex> {
        let mut key = Document::new();
        key.push(&self.paging.field, 1);
        vec![WantedIndex::over(Role::Target, key, true)]
    }

    /// Pages are compared with their document by those who can read them.
    fn corrected(&self, _: RawDocument<'_>, _: &mut dyn Reader) -> Result<Option<Document>> {
        Ok(None)
    }

    fn paging(&self) -> Option<&Arc<Paging>> {
        Some(&self.paging)
    }

    fn explained(&self) -> Document {
        doc! {"field": &*self.paging.field, "limit": self.paging.limit as i64}
    }
}
