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
    for line in bytes.chunks(LINE_BYTES).take(LINES) {
        prefetch_at(line.as_ptr());
    }
}

/// Says that the line at this address will be read soon. It may be an address at which nothing lies.
#[inline]
pub(crate) fn prefetch_at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
