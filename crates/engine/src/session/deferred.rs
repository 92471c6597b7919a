//! What the statements of a transaction defer to its commit.

use kilim_bson::Value;
use kilim_patterns::{Row, Step};

use crate::ids::PatternId;

/// Work on one group that a transaction's statement defers to the commit: rows that leave the group and rows that enter it.
/// Without rows, only the group's parent gets its fields. With a step it is not about a group: a node takes another place
/// in its tree.
#[derive(Debug, Clone)]
pub(crate) struct Deferred {
    pub database: String,
    pub pattern: PatternId,
    pub key: Value,
    pub key_bytes: Vec<u8>,
    pub out: Vec<Row>,
    pub into: Vec<Row>,
    pub step: Option<Box<Step>>,
}
