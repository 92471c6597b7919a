//! Asking the processor for bytes that will be read soon.
//!
//! A scan of documents reads a little of each and goes on to the next, a kilobyte further. No processor guesses that
//! across pages of memory, so without a word each document is waited for.

/// The lines of the processor's cache that are asked for: the first fields of a document.
const LINES: usize = 2;
const LINE_BYTES: usize = 64;

/// Says that the beginning of these bytes will be read soon.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES).take(LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and cannot fault, and the pointer is that of a slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINES, LINE_BYTES);
}
