//! How deep a value gets that is computed from itself again and again.
//!
//! `{$reduce: {…, in: {a: "$$value"}}}` nests without end, while everything that walks values relies on a
//! bound. One step adds no more levels than its expression has, so a look now and then suffices.

use kilim_bson::{DEPTH_MAX, RawIter, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::{Evaluated, Expression};

/// Levels that may have been added since the last look.
const UNSEEN_MAX: usize = 100;

pub(super) struct Watch {
    /// What one step adds at most.
    growth: usize,
    unseen: usize,
}

impl Watch {
    pub(super) fn new(step: &Expression) -> Watch {
        // An operator adds two levels at most: an array, and documents in it.
        Watch { growth: 2 * height(step), unseen: 0 }
    }

    pub(super) fn check_step(&mut self, value: &Evaluated<'_>) -> Result<()> {
        self.unseen += self.growth;
        if self.unseen > UNSEEN_MAX { self.check_end(value) } else { Ok(()) }
    }

    pub(super) fn check_end(&mut self, value: &Evaluated<'_>) -> Result<()> {
        if self.unseen == 0 || value.raw().is_none_or(|value| !is_deeper(value, DEPTH_MAX)) {
            self.unseen = 0;
            return Ok(());
        }
        Err(Error::user(
            ErrorCode::Overflow,
            format!(
                "cannot convert document to BSON because it exceeds the limit of {DEPTH_MAX} levels of nesting"
            ),
        ))
    }
}

fn height(expression: &Expression) -> usize {
    1 + expression.children().map(height).max().unwrap_or(0)
}

/// Whether more than `most` documents and arrays lie in each other.
fn is_deeper(value: RawValue<'_>, most: usize) -> bool {
    let Some(document) = value.as_container() else { return false };
    let mut open: Vec<RawIter<'_>> = vec![document.iter()];
    while let Some(innermost) = open.last_mut() {
        match innermost.next() {
            None => {
                open.pop();
            }
            Some((_, value)) => {
                if let Some(document) = value.as_container() {
                    if open.len() == most {
                        return true;
                    }
                    open.push(document.iter());
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    #[test]
    fn levels_are_counted_from_the_outermost_document() {
        let value = doc! {"a": 1, "b": {"c": [{"d": 1}]}, "e": {}};
        let value = RawValue::Document(value.as_raw());
        assert!(is_deeper(value, 3));
        assert!(!is_deeper(value, 4));
        assert!(!is_deeper(RawValue::Int32(1), 0));
    }
}
