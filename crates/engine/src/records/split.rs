//! Documents whose array continues in pages: whether they match, and what is shown of them.
//!
//! A predicate on the array is asked of the inline part and of each page by itself, wherever it holds of an array exactly if it
//! holds of some part of it. For what needs the array as a whole, it is put together, if it fits into a document.

use kilim_bson::{Document, Path, RawArray, RawDocument, RawValue, Value, encode_value_with};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{elements_of, overlap, page_len};
use kilim_query::expression::Dependencies;
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_query::projection::Slice;
use kilim_storage::{Snapshot, Space};

use super::pages::{Source, page_count, page_image, page_walk, page_walk_from};
use super::shape::{Members, Paged, Shape};
use super::{Home, Image, RowId};
use crate::layout;
use crate::limits::DOCUMENT_BYTES_MAX;

/// How much of a long array a reader gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// As the request and the declaration say. Of a collection without pages: all there is.
    #[default]
    Asked,
    /// The inline part.
    Stored,
    Whole,
    Slice(Slice),
}

/// Whether somebody needs anything of a field.
pub(crate) fn is_needed(needed: &Dependencies, field: &str) -> bool {
    needed.whole_document || needed.fields.iter().any(|path| overlap(path, field))
}

/// Whether a row matches a filter, all of its array considered.
#[inline]
pub(crate) fn matches<S: Source>(
    source: &S,
    home: &Home,
    row: RowId,
    document: RawDocument<'_>,
    filter: &Filter,
) -> Result<bool> {
    match &home.shape {
        Shape::Paged(paged, members) => match Split::of(source, paged, *members, row, document)? {
            Some(split) => split.matches(filter),
            None => filter.matches(document),
        },
        _ => filter.matches(document),
    }
}

/// A row with as much of its array as a view has.
#[inline]
pub(crate) fn shown(source: &Snapshot, home: &Home, row: RowId, image: Image, view: View) -> Result<Image> {
    let Shape::Paged(paged, members) = &home.shape else { return Ok(image) };
    if let View::Asked | View::Stored = view {
        return Ok(image);
    }
    let shown = match (Split::of(source, paged, *members, row, image.document())?, view) {
        (Some(split), View::Slice(slice)) => Some(split.slice(slice)?),
        (Some(split), _) => Some(split.whole()?),
        (None, View::Slice(slice)) => paged.paging.array(image.document()).map(|array| {
            let (skip, take) = slice.range(array.len());
            paged.paging.with_elements(image.document(), array.iter().skip(skip).take(take))
        }),
        (None, _) => None,
    };
    Ok(shown.map_or_else(|| image.clone(), |shown| image.with(&shown)))
}

/// A document with its whole array; none where it has no pages.
pub(crate) fn whole<S: Source>(
    source: &S,
    paged: &Paged,
    row: RowId,
    head: RawDocument<'_>,
) -> Result<Option<Document>> {
    Split::of(source, paged, None, row, head)?.map(|split| split.whole()).transpose()
}

/// A document with its whole array, whatever it says of its pages; none where it has none.
pub(crate) fn whole_of_pages<S: Source>(
    source: &S,
    paged: &Paged,
    row: RowId,
    head: RawDocument<'_>,
) -> Result<Option<Document>> {
    if page_image(source, paged, row, 0)?.is_none() {
        return Ok(None);
    }
    Split { source, paged, members: None, row, head }.whole().map(Some)
}

/// The parts of a document's array, each as a document of nothing but the array; none where it has no pages.
pub(crate) fn parts<S: Source>(
    source: &S,
    paged: &Paged,
    row: RowId,
    head: RawDocument<'_>,
) -> Result<Option<Vec<Document>>> {
    let Some(split) = Split::of(source, paged, None, row, head)? else { return Ok(None) };
    let mut parts = Vec::new();
    split.any_part(&mut |part| {
        parts.push(part.to_document());
        Ok(false)
    })?;
    Ok(Some(parts))
}

/// A document that has pages.
struct Split<'s, S> {
    source: &'s S,
    paged: &'s Paged,
    members: Option<Members>,
    row: RowId,
    head: RawDocument<'s>,
}

impl<'s, S: Source> Split<'s, S> {
    /// None where the document has no pages, or shows more than its inline part already.
    fn of(
        source: &'s S,
        paged: &'s Paged,
        members: Option<Members>,
        row: RowId,
        head: RawDocument<'s>,
    ) -> Result<Option<Split<'s, S>>> {
        let paging = &paged.paging;
        let (true, Some(array)) = (paging.has_flag(head), paging.array(head)) else { return Ok(None) };
        let is_all = paging.told_count(head).is_some_and(|count| array.len() as u64 >= count);
        if is_all || page_image(source, paged, row, 0)?.is_none() {
            return Ok(None);
        }
        Ok(Some(Split { source, paged, members, row, head }))
    }

    fn matches(&self, filter: &Filter) -> Result<bool> {
        Ok(match filter {
            Filter::And(filters) => self.all(filters)?,
            Filter::Or(filters) => self.any(filters)?,
            Filter::Nor(filters) => !self.any(filters)?,
            Filter::Field { path, predicate } if self.is_about(path) => {
                self.satisfies(path, predicate, filter)?
            }
            filter if self.concerns(filter) => self.whole_matches(filter)?,
            filter => filter.matches(self.head)?,
        })
    }

    fn all(&self, filters: &[Filter]) -> Result<bool> {
        // What pages are not needed for comes first.
        for filter in filters.iter().filter(|filter| !self.concerns(filter)) {
            if !filter.matches(self.head)? {
                return Ok(false);
            }
        }
        for filter in filters.iter().filter(|filter| self.concerns(filter)) {
            if !self.matches(filter)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn any(&self, filters: &[Filter]) -> Result<bool> {
        for filter in filters {
            if self.matches(filter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_about(&self, path: &Path) -> bool {
        *path.components()[0].name == *self.paged.paging.field
    }

    fn concerns(&self, filter: &Filter) -> bool {
        let mut needed = Dependencies::default();
        filter.dependencies(&mut needed);
        is_needed(&needed, &self.paged.paging.field)
    }

    /// Whether the array satisfies a predicate; `filter` asks nothing else.
    fn satisfies(&self, path: &Path, predicate: &Predicate, filter: &Filter) -> Result<bool> {
        let is_whole_field = path.components().len() == 1;
        match predicate {
            Predicate::Not(inner) => {
                let positive = Filter::Field { path: path.clone(), predicate: (**inner).clone() };
                Ok(!self.satisfies(path, inner, &positive)?)
            }
            Predicate::Expr(..) => Ok(true),
            Predicate::Size(size) if is_whole_field => {
                Ok(self.paged.paging.told_count(self.head) == u64::try_from(*size).ok())
            }
            Predicate::Compare(Comparison::Eq, operand) if is_whole_field => {
                match self.is_member(operand, operand.collation().is_some())? {
                    Some(is_member) => Ok(is_member),
                    None => self.some_part(path, predicate, filter),
                }
            }
            _ => self.some_part(path, predicate, filter),
        }
    }

    fn some_part(&self, path: &Path, predicate: &Predicate, filter: &Filter) -> Result<bool> {
        let names_position = path.components()[1..].iter().any(|step| step.index.is_some());
        match !names_position && holds_by_parts(predicate, path.components().len() > 1) {
            true => self.any_part(&mut |part| filter.matches(part)),
            false => self.whole_matches(filter),
        }
    }

    /// Whether a value is an element, as an index over the elements says; none where none says it.
    fn is_member(&self, value: &Value, is_collated: bool) -> Result<Option<bool>> {
        let Some(members) = self.members.filter(|members| self.source.is_since(members.since)) else {
            return Ok(None);
        };
        let is_simple = matches!(
            value,
            Value::String(_) | Value::Int32(_) | Value::Int64(_) | Value::ObjectId(_) | Value::DateTime(_)
        );
        if is_collated || !is_simple {
            return Ok(None);
        }
        let mut key = Vec::new();
        encode_value_with(&mut key, value.as_raw(), false, None);
        if key.len() > layout::KEY_BYTES_MAX {
            return Ok(None);
        }
        let entry = layout::plain_entry(members.index, &key, self.row.record);
        Ok(Some(self.source.get(Space::Index, &entry)?.is_some()))
    }

    /// Whether a test holds of one of the parts, each of which is a document of nothing but its elements.
    fn any_part(&self, test: &mut dyn FnMut(RawDocument<'_>) -> Result<bool>) -> Result<bool> {
        let paging = &self.paged.paging;
        if let Some(inline) = paging.array(self.head).filter(|inline| !inline.is_empty())
            && test(paging.alone(inline.iter()).as_raw())?
        {
            return Ok(true);
        }
        for page in page_walk(self.source, self.paged, self.row) {
            let page = page?;
            let elements = elements(&page)?;
            if !elements.is_empty() && test(paging.alone(elements.iter()).as_raw())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn whole_matches(&self, filter: &Filter) -> Result<bool> {
        filter.matches(self.whole()?.as_raw())
    }

    /// The document with its whole array.
    fn whole(&self) -> Result<Document> {
        let pages = self.pages()?;
        let bytes: usize = pages.iter().map(|page| page.as_bytes().len()).sum();
        if self.head.as_bytes().len() + bytes > DOCUMENT_BYTES_MAX * 2 {
            return Err(self.too_large());
        }
        let inline = self.paged.paging.array(self.head).into_iter().flat_map(RawArray::iter);
        let further = pages.iter().map(elements).collect::<Result<Vec<_>>>()?;
        let further = further.into_iter().flat_map(RawArray::iter);
        let whole = self.paged.paging.with_elements(self.head, inline.chain(further));
        match whole.as_bytes().len() > DOCUMENT_BYTES_MAX {
            true => Err(self.too_large()),
            false => Ok(whole),
        }
    }

    /// The pages, unless they are far more than a document could hold.
    fn pages(&self) -> Result<Vec<Image>> {
        let (mut pages, mut bytes) = (Vec::new(), 0);
        for page in page_walk(self.source, self.paged, self.row) {
            let page = page?;
            bytes += page.as_bytes().len();
            if bytes > DOCUMENT_BYTES_MAX * 2 {
                return Err(self.too_large());
            }
            pages.push(page);
        }
        Ok(pages)
    }

    /// The document with a part of its array.
    fn slice(&self, slice: Slice) -> Result<Document> {
        let paging = &self.paged.paging;
        let inline = paging.array(self.head).map_or(0, RawArray::len);
        let count = match paging.told_count(self.head) {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => inline,
        };
        let (skip, take) = slice.range(count);
        let mut kept: Vec<(Image, usize, usize)> = Vec::new();
        let left = take - take.min(inline.saturating_sub(skip));
        let (first, before) = if left == 0 { (0, inline) } else { self.seek(inline, count, skip)? };
        let (mut before, mut left, mut bytes) = (before, left, 0);
        for page in page_walk_from(self.source, self.paged, self.row, first) {
            if left == 0 {
                break;
            }
            let page = page?;
            let len = page_len(page.document());
            let from = skip.saturating_sub(before).min(len);
            let of_page = left.min(len - from);
            before += len;
            if of_page > 0 {
                left -= of_page;
                bytes += page.as_bytes().len();
                if bytes > DOCUMENT_BYTES_MAX * 2 {
                    return Err(self.too_large());
                }
                kept.push((page, from, of_page));
            }
        }
        let first = paging.array(self.head).into_iter().flat_map(RawArray::iter).skip(skip).take(take);
        let further = kept
            .iter()
            .map(|(page, from, count)| Ok((elements(page)?, *from, *count)))
            .collect::<Result<Vec<_>>>()?;
        let further = further.into_iter().flat_map(|(page, from, count)| page.iter().skip(from).take(count));
        let shown = paging.with_elements(self.head, first.chain(further));
        match shown.as_bytes().len() > DOCUMENT_BYTES_MAX {
            true => Err(self.too_large()),
            false => Ok(shown),
        }
    }

    /// The page that a position lies in or behind, and how many elements come before that page.
    fn seek(&self, inline: usize, count: usize, position: usize) -> Result<(u32, usize)> {
        let (into, further) = (position.saturating_sub(inline), count.saturating_sub(inline));
        let size = self.paged.paging.page_size;
        let len = |number: u32| {
            let page = page_image(self.source, self.paged, self.row, number)?;
            Ok::<usize, Error>(page.map_or(0, |page| page_len(page.document())))
        };
        if into < size {
            return Ok((0, inline));
        }
        let pages = page_count(self.source, self.paged, self.row, self.head)?;
        let last = pages.saturating_sub(1);
        // No page has more elements than the declaration says. So all pages but the last are full if the sum says so.
        if last as usize * size + len(last)? == further {
            let number = last.min(u32::try_from(into / size).unwrap_or(last));
            return Ok((number, inline + number as usize * size));
        }
        if into <= further / 2 {
            return Ok((0, inline));
        }
        let (mut number, mut before) = (pages, count);
        while number > 0 && before > position {
            number -= 1;
            before = before.saturating_sub(len(number)?);
        }
        Ok((number, before))
    }

    fn too_large(&self) -> Error {
        let (field, id) = (&self.paged.paging.field, self.head.get("_id").unwrap_or(RawValue::Null));
        let mut alone = Document::new();
        alone.push("_id", id);
        Error::user(
            ErrorCode::BSONObjectTooLarge,
            format!(
                "the whole array '{field}' of the document with {} is more than a document can hold (16MB): read it in parts \
                 by a projection with $slice, or leave it out",
                kilim_query::text::document(alone.as_raw())
            ),
        )
    }
}

fn elements(page: &Image) -> Result<RawArray<'_>> {
    elements_of(page.document()).ok_or_else(|| Error::bug("a page without elements"))
}

/// Whether a predicate holds of an array exactly if it holds of some part of it.
fn holds_by_parts(predicate: &Predicate, is_below: bool) -> bool {
    // An array is compared as a whole too, and below it null stands for what is missing.
    let by_elements = |value: &Value| match value {
        Value::Array(_) | Value::MinKey | Value::MaxKey => false,
        Value::Null | Value::Undefined => !is_below,
        _ => true,
    };
    match predicate {
        Predicate::Compare(_, operand) => by_elements(operand),
        Predicate::In(list) => list.values().iter().all(by_elements),
        Predicate::Regex(_)
        | Predicate::Exists
        | Predicate::Type(_)
        | Predicate::Mod { .. }
        | Predicate::ElemMatchObject(_)
        | Predicate::ElemMatchValue(_)
        | Predicate::Bits(_) => true,
        Predicate::Size(_) => is_below,
        Predicate::Expr(..)
        | Predicate::Geo(_)
        | Predicate::Near(_)
        | Predicate::Not(_)
        | Predicate::All(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use kilim_bson::doc;
    use kilim_patterns::{Paging, page};
    use kilim_query::projection::Projection;
    use kilim_storage::Bytes;

    use super::*;
    use crate::ids::{CollectionId, RecordId};
    use crate::layout::STAMP_BYTES;
    use crate::records::home::record_key;
    use crate::records::page_row;

    /// Pages in memory, which counts how often one is looked for.
    struct Counting {
        pages: BTreeMap<Vec<u8>, Vec<u8>>,
        looks: Cell<usize>,
    }

    impl Source for Counting {
        fn get(&self, _: Space, key: &[u8]) -> Result<Option<Bytes>> {
            self.looks.set(self.looks.get() + 1);
            Ok(self.pages.get(key).map(|page| Bytes::from(&page[..])))
        }

        fn is_since(&self, _: u64) -> bool {
            true
        }
    }

    #[test]
    fn a_slice_far_behind_reads_few_pages() {
        let paging = Paging {
            field: "a".into(),
            limit: 5,
            max_bytes: 1000,
            page_size: 10,
            flag: "more".into(),
            count: "n".into(),
            whole: false,
        };
        let paged = Paged { paging: Arc::new(paging), overflow: CollectionId(7) };
        let row: RowId = RecordId(1).into();
        // Elements 0 to 4 are inline. The last page, and a page in the middle if `lacks`, have fewer than ten.
        let divided = |lacks: bool| {
            let mut source = Counting { pages: BTreeMap::new(), looks: Cell::new(0) };
            let mut next = 5;
            for number in 0..1000 {
                let len = if number == 999 || (lacks && number == 300) { 7 } else { 10 };
                let elements = (next..next + len).map(RawValue::Int32);
                let stored = page(RawValue::Int32(1), number, len as usize, elements);
                next += len;
                let mut bytes = vec![0; STAMP_BYTES];
                bytes.extend(stored.into_bytes());
                let key = record_key(paged.overflow, page_row(row, number).unwrap().record);
                source.pages.insert(key.to_vec(), bytes);
            }
            (source, next)
        };
        for (lacks, skip, looks_max) in [
            (false, 9000, 20),
            (false, 5004, 20),
            (false, 3, 20),
            (true, 9900, 40),
            (true, -3, 20),
            (true, 100, 40),
            (true, 4990, 1100),
        ] {
            let (source, count) = divided(lacks);
            let inline: Vec<Value> = (0..5).map(Value::Int32).collect();
            let head = doc! {"_id": 1, "a": inline, "more": true, "n": count};
            let split = Split { source: &source, paged: &paged, members: None, row, head: head.as_raw() };
            let projection = doc! {"a": {"$slice": [skip, 25]}};
            let slice = Projection::parse(projection.as_raw()).unwrap().slice_of("a").unwrap();
            let shown = split.slice(slice).unwrap();
            let from = if skip < 0 { count + skip } else { skip };
            let expected: Vec<Value> = (from..(from + 25).min(count)).map(Value::Int32).collect();
            assert_eq!(shown, doc! {"_id": 1, "a": expected, "more": true, "n": count}, "{skip}");
            assert!(source.looks.get() <= looks_max, "{skip}: {} looks", source.looks.get());
        }
    }
}
