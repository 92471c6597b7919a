//! Giving back the space of dropped collections and indexes.
//!
//! A dead prefix is a key in `Meta`, written in the commit that drops its owner, so it survives restarts. The
//! reclaimer thread has the backend give up the trees of all dead prefixes at once, which takes a checkpoint and
//! no reading of rows; then the marks go. A prefix within `Meta` is no tree of its own: its rows are deleted in
//! small commits.
//!
//! Ids are never reused, so nobody can write under a dead prefix. Older snapshots keep what they see.

use crate::backend::prefix_end;
use crate::format;
use crate::queue::WriteSet;
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use crate::store::Shared;
use kilim_error::Result;
use std::ops::Bound;
use std::sync::Arc;

/// Rows deleted per commit: small enough that nobody notices the batch they share.
const ROWS_PER_COMMIT: usize = 2_000;

/// On disk: the mark's key is the prefix of marks, the space's number, the dead prefix.
pub(crate) fn dead_key(space: Space, prefix: &[u8]) -> Bytes {
    let mut key = format::DEAD_PREFIX.to_vec();
    key.push(space as u8);
    key.extend_from_slice(prefix);
    Bytes::from(key)
}

pub(crate) fn decode_dead_key(key: &[u8]) -> Option<(Space, &[u8])> {
    let (&number, prefix) = key.strip_prefix(&format::DEAD_PREFIX)?.split_first()?;
    Some((*Space::ALL.get(number as usize)?, prefix))
}

/// Gives back every prefix that is dead now; ends early when the store closes.
pub(crate) fn reclaim_all(shared: &Arc<Shared>) -> Result<()> {
    let published = shared.published();
    let end = prefix_end(&format::DEAD_PREFIX);
    let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let marks =
        published.view.rows(Space::Meta, Bound::Included(&format::DEAD_PREFIX), upper, Direction::Forward);
    let (mut trees, mut tree_marks) = (Vec::new(), Vec::new());
    for mark in marks {
        let (key, _) = mark?;
        let Some((space, prefix)) = decode_dead_key(&key) else { continue };
        match <[u8; 4]>::try_from(prefix) {
            Ok(prefix) if space != Space::Meta => {
                trees.push((space, prefix));
                tree_marks.push(key);
            }
            _ => delete_rows(shared, space, prefix, &key)?,
        }
        if shared.background.is_stopping() {
            return Ok(());
        }
    }
    // Readers of this state would keep the trees.
    drop(published);
    if trees.is_empty() {
        return Ok(());
    }
    shared.backend.drop_trees(&trees, &mut |step| shared.exclusively(step))?;
    commit(shared, tree_marks.into_iter().map(|key| Write { space: Space::Meta, key, value: None }).collect())
}

fn delete_rows(shared: &Arc<Shared>, space: Space, prefix: &[u8], mark: &Bytes) -> Result<()> {
    loop {
        let end = prefix_end(prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let published = shared.published();
        let rows = published.view.rows(space, Bound::Included(prefix), upper, Direction::Forward);
        let mut writes = Vec::new();
        for row in rows.take(ROWS_PER_COMMIT) {
            let (key, _) = row?;
            writes.push(Write { space, key, value: None });
        }
        let done = writes.is_empty();
        if done {
            writes.push(Write { space: Space::Meta, key: mark.clone(), value: None });
        }
        commit(shared, writes)?;
        if done || shared.background.is_stopping() {
            return Ok(());
        }
    }
}

fn commit(shared: &Arc<Shared>, writes: Vec<Write>) -> Result<()> {
    let bytes = writes.iter().map(Write::bytes).sum();
    let (counters, refusals) = (Arc::default(), shared.queue.refusals());
    let (events, one_time) = (Vec::new(), false);
    let set =
        WriteSet { writes, counters, events, one_time, bytes, durable: false, reclaims: false, refusals };
    shared.queue.enqueue(shared, set)?.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_key_says_what_is_dead() {
        let key = dead_key(Space::Index, &[0, 0, 0, 7]);
        assert_eq!(decode_dead_key(&key), Some((Space::Index, [0, 0, 0, 7].as_slice())));
        assert_eq!(decode_dead_key(b"\0dx"), None);
    }
}
