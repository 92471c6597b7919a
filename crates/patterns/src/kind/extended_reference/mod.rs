//! `extendedReference`: copies of fields of the documents that a document refers to.
//!
//! Where the reference and the copy stand to each other is read from their paths ([`Site`]): side by side, in the
//! document or in each element of an array; the reference within the copy; or copies as fields of the
//! document itself. A reference may be an array of references, whose copies are then an array in the same
//! order.
//!
//! One walk serves everything: it finds each reference and writes what it is told for its copy
//! ([`Reference::rewrite`]).

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, compare, encode_value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;

use super::Kind;
use crate::effect::Copied;
use crate::path::{Names, visit_values};

mod copy;
mod kind;
mod parse;
mod site;
#[cfg(test)]
mod tests;

use self::copy::CopyFields;
use self::site::Site;

pub(super) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Reference::parse(spec)?))
}

#[derive(Debug, Clone)]
struct Reference {
    /// The collection of the sources.
    from: Box<str>,
    local_field: Box<str>,
    foreign_field: Box<str>,
    foreign_names: Names,
    /// None for flat copies.
    as_path: Option<Box<str>>,
    fields: CopyFields,
    /// Copies of other documents are frozen.
    while_filter: Option<Filter>,
    on_source_delete: OnSourceDelete,
    on_missing: OnMissing,
    site: Site,
}

/// What becomes of the copies of a source that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnSourceDelete {
    Keep,
    Unset,
    Null,
    /// The documents that refer to it are deleted too.
    Cascade,
    /// It cannot be deleted while there are any.
    Restrict,
}

/// What a reference to nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnMissing {
    Null,
    Reject,
}

/// What a write of a document becomes.
#[derive(Debug)]
enum Shaped {
    /// Nothing to do.
    AsItIs,
    /// The copies as they must be. `replaced`: a user's values gave way.
    To { document: Document, replaced: bool },
}

impl Reference {
    /// What a source gives to its copies.
    fn copy_of(&self, source: RawDocument<'_>) -> Document {
        self.fields.copy_of(source)
    }

    /// What documents refer to a source by: one key, or as many as an array holds.
    fn keys_of_source<'a>(&self, source: RawDocument<'a>) -> Vec<RawValue<'a>> {
        let mut keys: Vec<RawValue<'a>> = Vec::new();
        visit_values(source, &self.foreign_names, &mut |key| {
            if is_reference(key) && !has(&keys, key) {
                keys.push(key);
            }
        });
        keys
    }

    /// Whether copies in this document follow their sources. Where that cannot be computed, they do not: the
    /// document's write was possible before.
    fn is_live(&self, document: RawDocument<'_>) -> Result<bool> {
        match self.while_filter.as_ref().map(|filter| filter.matches(document)) {
            None => Ok(true),
            Some(Err(Error::User(_))) => Ok(false),
            Some(matched) => matched,
        }
    }

    /// Whether a document has a copy that does not follow its source.
    fn is_frozen_copy(&self, document: RawDocument<'_>) -> Result<bool> {
        Ok(!self.is_live(document)? && self.site.has_copies(document))
    }

    /// The different references of a document, in order of their keys.
    fn references(&self, document: RawDocument<'_>) -> Vec<Value> {
        let mut found: Vec<(Vec<u8>, Value)> = Vec::new();
        self.site.visit(document, &mut |reference, _| {
            let mut key = Vec::new();
            encode_value(&mut key, reference, false);
            found.push((key, reference.to_value()));
        });
        found.sort_by(|left, right| left.0.cmp(&right.0));
        found.dedup_by(|left, right| left.0 == right.0);
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// Visits the references of a document, the same one perhaps more than once.
    fn visit_references(&self, document: RawDocument<'_>, visit: &mut dyn FnMut(RawValue<'_>)) {
        self.site.visit(document, &mut |reference, _| visit(reference));
    }

    /// The document with what `copied` says for each of its references.
    fn rewrite(
        &self,
        document: RawDocument<'_>,
        copied: &mut dyn FnMut(RawValue<'_>) -> Result<Copied>,
    ) -> Result<Document> {
        self.site.rewrite(document, copied)
    }

    /// The after-image of a write with its copies as they must be. `source` finds a source by its key.
    fn shape(
        &self,
        before: Option<RawDocument<'_>>,
        after: RawDocument<'_>,
        source: &mut dyn FnMut(RawValue<'_>) -> Result<Option<Document>>,
    ) -> Result<Shaped> {
        let live = self.is_live(after)?;
        let unchanged = match before {
            Some(before) => self.is_live(before)? == live && self.site.same(before, after),
            None => false,
        };
        if unchanged {
            return Ok(Shaped::AsItIs);
        }
        // A frozen copy is what it was, as long as it is of the same source.
        let frozen = match before {
            Some(before) if !live => self.site.pairs(before),
            _ => Vec::new(),
        };
        let document = self.rewrite(after, &mut |reference| {
            let old = frozen.iter().find(|(key, _)| compare(key.as_raw(), reference) == Ordering::Equal);
            if let Some((_, copy)) = old {
                return Ok(copy.clone());
            }
            match source(reference)? {
                Some(source) => Ok(Copied::To(self.copy_of(source.as_raw()))),
                // What a deleted source left is kept for as long as the document refers to it.
                None if self.on_source_delete == OnSourceDelete::Keep
                    && let Some(copy) = before.and_then(|before| self.left_behind(before, reference)) =>
                {
                    Ok(Copied::To(copy))
                }
                None if self.on_missing == OnMissing::Reject => Err(self.dangling(reference)),
                None => Ok(Copied::Null),
            }
        })?;
        if document.as_bytes() == after.as_bytes() {
            return Ok(Shaped::AsItIs);
        }
        let replaced = self.site.has_copies(after);
        Ok(Shaped::To { document, replaced })
    }

    /// The copy that a document has for a reference.
    fn left_behind(&self, document: RawDocument<'_>, reference: RawValue<'_>) -> Option<Document> {
        let mut pairs = self.site.pairs(document).into_iter();
        pairs.find_map(|(key, copy)| match copy {
            Copied::To(copy) if compare(key.as_raw(), reference) == Ordering::Equal => Some(copy),
            _ => None,
        })
    }

    /// The document with the copies that it must have, whatever is there; none where it has them. A copy that does not
    /// follow its source is right as it is, and so is what a deleted source was allowed to leave behind.
    fn corrected_by(
        &self,
        document: RawDocument<'_>,
        source: &mut dyn FnMut(RawValue<'_>) -> Result<Option<Document>>,
    ) -> Result<Option<Document>> {
        if self.is_frozen_copy(document)? {
            return Ok(None);
        }
        let stored = self.site.pairs(document);
        let made = self.rewrite(document, &mut |reference| {
            if let Some(source) = source(reference)? {
                return Ok(Copied::To(self.copy_of(source.as_raw())));
            }
            let copy = stored.iter().find(|(key, _)| compare(key.as_raw(), reference) == Ordering::Equal);
            let left = match (self.on_source_delete, copy.map(|(_, copy)| copy)) {
                (OnSourceDelete::Keep, Some(Copied::To(_)))
                | (OnSourceDelete::Unset, Some(Copied::Unset)) => Copied::Keep,
                _ => Copied::Null,
            };
            Ok(left)
        })?;
        Ok((made.as_bytes() != document.as_bytes()).then_some(made))
    }

    /// What a change of a source means for those who refer to it: by which keys, and what to write for each.
    fn fan_out(
        &self,
        before: Option<RawDocument<'_>>,
        after: Option<RawDocument<'_>>,
    ) -> Vec<(Value, FanOut)> {
        let old = before.map_or(Vec::new(), |before| self.keys_of_source(before));
        let new = after.map_or(Vec::new(), |after| self.keys_of_source(after));
        let gone = old.iter().filter(|key| !has(&new, **key));
        let mut changes: Vec<(Value, FanOut)> = gone.map(|key| (key.to_value(), FanOut::Gone)).collect();
        if let (Some(after), false) = (after, new.is_empty()) {
            let copy = self.copy_of(after);
            let known = before.filter(|_| !old.is_empty()).map(|before| self.copy_of(before));
            let is_known = known.is_some_and(|known| known.as_bytes() == copy.as_bytes());
            for key in new.iter().filter(|key| !is_known || !has(&old, **key)) {
                changes.push((key.to_value(), FanOut::To(copy.clone())));
            }
        }
        changes
    }

    /// What the copies of a deleted source become; none where they stay.
    fn when_gone(&self) -> Option<Copied> {
        match self.on_source_delete {
            OnSourceDelete::Keep => None,
            OnSourceDelete::Unset => Some(Copied::Unset),
            OnSourceDelete::Null => Some(Copied::Null),
            // Whoever deletes or refuses does not come to write.
            OnSourceDelete::Cascade | OnSourceDelete::Restrict => None,
        }
    }

    /// A holder with the copies of one source as told; none where they are so already.
    fn patched(
        &self,
        holder: RawDocument<'_>,
        key: RawValue<'_>,
        copied: &Copied,
    ) -> Result<Option<Document>> {
        let made = self.rewrite(holder, &mut |reference| {
            Ok(match compare(reference, key) {
                Ordering::Equal => copied.clone(),
                _ => Copied::Keep,
            })
        })?;
        Ok((made.as_bytes() != holder.as_bytes()).then_some(made))
    }

    fn dangling(&self, reference: RawValue<'_>) -> Error {
        let mut wanted = Document::new();
        wanted.push(&self.local_field, reference);
        let wanted = kilim_query::text::document(wanted.as_raw());
        Error::user(
            ErrorCode::PatternDanglingReference,
            format!(
                "{wanted} refers to nothing: {} has no document with that {}. Insert it first, or declare onMissing: \
                 \"null\"",
                self.from, self.foreign_field
            ),
        )
    }
}

/// What a change of a source means for its holders.
#[derive(Debug, Clone)]
enum FanOut {
    /// The source no longer has this key.
    Gone,
    /// The copies become this.
    To(Document),
}

/// Whether a key is among others.
fn has(keys: &[RawValue<'_>], key: RawValue<'_>) -> bool {
    keys.iter().any(|own| compare(*own, key) == Ordering::Equal)
}

/// Null, nothing and arrays refer to nothing.
fn is_reference(value: RawValue<'_>) -> bool {
    !matches!(value, RawValue::Null | RawValue::Undefined | RawValue::Array(_))
}
