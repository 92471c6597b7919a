//! Which pages a write of documents with long arrays would write, for `explain`.
//!
//! An update of the array is applied to the whole array, which is divided as a write would divide it; pages that stay the
//! same are not counted. What a write does without the whole array is counted without it: elements that are appended go into
//! the last page and new ones, elements are removed page by page, and what leaves the array alone leaves its pages alone.

use kilim_bson::{Document, Path, RawArray, RawDocument, RawValue};
use kilim_error::{ErrorCode, Result};
use kilim_patterns::{Paging, elements_of, page, page_len};
use kilim_query::update::{Context, Update};
use kilim_storage::Snapshot;

use crate::records::{self, Paged, RowId};

/// A document that a statement would change, and the pages of its array.
pub(super) struct Pages<'p> {
    paged: &'p Paged,
    snapshot: &'p Snapshot,
    row: RowId,
    /// What its record has of it.
    head: RawDocument<'p>,
    count: u32,
    /// None where it has no pages, or where its array is more than a document holds.
    whole: Option<Document>,
}

impl<'p> Pages<'p> {
    pub fn of(
        paged: &'p Paged,
        snapshot: &'p Snapshot,
        row: RowId,
        head: RawDocument<'p>,
    ) -> Result<Pages<'p>> {
        let count = records::page_count(snapshot, paged, row, head)?;
        let whole = match records::whole(snapshot, paged, row, head) {
            Err(error) if error.code() == ErrorCode::BSONObjectTooLarge => None,
            whole => whole?,
        };
        Ok(Pages { paged, snapshot, row, head, count, whole })
    }

    /// The document with all of its array that can be shown.
    pub fn document(&self) -> RawDocument<'_> {
        self.whole.as_ref().map_or(self.head, Document::as_raw)
    }

    /// How many pages a deletion of the document would remove.
    pub fn removed(&self) -> u64 {
        u64::from(self.count)
    }

    /// How many pages an update would make, change or remove. `after` is what it makes of [`Pages::document`].
    pub fn changed(&self, update: &Update, context: &Context, after: RawDocument<'_>) -> Result<u64> {
        let paging = &self.paged.paging;
        let field = &*paging.field;
        let touches =
            update.may_touch(&Path::parse(field)) || records::is_needed(&update.computes_from(), field);
        if !touches || self.keeps(update, after) {
            return Ok(0);
        }
        if self.count > 0 && update.appends(field).is_some() {
            return self.appended(after);
        }
        if self.count > 0
            && update.only_removes_from(field)
            && let Some(shrunk) = self.shrunk(update, context)?
        {
            return Ok(shrunk);
        }
        match self.count > 0 && self.whole.is_none() {
            // The write itself gives an error.
            true => Ok(0),
            false => self.differing(after),
        }
    }

    /// Whether an update sends the array as a preview shows it.
    fn keeps(&self, update: &Update, after: RawDocument<'_>) -> bool {
        let paging = &self.paged.paging;
        let assigned = update.assigns(&paging.field).and_then(RawValue::as_array);
        let replaced = paging.array(after).filter(|_| update.is_replacement() && paging.has_flag(after));
        let sent = assigned.or(replaced);
        self.count > 0 && sent.is_some_and(|array| paging.is_preview(self.head, array))
    }

    /// How many pages get the elements that an update appends: the last one, and new ones.
    fn appended(&self, after: RawDocument<'_>) -> Result<u64> {
        let paging = &self.paged.paging;
        let len_of = |document| paging.array(document).map_or(0, RawArray::len);
        let added = len_of(after).saturating_sub(len_of(self.document()));
        let last = records::page_image(self.snapshot, self.paged, self.row, self.count - 1)?;
        let room = last.map_or(0, |last| paging.page_size.saturating_sub(page_len(last.document())));
        let further = added.saturating_sub(room).div_ceil(paging.page_size);
        Ok((usize::from(added > 0 && room > 0) + further) as u64)
    }

    /// How many pages lose elements; none where so few are left that the array is divided anew.
    fn shrunk(&self, update: &Update, context: &Context) -> Result<Option<u64>> {
        let paging = &self.paged.paging;
        let left_of = |part: &Document| {
            let after = update.apply(part.as_raw(), context)?.after;
            let left = paging.array(after.as_ref().unwrap_or(part).as_raw()).map_or(0, RawArray::len);
            Ok::<_, kilim_error::Error>((left, after.is_some()))
        };
        let (mut left, _) = left_of(&paging.only(self.head))?;
        let mut changed = 0;
        for image in records::page_walk(self.snapshot, self.paged, self.row) {
            let image = image?;
            let elements = elements_of(image.document()).into_iter().flat_map(RawArray::iter);
            let (kept, changes) = left_of(&paging.alone(elements))?;
            left += kept;
            changed += u64::from(changes);
        }
        Ok((left * 5 >= paging.limit * 4).then_some(changed))
    }

    /// How many pages differ from those that a document with this whole array would have.
    fn differing(&self, after: RawDocument<'_>) -> Result<u64> {
        let (mut number, mut differing) = (0, 0);
        let id = after.get("_id").unwrap_or(RawValue::Null);
        for elements in divided(&self.paged.paging, after, self.count > 0) {
            let made = page(id, number, elements.len(), elements.into_iter());
            let stored = records::page_image(self.snapshot, self.paged, self.row, number)?;
            let stays = stored.is_some_and(|stored| stored.document().as_bytes() == made.as_bytes());
            differing += u64::from(!stays);
            number += 1;
        }
        Ok(differing + u64::from(self.count.saturating_sub(number)))
    }
}

/// How many pages a new document would have.
pub(super) fn pages_of_new(paged: &Paged, document: RawDocument<'_>) -> u64 {
    divided(&paged.paging, document, false).len() as u64
}

/// The elements of the pages of a document.
fn divided<'d>(paging: &Paging, document: RawDocument<'d>, has_pages: bool) -> Vec<Vec<RawValue<'d>>> {
    let Some(array) = paging.array(document) else { return Vec::new() };
    let inline = paging.inline_len(array, has_pages).unwrap_or(usize::MAX);
    paging.divide(array.iter().skip(inline))
}
