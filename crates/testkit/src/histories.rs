//! How many random histories a test runs.

use std::ops::Range;

/// The seeds of random histories: from `KILIM_SEED` on, so many unless `KILIM_HISTORIES` says otherwise, as
/// `cargo xtask histories` does.
pub fn histories(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("KILIM_SEED").unwrap_or(1);
    first..first + number("KILIM_HISTORIES").unwrap_or(usual)
}
