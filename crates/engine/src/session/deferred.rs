//! What the statements of a transaction leave for its commit.

use kilim_bson::Value;
use kilim_patterns::Row;

use crate::ids::PatternId;

/// What a transaction leaves for its commit: rows that leave groups and rows that enter them, or a parent that
/// waits for its group's fields.
#[derive(Debug, Clone)]
pub(crate) struct Deferred {
    pub database: String,
    pub pattern: PatternId,
    pub key: Value,
    pub key_bytes: Vec<u8>,
    pub out: Vec<Row>,
    pub into: Vec<Row>,
}
