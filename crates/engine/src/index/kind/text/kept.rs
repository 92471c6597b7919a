//! What is remembered of words from one document to the next.
//!
//! It serves all operations, so it counts as none's. A large document may have a million words, which would fill the memory
//! past every operation's bound: it gets a memory of its own, which counts as its operation's and goes with it.

use kilim_bson::RawDocument;
use parking_lot::Mutex;

/// So many are kept. More are made where more threads need some at once.
const KEPT_MAX: usize = 4;

/// Documents up to this size share what is remembered.
const SHARING_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Kept<T> {
    all: Mutex<Vec<T>>,
    /// Makes one ready for the next document, and forgets much.
    tidy: fn(&mut T),
}

impl<T: Default> Kept<T> {
    pub const fn new(tidy: fn(&mut T)) -> Kept<T> {
        Kept { all: Mutex::new(Vec::new()), tidy }
    }

    /// Lends one that is tidy.
    pub fn lend<R>(&self, document: RawDocument<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        if !shares(document) {
            return work(&mut T::default());
        }
        let mut lent = self.all.lock().pop().unwrap_or_default();
        let done = work(&mut lent);
        kilim_memory::shared(|| {
            (self.tidy)(&mut lent);
            let mut all = self.all.lock();
            if all.len() < KEPT_MAX {
                all.push(lent);
            }
        });
        done
    }
}

/// Does work that remembers words of a document.
pub(super) fn remembering<R>(document: RawDocument<'_>, work: impl FnOnce() -> R) -> R {
    match shares(document) {
        true => kilim_memory::shared(work),
        false => work(),
    }
}

fn shares(document: RawDocument<'_>) -> bool {
    document.as_bytes().len() <= SHARING_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    #[test]
    fn what_a_large_document_needs_is_not_kept() {
        let kept = Kept::<Vec<u8>>::new(Vec::clear);
        let (small, large) = (doc! {"a": "x"}, doc! {"a": "x".repeat(SHARING_BYTES_MAX)});
        let use_once = |document: RawDocument<'_>| {
            kept.lend(document, |words| {
                assert!(words.is_empty());
                words.push(1);
            });
        };
        use_once(large.as_raw());
        assert_eq!(kept.all.lock().len(), 0);
        use_once(small.as_raw());
        use_once(small.as_raw());
        assert_eq!(kept.all.lock().len(), 1);
        assert!(kept.all.lock()[0].is_empty());
        assert!(kept.all.lock()[0].capacity() > 0);
    }
}
