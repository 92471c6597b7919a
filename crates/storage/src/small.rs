//! Sizes that a test makes small on its own thread, so that few rows make trees of many levels, checkpoints of many
//! portions and journals of many segments.
//!
//! What reads a size asks here first, in tests and under a fuzzer only. Nothing here is in a program.

use std::cell::Cell;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Small {
    pub(crate) leaf_bytes: usize,
    pub(crate) inner_bytes: usize,
    pub(crate) overflow_bytes_min: usize,
    pub(crate) portion_bytes_min: u64,
    pub(crate) slack_bytes: u64,
    pub(crate) journal_first: u64,
    pub(crate) journal_largest: u64,
}

thread_local! {
    static SMALL: Cell<Option<Small>> = const { Cell::new(None) };
}

/// The sizes of this thread, if it has any of its own.
pub(crate) fn sizes() -> Option<Small> {
    SMALL.get()
}

pub(crate) fn set(sizes: Option<Small>) {
    SMALL.set(sizes);
}
