//! What lies in a page: sorted keys with their values, found by bisection.
//!
//! Leaves and inner pages have one form. In a leaf a value is a row's, or the place of a page that holds it if it
//! is long. In an inner page the value is the place of a child, and the key is a lower bound of the child's keys;
//! the first child takes everything below the second one's key, whatever its own says.
//!
//! ```text
//! count u32, offsets u32 × (count + 1), then per row: key length and overflow bit u16, key, value
//! ```
//! All of it is on disk, little-endian. A page is checked once, when it is decoded; then every row lies within it.

use super::PagePtr;
use crate::space::Bytes;
use kilim_error::{Result, StorageError};

/// Set in a key's length if the value is the place of a page.
const OVERFLOW: u16 = 1 << 15;

/// The longest key, by the bits that are left for its length.
pub(crate) const KEY_BYTES_MAX: usize = (OVERFLOW - 1) as usize;

/// A decoded page; a clone is a reference count.
#[derive(Clone)]
pub(crate) struct Page {
    raw: Bytes,
    count: usize,
}

/// A row's value as it lies in a leaf.
pub(crate) enum Value {
    Here(Bytes),
    /// In a page of its own.
    Overflow(PagePtr),
}

impl Page {
    /// A page that was decoded before.
    pub(crate) fn checked(raw: Bytes) -> Page {
        Page { count: number(&raw, 0).unwrap_or(0) as usize, raw }
    }

    pub(crate) fn decode(raw: Bytes) -> Result<Page> {
        let page = Page { count: number(&raw, 0).ok_or_else(|| broken("it is empty"))? as usize, raw };
        let rows = 4 + 4 * (page.count + 1);
        if rows > page.raw.len() {
            return Err(broken("it has no room for its offsets"));
        }
        let mut last = rows;
        for at in 0..=page.count {
            let offset = page.offset(at);
            if offset < last || offset > page.raw.len() || (at == 0 && offset != rows) {
                return Err(broken("its offsets do not ascend"));
            }
            if at > 0 {
                let row = &page.raw[last..offset];
                let key_bytes = row.first_chunk::<2>().map(|bytes| u16::from_le_bytes(*bytes));
                if key_bytes.is_none_or(|bytes| usize::from(bytes & !OVERFLOW) + 2 > row.len()) {
                    return Err(broken("a key reaches beyond its row"));
                }
            }
            last = offset;
        }
        if last != page.raw.len() {
            return Err(broken("bytes follow its last row"));
        }
        Ok(page)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let (start, end, _) = self.key_place(at);
        &self.raw[start..end]
    }

    /// The value as it lies in the page, a place if it is one.
    pub(crate) fn raw_value(&self, at: usize) -> (&[u8], bool) {
        let (_, end, overflow) = self.key_place(at);
        (&self.raw[end..self.offset(at + 1)], overflow)
    }

    pub(crate) fn value(&self, at: usize) -> Result<Value> {
        let (_, start, overflow) = self.key_place(at);
        let end = self.offset(at + 1);
        if overflow {
            let place = PagePtr::decode(&self.raw[start..end]);
            return Ok(Value::Overflow(place.ok_or_else(|| broken("an overflow is no place"))?));
        }
        Ok(Value::Here(self.raw.slice(start..end)))
    }

    /// A child's place, in an inner page.
    pub(crate) fn child(&self, at: usize) -> Result<PagePtr> {
        PagePtr::decode(self.raw_value(at).0).ok_or_else(|| broken("a child is no place"))
    }

    /// How many keys are less than `key`, or at most equal to it if `or_equal`.
    pub(crate) fn rank(&self, key: &[u8], or_equal: bool) -> usize {
        let raw = &self.raw[..];
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            let (start, end, _) = key_place(raw, middle);
            let before = match raw[start..end].cmp(key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => or_equal,
                std::cmp::Ordering::Greater => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The child of an inner page in which a key belongs.
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        self.rank(key, true).saturating_sub(1)
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let at = self.rank(key, false);
        (at < self.count && self.key(at) == key).then_some(at)
    }

    /// Key and value of a leaf's row.
    #[inline]
    pub(crate) fn row(&self, at: usize) -> Result<(Bytes, Value)> {
        let raw = &self.raw[..];
        let (start, end, overflow) = key_place(raw, at);
        let key = self.raw.slice(start..end);
        let behind = offset(raw, at + 1);
        if overflow {
            let place = PagePtr::decode(&raw[end..behind]);
            return Ok((key, Value::Overflow(place.ok_or_else(|| broken("an overflow is no place"))?)));
        }
        Ok((key, Value::Here(self.raw.slice(end..behind))))
    }

    fn key_place(&self, at: usize) -> (usize, usize, bool) {
        key_place(&self.raw, at)
    }

    fn offset(&self, at: usize) -> usize {
        offset(&self.raw, at)
    }
}

/// Start and end of a key, and whether its value is a place.
fn key_place(raw: &[u8], at: usize) -> (usize, usize, bool) {
    let offset = offset(raw, at);
    let head = u16::from_le_bytes([raw[offset], raw[offset + 1]]);
    (offset + 2, offset + 2 + usize::from(head & !OVERFLOW), head & OVERFLOW != 0)
}

fn offset(raw: &[u8], at: usize) -> usize {
    number(raw, 4 + 4 * at).map_or(0, |offset| offset as usize)
}

/// Rows on their way into a page.
#[derive(Default)]
pub(crate) struct PageRows {
    /// Keys and values, each row as it will lie in the page.
    rows: Vec<u8>,
    /// Where each row begins in `rows`.
    starts: Vec<u32>,
    /// So many of the first rows were removed, and lie here still: what is behind them is moved now and then, not for each page.
    removed: usize,
}

/// When removed rows take this many times what is left, that is moved to the front.
const REMOVED_PART: usize = 4;

impl PageRows {
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8], overflow: bool) {
        debug_assert!(key.len() <= KEY_BYTES_MAX);
        self.starts.push(self.rows.len() as u32);
        let head = key.len() as u16 | if overflow { OVERFLOW } else { 0 };
        self.rows.extend_from_slice(&head.to_le_bytes());
        self.rows.extend_from_slice(key);
        self.rows.extend_from_slice(value);
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len() - self.removed
    }

    /// What a page of all rows takes.
    pub(crate) fn bytes(&self) -> usize {
        8 + 4 * self.count() + self.rows.len() - self.start(0)
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let row = &self.rows[self.start(at)..];
        let bytes = u16::from_le_bytes([row[0], row[1]]) & !OVERFLOW;
        &row[2..2 + usize::from(bytes)]
    }

    /// How many rows fill a page of about `bytes`; at least one.
    pub(crate) fn fitting(&self, bytes: usize) -> usize {
        let (mut low, mut high) = (1, self.count());
        while low < high {
            let middle = (low + high).div_ceil(2);
            let page_bytes = 8 + 4 * middle + self.start(middle) - self.start(0);
            if page_bytes <= bytes { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// The first rows as a page, in two parts.
    pub(crate) fn encode(&self, count: usize) -> (Vec<u8>, &[u8]) {
        let (first, end) = (self.start(0), self.start(count));
        let head = 4 + 4 * (count + 1);
        let mut offsets = Vec::with_capacity(head);
        offsets.extend_from_slice(&(count as u32).to_le_bytes());
        for at in 0..=count {
            offsets.extend_from_slice(&((head + self.start(at) - first) as u32).to_le_bytes());
        }
        (offsets, &self.rows[first..end])
    }

    /// Forgets the first rows.
    pub(crate) fn remove(&mut self, count: usize) {
        let gone = self.start(count);
        self.removed += count;
        if gone < REMOVED_PART * (self.rows.len() - gone) {
            return;
        }
        self.rows.drain(..gone);
        self.starts.drain(..self.removed);
        self.starts.iter_mut().for_each(|start| *start -= gone as u32);
        self.removed = 0;
    }

    /// Where a row begins; for the one behind the last, where that ends.
    fn start(&self, at: usize) -> usize {
        self.starts.get(self.removed + at).map_or(self.rows.len(), |start| *start as usize)
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn broken(how: &str) -> kilim_error::Error {
    StorageError::Corrupt(format!("a page is broken: {how}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str]) -> Page {
        let mut rows = PageRows::default();
        for key in keys {
            rows.push(key.as_bytes(), format!("value of {key}").as_bytes(), false);
        }
        encoded(&rows, keys.len())
    }

    fn encoded(rows: &PageRows, count: usize) -> Page {
        let (offsets, rows) = rows.encode(count);
        Page::decode(Bytes::fused(&offsets, rows)).unwrap()
    }

    #[test]
    fn rows_are_found_by_their_keys() {
        let page = page(&["a", "c", "e"]);
        assert_eq!(page.count(), 3);
        assert_eq!(page.find(b"c"), Some(1));
        assert_eq!(page.find(b"d"), None);
        assert_eq!(page.raw_value(2).0, b"value of e");
        let ranks = ["", "a", "b", "e", "f"].map(|key| page.rank(key.as_bytes(), false));
        assert_eq!(ranks, [0, 0, 1, 2, 3]);
        assert_eq!(["", "a", "b", "z"].map(|key| page.child_of(key.as_bytes())), [0, 0, 0, 2]);
    }

    #[test]
    fn rows_leave_from_the_front() {
        let mut rows = PageRows::default();
        for key in ["a", "b", "c"] {
            rows.push(key.as_bytes(), b"1", false);
        }
        let whole = rows.bytes();
        assert_eq!(whole, encoded(&rows, 3).raw.len());
        assert_eq!(rows.fitting(whole), 3);
        assert_eq!(rows.fitting(whole - 1), 2);
        assert_eq!(rows.fitting(0), 1);
        rows.remove(2);
        assert_eq!((rows.count(), rows.key(0)), (1, b"c".as_slice()));
        assert_eq!(encoded(&rows, 1).key(0), b"c");
    }

    #[test]
    fn rows_that_come_and_go_are_those_that_are_left() {
        let mut rows = PageRows::default();
        let mut left = std::collections::VecDeque::new();
        for number in 0..1_000u32 {
            let key = number.to_be_bytes();
            rows.push(&key, &vec![7; number as usize % 50], false);
            left.push_back(key);
            if left.len() >= 2 + number as usize % 13 {
                let count = 1 + number as usize % (left.len() - 1);
                rows.remove(count);
                left.drain(..count);
            }
            let page = encoded(&rows, left.len());
            assert_eq!((rows.count(), rows.bytes()), (left.len(), page.raw.len()));
            assert!(left.iter().enumerate().all(|(at, key)| page.key(at) == key && rows.key(at) == key));
            assert!(rows.rows.len() <= 8 * 1024, "what was removed is given back");
        }
        rows.remove(left.len());
        assert_eq!((rows.count(), rows.rows.len()), (0, 0));
    }

    #[test]
    fn a_damaged_page_is_refused() {
        let good = page(&["alpha", "beta", "gamma"]).raw.to_vec();
        for at in 0..4 + 4 * 4 {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Page::decode(Bytes::from(bad)).is_err(), "bit {bit} of byte {at}");
            }
        }
        for len in 0..good.len() {
            assert!(Page::decode(Bytes::from(&good[..len])).is_err());
        }
    }
}
