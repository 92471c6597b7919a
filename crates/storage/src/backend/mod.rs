//! What the store asks of the thing that keeps the bytes.
//!
//! A backend applies one batch at a time (the commit queue's leader is its only writer), syncs, and gives out
//! immutable views. Views and their rows are enums and not trait objects: a point read should cost a branch,
//! not a box. The backend itself is a trait object, called once a batch, which also lets tests put a failing
//! disk in between.
//!
//! Invariant: a view shows whole batches. A batch is on disk entirely or not at all after a crash, and no
//! batch is there without those before it.

#[cfg(test)]
pub(crate) mod faulty;
pub(crate) mod memory;
pub(crate) mod memory_disk;
pub(crate) mod tree;

use crate::backup::Held;
use crate::clock::CommitTime;
use crate::runs::RunRows;
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use kilim_error::{Result, StorageError};
use std::ops::Bound;
use std::time::Instant;

pub(crate) trait Backend: Send + Sync {
    /// Everything applied so far.
    fn view(&self) -> View;

    /// The time of the newest batch.
    fn commit_time(&self) -> CommitTime;

    /// Applies a batch, in which no key occurs twice; on disk on return if `sync`. An error that says
    /// `OutOfSpace` means that nothing was written and that a later batch may be; any other leaves the disk in
    /// an unknown state.
    fn apply(
        &self,
        batch: &mut dyn Iterator<Item = &Write>,
        commit_time: CommitTime,
        sync: bool,
    ) -> Result<()>;

    /// Puts everything applied so far on disk.
    fn sync(&self) -> Result<()>;

    /// Refuses if there is no place for more rows at the moment. What frees space need not ask.
    fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    /// Refuses writes to what a checkpoint could not read and merge.
    fn check_trees(&self, _writes: &[Write]) -> Result<()> {
        Ok(())
    }

    /// Waits while too much is in memory, for upkeep that `ask` asks for. Never called by who applies a batch.
    fn await_room(&self, _ask: &dyn Fn()) {}

    /// Loads rows with ascending keys, none of which exists. The last step, which makes them part of later
    /// views and puts them on disk, is run by `exclusively` while no batch is under way; before it, nothing is
    /// visible, and an error leaves nothing.
    fn ingest(&self, space: Space, rows: &mut Sorted, exclusively: &mut Exclusively) -> Result<()>;

    /// Gives up all rows under some prefixes, which nobody reads or writes any more; views that exist keep
    /// seeing them.
    fn drop_trees(&self, prefixes: &[(Space, [u8; 4])], exclusively: &mut Exclusively) -> Result<()>;

    /// Upkeep, about ten times a second.
    fn maintain(&self, _exclusively: &mut Exclusively) -> Result<()> {
        Ok(())
    }

    /// Puts what is in memory where a start finds it without replaying anything, and gives space back.
    fn checkpoint(&self, _exclusively: &mut Exclusively) -> Result<()> {
        Ok(())
    }

    /// Runs something while no checkpoint changes the files.
    fn stand_still(&self, meanwhile: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        meanwhile()
    }

    /// Checkpoints give up past this time, because the store is being closed.
    fn end_by(&self, _deadline: Instant) {}

    /// Leaves the disk as the next start likes it best.
    fn close(&self, _exclusively: &mut Exclusively) -> Result<()> {
        self.sync()
    }

    /// Holds the newest state of the file, which a checkpoint made, to be copied.
    fn hold(&self) -> Result<Held> {
        Err(StorageError::Io("a store in memory cannot be copied".into()).into())
    }

    /// Writes the trees of some prefixes anew, densely and near the beginning of the file, and gives free space
    /// back. `pace` is told blocks done and blocks in all; an error of it ends the work between two portions.
    fn compact(
        &self,
        _prefixes: &[(Space, [u8; 4])],
        _exclusively: &mut Exclusively,
        _pace: &mut Pace,
    ) -> Result<()> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64;

    /// What the tree of a prefix takes on disk.
    fn tree_bytes(&self, _space: Space, _prefix: [u8; 4]) -> u64 {
        0
    }

    /// Whether everything ends with the process, so that what is applied is as safe as it will ever be.
    fn is_volatile(&self) -> bool {
        false
    }
}

/// Rows in ascending key order, or what went wrong while making them.
pub(crate) type Sorted<'a> = dyn Iterator<Item = Result<(Bytes, Bytes)>> + 'a;

/// Is told how far a long work is; an error ends it.
pub(crate) type Pace<'a> = dyn FnMut(u64, u64) -> Result<()> + 'a;

/// Runs a step with no batch under way, and shows readers the state after it.
pub(crate) type Exclusively<'a> = dyn FnMut(&mut dyn FnMut() -> Result<()>) -> Result<()> + 'a;

/// An immutable state of all spaces.
pub(crate) enum View {
    Tree(tree::TreeView),
    Memory(memory::MemoryView),
}

impl View {
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        match self {
            View::Tree(view) => view.get(space, key),
            View::Memory(view) => Ok(view.get(space, key)),
        }
    }

    pub(crate) fn rows(
        &self,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Rows {
        if is_empty_range(lower, upper) {
            return Rows::None;
        }
        match self {
            View::Tree(view) => Rows::Tree(Box::new(view.rows(space, lower, upper, direction))),
            View::Memory(view) => Rows::Memory(view.rows(space, lower, upper, direction)),
        }
    }
}

/// A view's rows in a range; owns what it needs of the view.
pub(crate) enum Rows {
    None,
    /// Records, from runs and the backend in turns.
    Runs(Box<RunRows>),
    Tree(Box<tree::TreeRows>),
    Memory(memory::MemoryRows),
}

impl Rows {
    /// Passes over rows that come before a key, as far as that can be told without a look at each, and so many at most.
    /// Gives how many.
    pub(crate) fn pass_over(&mut self, before: Option<&[u8]>, max: usize) -> Result<usize> {
        match self {
            Rows::Tree(rows) => rows.pass_over(before, max),
            Rows::None | Rows::Runs(_) | Rows::Memory(_) => Ok(0),
        }
    }
}

impl Iterator for Rows {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Rows::None => None,
            Rows::Runs(rows) => rows.next(),
            Rows::Tree(rows) => rows.next(),
            Rows::Memory(rows) => rows.next().map(Ok),
        }
    }
}

/// Ordered maps panic on inverted bounds, and such bounds can be asked for by a query.
pub(crate) fn is_empty_range(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Excluded(upper) | Bound::Included(upper),
        ) => lower >= upper,
    }
}

/// The least key that is greater than every key with this prefix, if there is one.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_follows_all_its_keys() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 255]), Some(vec![2]));
        assert_eq!(prefix_end(&[255, 255]), None);
        assert_eq!(prefix_end(b""), None);
    }

    #[test]
    fn a_range_is_empty_when_nothing_can_lie_in_it() {
        use Bound::{Excluded, Included, Unbounded};
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        for (lower, upper, empty) in [
            (Included(a), Included(a), false),
            (Included(a), Excluded(a), true),
            (Excluded(a), Included(a), true),
            (Excluded(a), Excluded(b), false),
            (Included(b), Included(a), true),
            (Unbounded, Excluded(a), false),
        ] {
            assert_eq!(is_empty_range(lower, upper), empty, "{lower:?} {upper:?}");
        }
    }
}
