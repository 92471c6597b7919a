//! The bounds of a capped collection, as its options give them.

use kilim_bson::{RawDocument, RawValue};

/// How much a capped collection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capped {
    pub bytes_max: i64,
    /// None where only the size counts.
    pub documents_max: Option<i64>,
}

impl Capped {
    /// What a collection's options say.
    pub fn of(options: RawDocument<'_>) -> Option<Capped> {
        let number = |name| match options.get(name) {
            Some(RawValue::Int32(number)) => Some(i64::from(number)),
            Some(RawValue::Int64(number)) => Some(number),
            _ => None,
        };
        match options.get("capped") {
            Some(RawValue::Bool(true)) => {
                Some(Capped { bytes_max: number("size")?, documents_max: number("max") })
            }
            _ => None,
        }
    }

    pub(crate) fn is_exceeded_by(self, bytes: i64, documents: i64) -> bool {
        bytes > self.bytes_max || self.documents_max.is_some_and(|max| documents > max)
    }
}
