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

#[cfg(test)]
mod tests;
