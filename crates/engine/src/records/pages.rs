//! The pages of a long array: records of a collection of their own.
//!
//! The record of a page is numbered by the record of its document and the page's number, so the pages of a document lie side
//! by side and are found without an index. Every change of a page also writes its document's record: whoever holds that record,
//! or finds it unchanged, holds the pages or finds them unchanged.
//!
//! Invariant: the pages of a document are numbered from 0 without gaps.

use kilim_bson::{RawArray, RawDocument};
use kilim_error::{Error, Result};
use kilim_storage::{Bytes, Snapshot, Space, Transaction};

use super::home::record_key;
use super::{Image, Paged, RowId};
use crate::ids::RecordId;

/// A page's number takes the low bits of its record's.
const PAGE_BITS: u32 = 24;

/// A state that pages are read from.
pub(crate) trait Source {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>>;

    /// Whether it has the entries of an index that was ready at this commit.
    fn is_since(&self, ready: u64) -> bool;
}

impl Source for Snapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        Snapshot::get(self, space, key)
    }

    fn is_since(&self, ready: u64) -> bool {
        ready <= self.commit_time()
    }
}

/// What a writer sees that holds the document's record: the newest commit, or its transaction's snapshot, with its own writes.
pub(crate) struct Newest<'t> {
    pub transaction: &'t Transaction,
    pub in_snapshot: bool,
}

impl Source for Newest<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        match self.in_snapshot {
            true => self.transaction.get(space, key),
            false => self.transaction.latest(space, key),
        }
    }

    fn is_since(&self, ready: u64) -> bool {
        !self.in_snapshot || ready <= self.transaction.snapshot().commit_time()
    }
}

/// The row of a page.
pub(crate) fn page_row(owner: RowId, number: u32) -> Result<RowId> {
    if owner.record.0 >> (64 - PAGE_BITS) != 0 || number >> PAGE_BITS != 0 {
        return Err(Error::bug("there are more pages or documents than pages have numbers for"));
    }
    Ok(RecordId(owner.record.0 << PAGE_BITS | u64::from(number)).into())
}

/// The record of the document that a page's record belongs to.
pub(crate) fn page_owner(page: RecordId) -> RecordId {
    RecordId(page.0 >> PAGE_BITS)
}

/// A page of a document, where it has that many.
pub(crate) fn page_image(
    source: &impl Source,
    paged: &Paged,
    owner: RowId,
    number: u32,
) -> Result<Option<Image>> {
    let key = record_key(paged.overflow, page_row(owner, number)?.record);
    // SAFETY: the bytes come from the store, where only this module puts records.
    Ok(source.get(Space::Records, &key)?.map(|stored| unsafe { Image::from_bytes(stored) }))
}

/// The pages of a document, in order.
pub(crate) fn page_walk<'s, S: Source>(
    source: &'s S,
    paged: &'s Paged,
    owner: RowId,
) -> impl Iterator<Item = Result<Image>> + use<'s, S> {
    page_walk_from(source, paged, owner, 0)
}

/// The pages of a document from one of them on, in order.
pub(crate) fn page_walk_from<'s, S: Source>(
    source: &'s S,
    paged: &'s Paged,
    owner: RowId,
    first: u32,
) -> impl Iterator<Item = Result<Image>> + use<'s, S> {
    (first..).map_while(move |number| page_image(source, paged, owner, number).transpose())
}

/// How many pages a document has. As a rule all of them but the last are full; otherwise their number is found in steps that
/// double, then by halves. They are not walked over.
pub(crate) fn page_count(
    source: &impl Source,
    paged: &Paged,
    owner: RowId,
    head: RawDocument<'_>,
) -> Result<u32> {
    let has = |number: u32| Ok::<bool, Error>(page_image(source, paged, owner, number)?.is_some());
    let paging = &paged.paging;
    let inline = paging.array(head).map_or(0, RawArray::len) as u64;
    let further = paging.told_count(head).unwrap_or(0).saturating_sub(inline);
    let full = u32::try_from(further.div_ceil(paging.page_size as u64)).unwrap_or(0);
    if full > 0 && has(full - 1)? && !has(full)? {
        return Ok(full);
    }
    if !has(0)? {
        return Ok(0);
    }
    let (mut there, mut gone) = (0, 1);
    while has(gone)? {
        there = gone;
        gone *= 2;
    }
    while gone - there > 1 {
        let middle = there + (gone - there) / 2;
        match has(middle)? {
            true => there = middle,
            false => gone = middle,
        }
    }
    Ok(gone)
}
