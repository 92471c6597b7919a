//! The order of texts, where it is not that of their bytes.
//!
//! A [`Collator`] orders texts as a language does. Comparison and key making are generic over
//! [`TextOrder`], so that the plain way has neither a call nor a branch for it.
//!
//! Invariant: a collator's keys compare, byte by byte, as it compares the texts they are of.

use std::cmp::Ordering;

/// How texts compare, and the bytes that compare likewise.
pub trait Collator: Send + Sync {
    fn compare(&self, left: &str, right: &str) -> Ordering;

    /// Appends bytes whose order is that of [`compare`](Collator::compare), a key that is the beginning
    /// of another one before it. Texts that compare equal give equal bytes.
    fn write_key(&self, text: &str, out: &mut Vec<u8>);
}

pub(crate) trait TextOrder: Copy {
    fn compare_texts(self, left: &str, right: &str) -> Ordering;

    /// Appends what stands for the text in a key, before zeros are escaped; or says `false`: its own bytes do.
    fn write_text_key(self, text: &str, out: &mut Vec<u8>) -> bool;
}

/// The simple collation.
#[derive(Clone, Copy)]
pub(crate) struct Bytewise;

impl TextOrder for Bytewise {
    #[inline(always)]
    fn compare_texts(self, left: &str, right: &str) -> Ordering {
        left.cmp(right)
    }

    #[inline(always)]
    fn write_text_key(self, _: &str, _: &mut Vec<u8>) -> bool {
        false
    }
}

impl TextOrder for &dyn Collator {
    fn compare_texts(self, left: &str, right: &str) -> Ordering {
        self.compare(left, right)
    }

    fn write_text_key(self, text: &str, out: &mut Vec<u8>) -> bool {
        self.write_key(text, out);
        true
    }
}
