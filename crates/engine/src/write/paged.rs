//! Documents whose array continues in pages: how they are changed.
//!
//! An update that only appends elements writes the last page and the document, at any length of the array. One that only removes
//! elements is applied to each page by itself. One that does not concern the array leaves pages alone. Any other is applied to the
//! document with its whole array, which is then divided anew; pages that stay the same are not written.

use std::sync::Arc;

use kilim_bson::{Document, Path, RawArray, RawDocument, RawValue, identical};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Paging, bytes_of, elements_of, extended_page, page, page_len};
use kilim_query::expression::Dependencies;
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_query::projection::Projection;
use kilim_query::update::{Append, Applied, Context, Update};

use super::door;
use super::store::new_row;
use super::update::{Images, UpdateRequest};
use crate::catalog::Collection;
use crate::change::{ArrayForm, Before, Cause, Change, Elements, Form, Remaining};
use crate::index::Index;
use crate::limits;
use crate::patterns::Pattern;
use crate::records::{self, Newest, Paged, RowId, is_needed};
use crate::unit::Unit;

/// Whether a document still matches, and at which position of an array. Of one that may have pages, the position is not told:
/// [`apply`] finds it where it is needed.
pub(super) fn matches(
    unit: &mut Unit<'_>,
    collection: &Collection,
    row: RowId,
    seen: RawDocument<'_>,
    filter: &Filter,
) -> Result<Option<Option<usize>>> {
    match collection.shape.paged() {
        Some(paged) if paged.paging.has_flag(seen) => {
            let matches = records::matches(&newest(unit), &collection.home(), row, seen, filter)?;
            Ok(matches.then_some(None))
        }
        _ => filter.matches_with_position(seen),
    }
}

/// Pages as a writer sees them that holds their document.
fn newest<'u>(unit: &'u mut Unit<'_>) -> Newest<'u> {
    let in_snapshot = unit.reads_transaction_snapshot();
    Newest { transaction: unit.transaction(), in_snapshot }
}

/// Whether somebody who is shown a document, or what a projection has of it, needs its whole array.
fn shows_whole(paging: &Paging, projection: Option<&Projection>) -> bool {
    let pages = |it: &Projection| it.seeks_in(&paging.field) || it.slice_of(&paging.field).is_some();
    paging.whole || projection.is_some_and(pages)
}

/// A document as somebody is shown it who asked for a projection. One that is too large to be shown whole is shown with its
/// inline part.
pub(super) fn shown(
    unit: &mut Unit<'_>,
    collection: &Collection,
    row: RowId,
    document: RawDocument<'_>,
    projection: Option<&Projection>,
) -> Result<Document> {
    let whole = match collection.shape.paged().filter(|paged| shows_whole(&paged.paging, projection)) {
        Some(paged) => records::whole(&newest(unit), paged, row, document),
        None => Ok(None),
    };
    match whole {
        Ok(whole) => Ok(whole.unwrap_or_else(|| document.to_document())),
        Err(error) if error.code() == ErrorCode::BSONObjectTooLarge => Ok(document.to_document()),
        Err(error) => Err(error),
    }
}

/// The same of a document that was just inserted: `head` is what was stored of it, `sent` has the whole array.
pub(super) fn shown_new(
    collection: &Collection,
    head: Document,
    sent: RawDocument<'_>,
    projection: Option<&Projection>,
) -> Document {
    let paged = collection.shape.paged().filter(|paged| shows_whole(&paged.paging, projection));
    let Some(paged) = paged else { return head };
    let Some(array) = paged.paging.array(sent) else { return head };
    let whole = paged.paging.with_elements(head.as_raw(), array.iter());
    if whole.as_bytes().len() <= limits::DOCUMENT_BYTES_MAX { whole } else { head }
}

/// Applies an update to a document that may have pages.
pub(super) fn apply(
    unit: &mut Unit<'_>,
    collection: &Arc<Collection>,
    row: RowId,
    before: Before<'_>,
    context: &Context,
    request: &UpdateRequest<'_>,
) -> Result<Images> {
    let paged = collection.shape.paged().ok_or_else(|| Error::bug("a collection without pages"))?;
    let (paging, update, head) = (&paged.paging, request.update, before.seen);
    let computes = is_needed(&update.computes_from(), &paging.field);
    let touches = computes || update.may_touch(&Path::parse(&paging.field));
    let appends = update.appends(&paging.field);
    let is_split = records::page_count(&newest(unit), paged, row, head)? > 0;
    let mut whole = None;
    let mut position = context.position;
    if update.requires_position() {
        if is_split && concerns(&request.filter, &paging.field) {
            whole = records::whole(&newest(unit), paged, row, head)?;
        }
        let seen = whole.as_ref().map_or(head, Document::as_raw);
        position = request.filter.matches_with_position(seen)?.flatten();
    }
    let context = Context { position, ..*context };
    let mut array = ArrayForm::Whole;
    let mut applied = None;
    let mut removal = None;
    // Whoever sets the array to the preview that he read, as `$merge` does, leaves it as it is.
    let assigned = update.assigns(&paging.field).and_then(RawValue::as_array);
    let keeps = assigned.is_some_and(|assigned| paging.is_preview(head, assigned));
    if is_split && (!touches || keeps) {
        array = ArrayForm::Inline;
    } else if is_split && update.is_replacement() {
        // Whoever sends a preview back that he read means the document around it.
        let replaced = update.apply(head, &context)?;
        let sent = replaced.after.as_ref().map_or(head, Document::as_raw);
        let keeps =
            paging.has_flag(sent) && paging.array(sent).is_some_and(|array| paging.is_preview(head, array));
        array = if keeps { ArrayForm::Inline } else { ArrayForm::Whole };
        match keeps || replaced.after.is_some() {
            true => applied = Some(replaced),
            // It equals what is stored of the document, which is not all of it.
            false => whole = records::whole(&newest(unit), paged, row, head)?,
        }
    } else if let (true, Some(append)) = (is_split, appends) {
        let mut appended = update.apply(head, &context)?;
        if let (Append::New, Some(after)) = (append, &appended.after) {
            match only_new(unit, collection, row, head, after.as_raw())? {
                Some(after) => {
                    appended.after = Some(after).filter(|after| after.as_bytes() != head.as_bytes());
                    array = ArrayForm::Appended;
                    applied = Some(appended);
                }
                None => whole = records::whole(&newest(unit), paged, row, head)?,
            }
        } else {
            array = ArrayForm::Appended;
            applied = Some(appended);
        }
    } else if is_split && update.only_removes_from(&paging.field) {
        removal = Removal::of(unit, paged, row, head, update, &context)?;
        match &removal {
            Some(removal) => {
                array = ArrayForm::Remaining;
                let after = removal.head.clone().unwrap_or_else(|| head.to_document());
                let after = (!removal.changes_nothing()).then_some(after);
                applied = Some(Applied { after, description: None });
            }
            None => whole = records::whole(&newest(unit), paged, row, head)?,
        }
    } else if is_split && whole.is_none() {
        whole = records::whole(&newest(unit), paged, row, head)?;
    }
    let describes = array == ArrayForm::Inline && unit.engine.store.logs();
    let applied = match applied {
        Some(applied) => applied,
        None if array == ArrayForm::Inline => update.apply_described(head, &context, describes)?,
        None => update.apply(whole.as_ref().map_or(head, Document::as_raw), &context)?,
    };
    let seen_before = shown(unit, collection, row, head, request.projection)?;
    let Some(after) = &applied.after else { return Ok(Images { before: seen_before, after: None }) };
    let untouched =
        |index: &Index| index.spec.partial.is_none() && !index.spec.depends_on(|path| update.may_touch(path));
    let mut change = Change::update(collection, row, before, after.as_raw(), unit.cause);
    change.array = array;
    change.remaining = removal.as_ref().map(|removal| Remaining {
        removed: &removal.removed,
        kept: &removal.kept,
        pages: &removal.pages,
        page_count: removal.page_count,
        count: removal.count,
    });
    change.form = match &applied.description {
        Some(description) if describes => Form::Described(description.as_raw()),
        _ if update.is_replacement() => Form::Replacement,
        _ => Form::Smaller,
    };
    let written = door::write(unit, change, &untouched)?;
    let written = written.as_ref().unwrap_or(after);
    let after = shown(unit, collection, row, written.as_raw(), request.projection)?;
    Ok(Images { before: seen_before, after: Some(after) })
}

fn concerns(filter: &Filter, field: &str) -> bool {
    let mut needed = Dependencies::default();
    filter.dependencies(&mut needed);
    is_needed(&needed, field)
}

/// A document whose array had values appended, without those that its pages hold. None where a value cannot be looked for
/// among the elements by a filter.
fn only_new(
    unit: &mut Unit<'_>,
    collection: &Collection,
    row: RowId,
    head: RawDocument<'_>,
    after: RawDocument<'_>,
) -> Result<Option<Document>> {
    let paged = collection.shape.paged().ok_or_else(|| Error::bug("a collection without pages"))?;
    let paging = &paged.paging;
    let (Some(inline), Some(array)) = (paging.array(head), paging.array(after)) else { return Ok(None) };
    let (inline, home) = (inline.len(), collection.home());
    let mut new = Vec::new();
    for value in array.iter().skip(inline) {
        if let RawValue::Array(_)
        | RawValue::Null
        | RawValue::Undefined
        | RawValue::Regex { .. }
        | RawValue::MinKey
        | RawValue::MaxKey = value
        {
            return Ok(None);
        }
        let predicate = Predicate::Compare(Comparison::Eq, value.to_value().into());
        let is_held = Filter::Field { path: Path::parse(&paging.field), predicate };
        if !records::matches(&newest(unit), &home, row, head, &is_held)? {
            new.push(value);
        }
    }
    Ok(Some(paging.with_elements(after, array.iter().take(inline).chain(new))))
}

/// Writes a change of a collection whose long arrays continue in pages: the document with its inline part, and its pages.
pub(super) fn write_paged(
    unit: &mut Unit<'_>,
    change: Change<'_>,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    let paged = change.collection.shape.paged().ok_or_else(|| Error::bug("a collection without pages"))?;
    let paging = &paged.paging;
    let head = change.stored_before();
    let pages = match (head, change.row) {
        (Some(head), Some(row)) if paging.has_flag(head) => {
            records::page_count(&newest(unit), paged, row, head)?
        }
        _ => 0,
    };
    let Some(after) = change.after else {
        return match pages {
            0 => door::admitted(unit, change, untouched),
            pages => remove(unit, paged, change, pages),
        };
    };
    match change.array {
        ArrayForm::Inline if pages > 0 => {
            let head = head.ok_or_else(|| Error::bug("pages without a document"))?;
            let bytes = |document| paging.array(document).map(RawArray::as_bytes);
            if bytes(head) != bytes(after) {
                return Err(Error::bug("the inline part of an array changed without its pages"));
            }
            let stored = paging.head(after, usize::MAX, paging.told_count(head).unwrap_or(0), true);
            let change = Change { after: Some(stored.as_raw()), form: form_of(&change, &stored), ..change };
            let shaped = door::admitted(unit, change, untouched)?;
            Ok(Some(shaped.unwrap_or(stored)))
        }
        ArrayForm::Appended if pages > 0 => append(unit, paged, change, pages, untouched),
        ArrayForm::Remaining if pages > 0 => leave(unit, paged, change, pages, untouched),
        _ => divide(unit, paged, change, pages, untouched),
    }
}

/// How an event tells of a change if something else is stored than was asked for.
fn form_of<'c>(change: &Change<'c>, stored: &Document) -> Form<'c> {
    let as_asked = change.after.is_some_and(|after| after.as_bytes() == stored.as_bytes());
    match change.form {
        Form::Described(_) if !as_asked => Form::Difference,
        form => form,
    }
}

/// Deletes a document and its pages.
fn remove(unit: &mut Unit<'_>, paged: &Paged, change: Change<'_>, pages: u32) -> Result<Option<Document>> {
    let (Some(head), Some(row)) = (change.stored_before(), change.row) else {
        return Err(Error::bug("pages without a document"));
    };
    let before = records::parts(&newest(unit), paged, row, head)?.unwrap_or_default();
    let elements =
        Elements { field: &paged.paging.field, before: &before, after: &[], kept: &[], is_folded: false };
    door::all_or_nothing(unit, |unit| {
        let change = Change { elements: Some(elements), ..change };
        let shaped = door::admitted(unit, change, &|_| false)?;
        let place = Place::of(unit, change.collection)?;
        for number in 0..pages {
            place.put(unit, paged, row, number, None)?;
        }
        Ok(shaped)
    })
}

/// Appends elements to the pages of a document.
fn append(
    unit: &mut Unit<'_>,
    paged: &Paged,
    change: Change<'_>,
    pages: u32,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    let paging = &paged.paging;
    let (Some(head), Some(row), Some(after)) = (change.stored_before(), change.row, change.after) else {
        return Err(Error::bug("pages without a document"));
    };
    let (Some(inline), Some(array)) = (paging.array(head), paging.array(after)) else {
        return Err(Error::bug("elements are appended to no array"));
    };
    let inline = inline.len();
    let new: Vec<RawValue<'_>> = array.iter().skip(inline).collect();
    let count = paging.told_count(head).unwrap_or(0) + new.len() as u64;
    let stored = paging.head(after, inline, count, true);
    let added = [paging.alone(new.iter().copied())];
    let after_parts: &[Document] = if new.is_empty() { &[] } else { &added };
    let elements =
        Elements { field: &paging.field, before: &[], after: after_parts, kept: &[], is_folded: false };
    door::all_or_nothing(unit, |unit| {
        let form = form_of(&change, &stored);
        let change = Change { after: Some(stored.as_raw()), form, elements: Some(elements), ..change };
        let shaped = door::admitted(unit, change, untouched)?;
        let place = Place::of(unit, change.collection)?;
        let last = records::page_image(&newest(unit), paged, row, pages - 1)?
            .ok_or_else(|| Error::bug("a page is missing"))?;
        let (mut len, mut bytes, mut fitting) = (page_len(last.document()), last.as_bytes().len(), 0);
        for element in &new {
            let own = bytes_of(*element);
            if !paging.has_room(len, bytes, own) {
                break;
            }
            (len, bytes, fitting) = (len + 1, bytes + own, fitting + 1);
        }
        if fitting > 0 {
            let extended = extended_page(last.document(), &new[..fitting])
                .ok_or_else(|| Error::bug("a page without elements"))?;
            place.put(unit, paged, row, pages - 1, Some(&extended))?;
        }
        let id = stored.get("_id").unwrap_or(RawValue::Null);
        for (number, elements) in (pages..).zip(paging.divide(new[fitting..].iter().copied())) {
            let page = page(id, number, elements.len(), elements.into_iter());
            place.put(unit, paged, row, number, Some(&page))?;
        }
        Ok(shaped)
    })
    .map(|shaped| Some(shaped.unwrap_or(stored)))
}

/// Writes what is left of an array that elements were removed from.
fn leave(
    unit: &mut Unit<'_>,
    paged: &Paged,
    change: Change<'_>,
    pages: u32,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    let (Some(row), Some(after), Some(remaining)) = (change.row, change.after, change.remaining) else {
        return Err(Error::bug("pages without a document"));
    };
    let paging = &paged.paging;
    let stored = paging.head(after, usize::MAX, remaining.count, true);
    let (before, kept) = (remaining.removed, remaining.kept);
    let elements = Elements { field: &paging.field, before, after: &[], kept, is_folded: false };
    door::all_or_nothing(unit, |unit| {
        let form = form_of(&change, &stored);
        let change = Change { after: Some(stored.as_raw()), form, elements: Some(elements), ..change };
        let shaped = door::admitted(unit, change, untouched)?;
        let place = Place::of(unit, change.collection)?;
        for (number, page) in remaining.pages.iter().filter(|(number, _)| *number < remaining.page_count) {
            place.put(unit, paged, row, *number, Some(page))?;
        }
        for gone in remaining.page_count..pages {
            place.put(unit, paged, row, gone, None)?;
        }
        Ok(shaped)
    })
    .map(|shaped| Some(shaped.unwrap_or(stored)))
}

/// What removing elements leaves of a document and its pages.
#[derive(Default)]
struct Removal {
    /// None where the document itself stays as it is.
    head: Option<Document>,
    removed: Vec<Document>,
    kept: Vec<Document>,
    pages: Vec<(u32, Document)>,
    page_count: u32,
    count: u64,
}

impl Removal {
    /// Applies an update that only removes elements to each part of an array by itself. None where so few are left that the
    /// array is to be folded back.
    fn of(
        unit: &mut Unit<'_>,
        paged: &Paged,
        row: RowId,
        head: RawDocument<'_>,
        update: &Update,
        context: &Context,
    ) -> Result<Option<Removal>> {
        let paging = &paged.paging;
        let source = newest(unit);
        let mut removal = Removal { head: update.apply(head, context)?.after, ..Removal::default() };
        let seen = removal.head.as_ref().map_or(head, Document::as_raw);
        let (Some(before), Some(after)) = (paging.array(head), paging.array(seen)) else { return Ok(None) };
        let (before, after) = (paging.alone(before.iter()), paging.alone(after.iter()));
        removal.note(paging, &before, after);
        let id = head.get("_id").unwrap_or(RawValue::Null);
        for (number, image) in (0..).zip(records::page_walk(&source, paged, row)) {
            let image = image?;
            let elements =
                elements_of(image.document()).ok_or_else(|| Error::bug("a page without elements"))?;
            let before = paging.alone(elements.iter());
            let after = update.apply(before.as_raw(), context)?.after;
            if let Some(left) = after.as_ref().and_then(|after| paging.array(after.as_raw())) {
                removal.pages.push((number, page(id, number, left.len(), left.iter())));
            }
            let len = after.as_ref().map_or(page_len(image.document()), |after| {
                paging.array(after.as_raw()).map_or(0, RawArray::len)
            });
            if len > 0 {
                removal.page_count = number + 1;
            }
            match after {
                Some(after) => removal.note(paging, &before, after),
                None => {
                    removal.count += len as u64;
                    removal.keep(paging, before);
                }
            }
        }
        let is_short = removal.count * 5 < paging.limit as u64 * 4 || removal.page_count == 0;
        Ok((!is_short).then_some(removal))
    }

    /// Notes a part of the array, before and after.
    fn note(&mut self, paging: &Paging, before: &Document, after: Document) {
        if let (Some(was), Some(is)) = (paging.array(before.as_raw()), paging.array(after.as_raw())) {
            self.count += is.len() as u64;
            let mut left = is.iter().peekable();
            let mut gone = Vec::new();
            for element in was.iter() {
                match left.peek() {
                    Some(next) if identical(*next, element) => drop(left.next()),
                    _ => gone.push(element),
                }
            }
            if !gone.is_empty() {
                self.removed.push(paging.alone(gone.into_iter()));
            }
        }
        self.keep(paging, after);
    }

    /// A part without elements has no keys, although a document with an empty array has one.
    fn keep(&mut self, paging: &Paging, part: Document) {
        if paging.array(part.as_raw()).is_some_and(|elements| !elements.is_empty()) {
            self.kept.push(part);
        }
    }

    fn changes_nothing(&self) -> bool {
        self.head.is_none() && self.pages.is_empty()
    }
}

/// Writes a document with its whole array, divided anew.
fn divide(
    unit: &mut Unit<'_>,
    paged: &Paged,
    change: Change<'_>,
    pages: u32,
    untouched: &dyn Fn(&Index) -> bool,
) -> Result<Option<Document>> {
    let paging = &paged.paging;
    let after = change.after.ok_or_else(|| Error::bug("nothing to divide"))?;
    let array = paging.array(after);
    let is_folded = change.array == ArrayForm::Folded;
    let inline = array.filter(|_| !is_folded).and_then(|array| paging.inline_len(array, pages > 0));
    let count = array.map_or(0, RawArray::len);
    let stored = paging.head(after, inline.unwrap_or(usize::MAX), count as u64, inline.is_some());
    let form = form_of(&change, &stored);
    if pages == 0 && inline.is_none() {
        let change = Change { after: Some(stored.as_raw()), form, ..change };
        let shaped = door::admitted(unit, change, untouched)?;
        return Ok(Some(shaped.unwrap_or(stored)));
    }
    let row = change.row.unwrap_or_else(|| new_row(change.collection));
    let before = match change.stored_before() {
        None => Vec::new(),
        Some(head) => match records::parts(&newest(unit), paged, row, head)? {
            Some(parts) => parts,
            None => vec![paging.only(head)],
        },
    };
    let (after_parts, is_folded) = ([paging.only(after)], inline.is_none());
    let elements =
        Elements { field: &paging.field, before: &before, after: &after_parts, kept: &[], is_folded };
    door::all_or_nothing(unit, |unit| {
        let change =
            Change { row: Some(row), after: Some(stored.as_raw()), form, elements: Some(elements), ..change };
        let shaped = door::admitted(unit, change, untouched)?;
        let place = Place::of(unit, change.collection)?;
        let id = stored.get("_id").unwrap_or(RawValue::Null);
        let further = array.into_iter().flat_map(RawArray::iter).skip(inline.unwrap_or(usize::MAX));
        let mut number = 0;
        for elements in paging.divide(further) {
            let page = page(id, number, elements.len(), elements.into_iter());
            place.put(unit, paged, row, number, Some(&page))?;
            number += 1;
        }
        for gone in number..pages {
            place.put(unit, paged, row, gone, None)?;
        }
        Ok(shaped)
    })
    .map(|shaped| Some(shaped.unwrap_or(stored)))
}

/// The collection of pages, and the pattern that they are written for.
struct Place {
    overflow: Arc<Collection>,
    pattern: Arc<Pattern>,
}

impl Place {
    fn of(unit: &mut Unit<'_>, collection: &Collection) -> Result<Place> {
        let namespace = collection.namespace.of_overflow();
        let overflow = unit.join(&namespace)?.ok_or_else(|| Error::bug("pages without a collection"))?;
        let registry = unit.engine.patterns();
        let is_own = |it: &&Arc<Pattern>| it.target == collection.namespace && it.kind().paging().is_some();
        let mut patterns = registry.of(&collection.namespace.database).iter();
        let pattern = patterns.find(is_own).ok_or_else(|| Error::bug("pages without a pattern"))?;
        Ok(Place { overflow, pattern: pattern.clone() })
    }

    /// Makes, changes or removes a page. One that stays as it is is not written.
    fn put(
        &self,
        unit: &mut Unit<'_>,
        paged: &Paged,
        owner: RowId,
        number: u32,
        after: Option<&Document>,
    ) -> Result<()> {
        let old = records::page_image(&newest(unit), paged, owner, number)?;
        let before = old.as_ref().map(records::Image::document);
        let after = after.map(Document::as_raw);
        if before.map(RawDocument::as_bytes) == after.map(RawDocument::as_bytes) {
            return Ok(());
        }
        let change = Change {
            collection: &self.overflow,
            row: Some(records::page_row(owner, number)?),
            before: before.map(Before::of),
            after,
            cause: Cause::Pattern(std::slice::from_ref(&self.pattern)),
            form: Form::Difference,
            array: ArrayForm::Whole,
            remaining: None,
            elements: None,
        };
        // A page keeps its `_id`, and there is no other index over pages.
        let stays = before.is_some() && after.is_some();
        door::put(unit, &change, &|_| stays).map(drop)
    }
}
