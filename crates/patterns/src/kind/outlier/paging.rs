//! How a document with a long array is divided: an inline part, a flag and a count in the document, the rest in pages.
//!
//! A page is `{_id: {of: <the document's _id>, page: <number>}, count: <elements>, elements: […]}`. Pages are numbered from 0
//! without gaps. The array is the inline part followed by the pages in the order of their numbers.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Writer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paging {
    /// The array.
    pub field: Box<str>,
    /// Elements that stay inline.
    pub limit: usize,
    /// Bytes that the inline part has at most.
    pub max_bytes: usize,
    /// Elements of a page.
    pub page_size: usize,
    /// Tells that there are pages.
    pub flag: Box<str>,
    /// Has the number of all elements.
    pub count: Box<str>,
    /// Readers get the whole array, not the inline part.
    pub whole: bool,
}

const ELEMENTS: &str = "elements";
const COUNT: &str = "count";
/// Bytes that a page has at most, unless one element has more. So a page is never close to what a document may have.
const PAGE_BYTES: usize = 1024 * 1024;
/// What an element may have to lie in a page: a document's 16 MiB, without room for the rest of the page.
const ELEMENT_BYTES_MAX: usize = 16 * 1024 * 1024 - 64 * 1024;

impl Paging {
    /// The array of a document, where it has one.
    pub fn array<'d>(&self, document: RawDocument<'d>) -> Option<RawArray<'d>> {
        document.get(&self.field).and_then(RawValue::as_array)
    }

    /// Whether a document says that it has pages.
    pub fn has_flag(&self, document: RawDocument<'_>) -> bool {
        matches!(document.get(&self.flag), Some(RawValue::Bool(true)))
    }

    /// The number of all elements that a document says it has.
    pub fn told_count(&self, document: RawDocument<'_>) -> Option<u64> {
        match document.get(&self.count)? {
            RawValue::Int32(count) => u64::try_from(count).ok(),
            RawValue::Int64(count) => u64::try_from(count).ok(),
            _ => None,
        }
    }

    /// How many elements of an array stay inline; none where all of them do. An array that has pages already keeps them until
    /// it is well below the limit, so that one element more or less does not divide it and fold it again.
    pub fn inline_len(&self, array: RawArray<'_>, has_pages: bool) -> Option<usize> {
        let (limit, max_bytes) = match has_pages {
            true => (self.limit * 4 / 5, self.max_bytes * 4 / 5),
            false => (self.limit, self.max_bytes),
        };
        let len = array.len();
        let fits = if has_pages { len * 5 < self.limit * 4 } else { len <= limit };
        if fits && array.as_bytes().len() <= max_bytes {
            return None;
        }
        let most = if len > self.limit { self.limit } else { limit };
        let mut bytes = 0;
        let mut elements = array.as_document().iter();
        let (mut inline, mut is_full) = (0, false);
        while let Some((_, _, element)) = elements.next_with_bytes() {
            bytes += element.len();
            // One that fills a document leaves a page no room for what else it has: the array stays as it is.
            if element.len() > ELEMENT_BYTES_MAX {
                return None;
            }
            is_full |= inline == most || bytes > self.max_bytes;
            inline += usize::from(!is_full);
        }
        // What has pages has something in them.
        Some(inline.min(len.saturating_sub(1)))
    }

    /// Whether an array is what a preview of the document shows, of which this is stored beside its pages.
    pub fn is_preview(&self, head: RawDocument<'_>, array: RawArray<'_>) -> bool {
        let is_inline = self.array(head).is_some_and(|inline| inline.as_bytes() == array.as_bytes());
        !self.whole && !array.is_empty() && is_inline
    }

    /// A document with the first elements of its array, the flag and the count; one without an array has neither.
    pub fn head(&self, document: RawDocument<'_>, inline: usize, count: u64, has_pages: bool) -> Document {
        let array = self.array(document);
        let mut out = Writer::with_capacity(document.as_bytes().len().min(self.max_bytes * 2) + 64);
        let (mut flagged, mut counted) = (array.is_none(), array.is_none());
        let count = match i32::try_from(count) {
            Ok(count) => RawValue::Int32(count),
            Err(_) => RawValue::Int64(count as i64),
        };
        let mut fields = document.iter();
        while let Some((name, _, bytes)) = fields.next_with_bytes() {
            if *name == *self.flag {
                if !std::mem::replace(&mut flagged, true) {
                    out.append(name, RawValue::Bool(has_pages));
                }
            } else if *name == *self.count {
                if !std::mem::replace(&mut counted, true) {
                    out.append(name, count);
                }
            } else if let (true, Some(array)) = (*name == *self.field, array) {
                out.open_array(name);
                append_all(&mut out, 0, array.iter().take(inline));
                out.close();
            } else {
                out.append_elements(bytes);
            }
        }
        if !flagged {
            out.append(&self.flag, RawValue::Bool(has_pages));
        }
        if !counted {
            out.append(&self.count, count);
        }
        out.finish()
    }

    /// A document with other elements in its array.
    pub fn with_elements<'e>(
        &self,
        document: RawDocument<'_>,
        elements: impl Iterator<Item = RawValue<'e>>,
    ) -> Document {
        let mut out = Writer::with_capacity(document.as_bytes().len());
        let mut elements = Some(elements);
        let mut fields = document.iter();
        while let Some((name, _, bytes)) = fields.next_with_bytes() {
            match elements.take_if(|_| *name == *self.field) {
                Some(elements) => {
                    out.open_array(name);
                    append_all(&mut out, 0, elements);
                    out.close();
                }
                None => out.append_elements(bytes),
            }
        }
        out.finish()
    }

    /// A document of nothing but the array: what predicates and index keys on it are asked of.
    pub fn alone<'e>(&self, elements: impl Iterator<Item = RawValue<'e>>) -> Document {
        let mut out = Writer::new();
        out.open_array(&self.field);
        append_all(&mut out, 0, elements);
        out.close();
        out.finish()
    }

    /// A document of nothing but the field, whatever it holds.
    pub fn only(&self, document: RawDocument<'_>) -> Document {
        let mut out = Document::new();
        if let Some(value) = document.get(&self.field) {
            out.push(&self.field, value);
        }
        out
    }

    /// The elements of pages: each page's, in order.
    pub fn divide<'e>(&self, elements: impl Iterator<Item = RawValue<'e>>) -> Vec<Vec<RawValue<'e>>> {
        let mut pages: Vec<Vec<RawValue<'e>>> = Vec::new();
        let mut bytes = 0;
        for element in elements {
            let own = bytes_of(element);
            match pages.last_mut() {
                Some(page) if self.has_room(page.len(), bytes, own) => {
                    page.push(element);
                    bytes += own;
                }
                _ => {
                    pages.push(vec![element]);
                    bytes = own;
                }
            }
        }
        pages
    }

    /// Whether a page takes another element.
    pub fn has_room(&self, len: usize, bytes: usize, element: usize) -> bool {
        len < self.page_size && bytes + element <= PAGE_BYTES
    }
}

/// A page of a document.
pub fn page<'e>(
    owner: RawValue<'_>,
    number: u32,
    count: usize,
    elements: impl Iterator<Item = RawValue<'e>>,
) -> Document {
    let mut out = begin(owner, number, count);
    append_all(&mut out, 0, elements);
    out.close();
    out.finish()
}

/// A page with further elements behind its own.
pub fn extended_page(page: RawDocument<'_>, further: &[RawValue<'_>]) -> Option<Document> {
    let id = page.get("_id")?.as_document()?;
    let (owner, RawValue::Int32(number)) = (id.get("of")?, id.get("page")?) else { return None };
    let (elements, len) = (elements_of(page)?, page_len(page));
    let mut out = begin(owner, number as u32, len + further.len());
    out.append_elements(elements.as_document().elements());
    append_all(&mut out, len, further.iter().copied());
    out.close();
    Some(out.finish())
}

fn begin(owner: RawValue<'_>, number: u32, count: usize) -> Writer {
    let mut out = Writer::new();
    out.open_document("_id");
    out.append("of", owner);
    out.append("page", RawValue::Int32(number as i32));
    out.close();
    out.append(COUNT, RawValue::Int32(count as i32));
    out.open_array(ELEMENTS);
    out
}

/// The elements of a page.
pub fn elements_of(page: RawDocument<'_>) -> Option<RawArray<'_>> {
    page.get(ELEMENTS)?.as_array()
}

/// How many elements a page has.
pub fn page_len(page: RawDocument<'_>) -> usize {
    match page.get(COUNT) {
        Some(RawValue::Int32(count)) => count.max(0) as usize,
        _ => elements_of(page).map_or(0, RawArray::len),
    }
}

/// About the bytes that an element takes in an array.
pub fn bytes_of(element: RawValue<'_>) -> usize {
    let mut alone = Document::new();
    alone.push("00000", element);
    alone.as_bytes().len()
}

fn append_all<'e>(out: &mut Writer, first: usize, elements: impl Iterator<Item = RawValue<'e>>) {
    for (at, element) in elements.enumerate() {
        out.append_index(first + at, element);
    }
}
