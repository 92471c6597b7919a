//! Extended JSON v2: BSON as text and back.
//!
//! Canonical text keeps every type; relaxed text writes numbers and dates as people do, and reads back
//! as equal values. Reading accepts both, in any mixture. `syntax` reads plain JSON, `parse` gives
//! the `$` wrappers their meaning, `write` is the way out.

mod base64;
mod date;
mod parse;
mod syntax;
mod write;

pub use parse::parse_extended_json;
pub use write::{JsonFormat, to_extended_json, value_to_extended_json};

/// The options of a regular expression as text has them, whatever order they were given in: by the alphabet.
fn in_order(options: &str) -> String {
    let mut letters: Vec<char> = options.chars().collect();
    letters.sort_unstable();
    letters.into_iter().collect()
}

#[cfg(test)]
mod tests;
