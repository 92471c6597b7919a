//! What the bytes in the store mean. Everything here is on disk: a change is a format change.
//!
//! ```text
//! records   collection id u32, record id u64          → commit time u64 LE, BSON (from 2^63 on: buckets, `records/buckets`)
//! index     index id u32, key                         → record id u64, type bits     (_id, unique)
//! index     index id u32, key, record id u64          → type bits                    (others)
//! meta      'c' collection id u32                     → the collection's catalog document
//! meta      'b' index id u32                          → nothing: the index is being built
//! meta      'n' collection id u32                     → count and bytes (a storage counter)
//! meta      's' session id                            → the session's last numbered operation, and its owner
//! meta      'v' database, '.', name                   → the view's document in `system.views`, and its UUID
//! meta      'p' pattern id u32                        → which definition in `kilim.patterns` has that id
//! meta      'f' pattern id u32                        → how far the pattern is filled
//! meta      'k' pattern id u32                        → nothing: a document too large kept an old value
//! meta      'g' pattern id u32, group key             → the state of a group
//! meta      'q' pattern id u32, key                    → what is pending for the documents with that key
//! meta      'i'                                       → next collection id, next index id
//! ```
//! Integers in keys are big-endian, so byte order is number order. Ids are never reused.
//!
//! A key longer than [`KEY_BYTES_MAX`] is stored as its first bytes, a 128-bit hash and [`LONG_KEY`]:
//! unique enough to find and to refuse, but no longer ordered, so a reader re-checks the record and
//! never sorts or covers with it.

use std::ops::Bound;

use kilim_storage::{Direction, Scan, Snapshot, Space};

use crate::ids::{CollectionId, IndexId, PatternId, RecordId, SessionId};
use crate::namespace::Namespace;

/// The commit time before each record's document.
pub const STAMP_BYTES: usize = 8;

/// mongod accepts an `_id` of 200 KB while the store refuses keys of 64 KiB.
pub const KEY_BYTES_MAX: usize = 8 * 1024;

/// Ends a shortened key. No encoded component begins with it, so no whole key can equal a short one.
pub const LONG_KEY: u8 = 0x00;

/// The record's id at the end of a key.
pub fn record_id_of(record_key: &[u8]) -> RecordId {
    RecordId(u64::from_be_bytes(record_key[record_key.len() - 8..].try_into().expect("eight bytes")))
}

pub fn index_prefix(index: IndexId) -> [u8; 4] {
    index.0.to_be_bytes()
}

/// Appends `key` to an index prefix, shortened where it is too long.
pub fn push_index_key(out: &mut Vec<u8>, key: &[u8]) {
    if key.len() <= KEY_BYTES_MAX {
        out.extend_from_slice(key);
        return;
    }
    out.extend_from_slice(&key[..KEY_BYTES_MAX]);
    out.push(LONG_KEY);
    out.extend_from_slice(&hash128(key));
}

/// Whether an index key (without prefix and record id) was shortened.
pub fn is_long_key(key: &[u8]) -> bool {
    key.len() == KEY_BYTES_MAX + 17 && key[KEY_BYTES_MAX] == LONG_KEY
}

/// The entry of a unique index: its key in the store.
pub fn unique_entry(index: IndexId, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_entry(&mut out, index, key, None);
    out
}

/// The entry of an ordinary index: the record id makes it unique.
pub fn plain_entry(index: IndexId, key: &[u8], record: RecordId) -> Vec<u8> {
    let mut out = Vec::new();
    push_entry(&mut out, index, key, Some(record));
    out
}

/// Appends an entry; with its record where the index is an ordinary one.
pub fn push_entry(out: &mut Vec<u8>, index: IndexId, key: &[u8], record: Option<RecordId>) {
    out.reserve(12 + key.len().min(KEY_BYTES_MAX + 17));
    out.extend_from_slice(&index_prefix(index));
    push_index_key(out, key);
    if let Some(record) = record {
        out.extend_from_slice(&record.0.to_be_bytes());
    }
}

pub fn collection_meta_key(collection: CollectionId) -> [u8; 5] {
    tagged(b'c', collection.0)
}

pub fn view_meta_key(view: &Namespace) -> Vec<u8> {
    let mut key = vec![VIEW_TAG];
    key.extend_from_slice(view.to_string().as_bytes());
    key
}

pub fn building_key(index: IndexId) -> [u8; 5] {
    tagged(BUILDING_TAG, index.0)
}

pub fn counter_key(collection: CollectionId) -> [u8; 5] {
    tagged(b'n', collection.0)
}

pub fn pattern_key(pattern: PatternId) -> [u8; 5] {
    tagged(PATTERN_TAG, pattern.0)
}

/// How far a pattern is filled.
pub fn filling_key(pattern: PatternId) -> [u8; 5] {
    tagged(b'f', pattern.0)
}

/// Says that a document kept what it had for a pattern, because it would have become too large.
pub fn kept_key(pattern: PatternId) -> [u8; 5] {
    tagged(b'k', pattern.0)
}

/// The state of a group; a long key is shortened as in an index.
pub fn group_key(pattern: PatternId, key: &[u8]) -> Vec<u8> {
    let mut out = tagged(b'g', pattern.0).to_vec();
    push_index_key(&mut out, key);
    out
}

/// The key by which a group is held. Beside its state, not the state itself: a group without one is held too.
pub(crate) fn group_lock(pattern: PatternId, key: &[u8]) -> Vec<u8> {
    let mut lock = group_key(pattern, key);
    lock.push(0xFF);
    lock
}

/// What a change left pending for those who have a key; a long key is shortened as in an index.
pub fn pending_key(pattern: PatternId, key: &[u8]) -> Vec<u8> {
    let mut out = tagged(b'q', pattern.0).to_vec();
    push_index_key(&mut out, key);
    out
}

/// The key by which a document is held that would have this key in a collection of this name, while there may be no such
/// collection. Nothing is stored under it; a long key is shortened as in an index.
pub(crate) fn absent_lock(namespace: &Namespace, key: &[u8]) -> Vec<u8> {
    let mut lock = vec![b'a'];
    lock.extend_from_slice(namespace.to_string().as_bytes());
    lock.push(0);
    push_index_key(&mut lock, key);
    lock
}

pub const NEXT_IDS_KEY: &[u8] = b"i";

/// First byte of the catalog's collection documents in `meta`.
pub const COLLECTION_TAG: u8 = b'c';
/// First byte of the marks of indexes that are being built.
pub const BUILDING_TAG: u8 = b'b';
/// First byte of the catalog's views in `meta`.
pub const VIEW_TAG: u8 = b'v';
/// First byte of patterns' ids in `meta`.
pub const PATTERN_TAG: u8 = b'p';
/// First byte of session records in `meta`.
pub const SESSION_TAG: u8 = b's';

/// The record of a session's last numbered operation.
pub fn session_key(session: SessionId) -> [u8; 17] {
    let mut key = [SESSION_TAG; 17];
    key[1..].copy_from_slice(&session.0);
    key
}

/// The entries in `meta` that begin with a tag.
pub fn entries_of(snapshot: &Snapshot, tag: u8) -> Scan {
    let (lower, upper) = ([tag], [tag + 1]);
    let bounds = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
    snapshot.scan(Space::Meta, bounds.0, bounds.1, Direction::Forward)
}

fn tagged(tag: u8, id: u32) -> [u8; 5] {
    let mut key = [tag; 5];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

/// FNV-1a over 128 bits: on disk, so it never changes. Collisions are re-checked on the record.
fn hash128(bytes: &[u8]) -> [u8; 16] {
    const PRIME: u128 = 0x0000000001000000000000000000013B;
    let mut hash: u128 = 0x6c62272e07bb014262b821756295c58d;
    for &byte in bytes {
        hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    }
    hash.to_be_bytes()
}
