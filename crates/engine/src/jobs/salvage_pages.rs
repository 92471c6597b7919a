//! Long arrays in a salvaged store, made whole again as far as they are left.
//!
//! A page is found by the number of its document's record and its own number. Pages whose document is lost would become those
//! of the next document that gets that number, and pages behind a lost one would come back once the array grows up to
//! them. So the former are left out, and the latter move up.
//!
//! Invariant: afterwards every page belongs to a document that counts it.

use std::collections::BTreeMap;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::Result;
use kilim_patterns::{elements_of, page, page_len};
use kilim_query::text;
use kilim_storage::{Durability, Store, Transaction};

use crate::records::{self, Home, Paged, Records, RowId, Shape, page_owner, page_row};
use crate::upkeep::expected_head;

/// What became of the pages of a collection.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Pages that were left out.
    pub removed: u64,
    /// Losses of the documents, a sentence each.
    pub of_documents: Vec<String>,
    /// Losses of the collection of pages, a sentence each.
    pub of_pages: Vec<String>,
}

/// Documents of which a loss is told by name.
const NAMED_MAX: usize = 100;

/// Writes of one commit.
const BATCH: usize = 1000;

/// Puts the pages of a collection and its documents in agreement. Nothing of it is counted.
pub(super) fn settle(store: &Store, home: &Home, paged: &Paged) -> Result<Settled> {
    let mut settled = Settled::default();
    move_pages(store, home, paged, &mut settled)?;
    count_anew(store, home, paged, &mut settled)?;
    Ok(settled)
}

/// Takes away the pages without a document, and numbers those of each document without gaps.
fn move_pages(store: &Store, home: &Home, paged: &Paged, settled: &mut Settled) -> Result<()> {
    let snapshot = store.snapshot();
    let heads = Records::new(home.clone(), &snapshot);
    let pages = Home { collection: paged.overflow, shape: Shape::Pages };
    let mut writes = Writes::new(store);
    let mut owner: Option<(RowId, Option<Document>, u32)> = None;
    // The elements that were left out, by the document that they belonged to.
    let mut orphans: BTreeMap<String, u64> = BTreeMap::new();
    for found in Records::new(pages.clone(), &snapshot).all() {
        let (row, image) = found?;
        let of: RowId = page_owner(row.record).into();
        if owner.as_ref().is_none_or(|(last, ..)| *last != of) {
            let head = heads.get(of)?;
            let id = head.and_then(|head| Some(alone(head.document().get("_id")?)));
            owner = Some((of, id, 0));
        }
        let Some((_, id, next)) = &mut owner else { continue };
        let stored = image.document();
        let told = owner_told(stored);
        let own = told.filter(|told| id.as_ref() == Some(&alone(*told))).zip(elements_of(stored));
        let Some((told, elements)) = own else {
            settled.removed += 1;
            let name = told.map_or_else(|| "unknown".to_owned(), |told| text::document(alone(told).as_raw()));
            *orphans.entry(name).or_default() += page_len(stored) as u64;
            writes.make(|transaction| records::remove(transaction, &pages, row))?;
            continue;
        };
        let place = page_row(of, *next)?;
        if place != row {
            let moved = page(told, *next, elements.len(), elements.iter());
            writes.make(|transaction| {
                records::remove(transaction, &pages, row);
                records::store(transaction, &pages, place, None, Some(moved.as_raw()));
            })?;
        }
        *next += 1;
    }
    writes.finish()?;
    settled.of_pages = named(
        orphans.into_iter(),
        |name, count| format!("the document of {count} elements is lost, so they were left out: {name}"),
        |rest| format!("the elements of {rest} more documents that are lost were left out"),
    );
    Ok(())
}

/// Makes the flag and the count of each document those that its array and its pages ask for.
fn count_anew(store: &Store, home: &Home, paged: &Paged, settled: &mut Settled) -> Result<()> {
    let snapshot = store.snapshot();
    let paging = &paged.paging;
    let mut writes = Writes::new(store);
    let mut shorter = Vec::new();
    for found in Records::new(home.clone(), &snapshot).all() {
        let (row, image) = found?;
        let head = image.document();
        // Others are divided by `repairPattern`, like any that were not divided yet.
        if !paging.has_flag(head) {
            continue;
        }
        let Some(expected) = expected_head(&snapshot, paged, row, head)? else { continue };
        let (before, now) = (paging.told_count(head), paging.told_count(expected.as_raw()));
        let lost = before.unwrap_or(0).saturating_sub(now.unwrap_or(0));
        if lost > 0 {
            let id = head.get("_id").unwrap_or(RawValue::Null);
            shorter.push((text::document(alone(id).as_raw()), lost));
        }
        if expected.as_bytes() != head.as_bytes() {
            writes.make(|transaction| {
                records::store(transaction, home, row, None, Some(expected.as_raw()));
            })?;
        }
    }
    writes.finish()?;
    settled.of_documents = named(
        shorter.into_iter(),
        |name, lost| format!("{lost} elements of '{}' are lost: {name}", paging.field),
        |rest| format!("elements of '{}' are lost of {rest} more documents", paging.field),
    );
    Ok(())
}

/// A sentence for each of the first losses, and one for the rest.
fn named(
    losses: impl ExactSizeIterator<Item = (String, u64)>,
    tell: impl Fn(&str, u64) -> String,
    tell_rest: impl Fn(usize) -> String,
) -> Vec<String> {
    let rest = losses.len().saturating_sub(NAMED_MAX);
    let mut told: Vec<String> = losses.take(NAMED_MAX).map(|(name, count)| tell(&name, count)).collect();
    told.extend((rest > 0).then(|| tell_rest(rest)));
    told
}

/// The `_id` of the document that a page says it belongs to.
fn owner_told(page: RawDocument<'_>) -> Option<RawValue<'_>> {
    page.get("_id")?.as_document()?.get("of")
}

fn alone(id: RawValue<'_>) -> Document {
    doc! {"_id": id.to_value()}
}

/// Writes in commits of a bounded size.
struct Writes<'s> {
    store: &'s Store,
    transaction: Transaction,
    made: usize,
}

impl<'s> Writes<'s> {
    fn new(store: &'s Store) -> Writes<'s> {
        Writes { store, transaction: store.begin(), made: 0 }
    }

    fn make(&mut self, write: impl FnOnce(&mut Transaction)) -> Result<()> {
        write(&mut self.transaction);
        self.made += 1;
        if self.made.is_multiple_of(BATCH) {
            std::mem::replace(&mut self.transaction, self.store.begin()).commit(Durability::Relaxed)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.transaction.commit(Durability::Durable)?;
        Ok(())
    }
}
