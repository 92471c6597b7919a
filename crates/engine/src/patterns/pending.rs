//! The record of what is pending for one source or group: a job writes its targets later.
//!
//! The record is part of the commit that changes the source, and says what the targets must become. So every snapshot has all
//! that readers need to see the right values, and a job that was interrupted finds its work again. A later change of the same
//! source replaces the record, however many targets there are.
//!
//! Invariant: every snapshot between the change of a source and the end of its fan-out has the record. A unit holds the record
//! while it reads from it what a target becomes, so an older value never follows a newer one.

use std::ops::Bound;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Result, StorageError};
use kilim_patterns::{Copied, Due, key_bytes};
use kilim_storage::{Direction, Snapshot, Space};

use crate::ids::PatternId;
use crate::layout;

/// What is pending for the documents with a key.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub key: Value,
    /// Grows with each change of the source.
    pub version: i64,
    pub due: Due,
    /// About how many documents there are to write.
    pub documents: u64,
    /// Since when, in milliseconds since 1970.
    pub since: i64,
}

impl Pending {
    pub(crate) fn encode(&self) -> Document {
        let mut document = doc! {
            "key": self.key.clone(),
            "version": self.version,
            "documents": self.documents as i64,
            "since": self.since,
        };
        match &self.due {
            Due::Copy(Copied::To(copy)) => document.push("copy", copy.clone()),
            Due::Copy(Copied::Null) => document.push("left", "null"),
            Due::Copy(Copied::Unset | Copied::Keep) => document.push("left", "unset"),
            Due::Remove => document.push("left", "remove"),
            Due::Group(_) => document.push("left", "group"),
        }
        document
    }

    pub(crate) fn decode(stored: &[u8]) -> Result<Pending> {
        let decoded = RawDocument::parse(stored).ok().and_then(|document| {
            let number = |name| match document.get(name) {
                Some(RawValue::Int64(number)) => Some(number),
                _ => None,
            };
            let due = match (document.get("copy"), document.get("left").and_then(RawValue::as_str)) {
                (Some(RawValue::Document(copy)), _) => Due::Copy(Copied::To(copy.to_document())),
                (_, Some("null")) => Due::Copy(Copied::Null),
                (_, Some("unset")) => Due::Copy(Copied::Unset),
                (_, Some("remove")) => Due::Remove,
                (_, Some("group")) => Due::Group(None),
                _ => return None,
            };
            Some(Pending {
                key: document.get("key")?.to_value(),
                version: number("version")?,
                due,
                documents: number("documents")?.max(0) as u64,
                since: number("since")?,
            })
        });
        decoded.ok_or_else(|| StorageError::Corrupt("a pending record is unreadable".to_owned()).into())
    }

    pub fn key_bytes(&self) -> Vec<u8> {
        key_bytes(self.key.as_raw())
    }
}

/// All records of a pattern in a snapshot.
pub(crate) fn all_of(snapshot: &Snapshot, pattern: PatternId) -> Result<Vec<Pending>> {
    scan(snapshot, pattern).map(|stored| Pending::decode(&stored?)).collect()
}

fn scan(
    snapshot: &Snapshot,
    pattern: PatternId,
) -> impl Iterator<Item = Result<kilim_storage::Bytes>> + use<> {
    let (lower, upper) =
        (layout::pending_key(pattern, &[]), layout::pending_key(PatternId(pattern.0 + 1), &[]));
    let bounds = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
    snapshot
        .scan(Space::Meta, bounds.0, bounds.1, Direction::Forward)
        .map(|entry| entry.map(|(_, value)| value))
}

pub(crate) fn count_of(snapshot: &Snapshot, pattern: PatternId) -> Result<usize> {
    scan(snapshot, pattern).try_fold(0, |count, stored| stored.map(|_| count + 1))
}

/// The record of a key in a snapshot.
pub(crate) fn in_snapshot(snapshot: &Snapshot, pattern: PatternId, key: &[u8]) -> Result<Option<Pending>> {
    let stored = snapshot.get(Space::Meta, &layout::pending_key(pattern, key))?;
    stored.map(|stored| Pending::decode(&stored)).transpose()
}
