//! `$sort`: documents in order.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Writer};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Modified, Paths, Stage};
use crate::expression::Dependencies;
use crate::sort::Sort;

#[derive(Debug, Clone)]
pub struct SortBy {
    pub sort: Arc<Sort>,
    /// Only this many are wanted, where a `$limit` follows.
    pub limit: Option<u64>,
    /// Its input comes nearly in this order, and tells how far it is: [`UnpackBucket::order`](super::UnpackBucket::order).
    pub bounded: bool,
}

impl SortBy {
    pub fn new(sort: Arc<Sort>) -> SortBy {
        SortBy { sort, limit: None, bounded: false }
    }
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(spec) = value else {
        return Err(Error::location(15973, "the $sort key specification must be an object"));
    };
    if spec.is_empty() {
        return Err(Error::location(15976, "$sort stage must have at least one sort key"));
    }
    if spec.get("$natural").is_some() {
        return Err(Error::location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    out.push(Stage::Sort(SortBy::new(Arc::new(Sort::parse_in(spec, context.scope)?))));
    Ok(())
}

impl Behaviour for SortBy {
    fn to_document(&self) -> Document {
        let mut writer = Writer::new();
        writer.open_document(if self.bounded { "$_internalBoundedSort" } else { "$sort" });
        writer.open_document("sortKey");
        for part in self.sort.parts() {
            part.append_to(&mut writer);
        }
        writer.close();
        if let Some(limit) = self.limit {
            writer.append("limit", RawValue::Int64(limit as i64));
        }
        writer.close();
        writer.finish()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        let fields = self.sort.parts().iter().filter(|part| part.score.is_none());
        fields.for_each(|part| needed.field(part.path.as_str()));
        Beyond::Later
    }

    fn modified(&self) -> Modified {
        // Which documents go by does not depend on their order, unless only the first are kept.
        match self.limit {
            None => Modified::Paths(Paths::default()),
            Some(_) => Modified::Unknown,
        }
    }
}
