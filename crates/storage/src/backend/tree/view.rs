//! An immutable state of the tree backend: memory over trees.
//!
//! What was written since the last checkpoint lies in the active tables; while a checkpoint runs, what it writes
//! lies in the frozen ones; everything else is in the forest. A lookup asks them in this order. A scan merges
//! them: where several have a key, the newest wins.

use super::spans::{self, Edge};
use super::{Frozen, Tables};
use crate::backend::memory::as_slice;
use crate::memtable::Cursor as TableCursor;
use crate::snapshot::Direction;
use crate::space::{Bytes, Space};
use crate::tree::cursor::{self, Cursor as TreeCursor};
use crate::tree::file::PageFile;
use crate::tree::forest::Forest;
use crate::tree::{Root, TreeName};
use kilim_error::{Error, Result};
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic;

#[derive(Clone)]
pub(crate) struct TreeView {
    pub(super) active: Arc<Tables>,
    /// The newest batch of `active` that belongs to the state.
    pub(super) sequence: u64,
    pub(super) frozen: Option<Arc<Frozen>>,
    pub(super) forest: Arc<Forest>,
    pub(super) file: Arc<PageFile>,
}

impl TreeView {
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = self.active.space(space).get(key, self.sequence) {
            return Ok(value.clone());
        }
        if let Some(frozen) = &self.frozen
            && let Some(value) = frozen.tables.space(space).get(key, u64::MAX)
        {
            return Ok(value.clone());
        }
        let name = TreeName::of(space, key);
        match self.forest.roots.get(&name) {
            Some(root) => cursor::get(&self.file, name, root, key),
            None => Ok(None),
        }
    }

    pub(crate) fn rows(
        &self,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> TreeRows {
        let active = TableCursor::new(self.active.space(space), self.sequence, lower, upper, direction);
        let frozen = self
            .frozen
            .as_ref()
            .map(|frozen| TableCursor::new(frozen.tables.space(space), u64::MAX, lower, upper, direction));
        // A table without rows in the range costs nothing any more.
        let frozen = frozen.filter(|cursor| cursor.peek().is_some());
        let mut rows = TreeRows {
            direction,
            tables: [active.peek().is_some().then_some(active), frozen],
            trees: Trees::new(self, space, lower, upper, direction),
            alone: 0,
            failed: None,
            skipped: 0,
            run: Run::default(),
            space,
            active: self.active.clone(),
            frozen: self.frozen.clone(),
            sequence: self.sequence,
        };
        rows.failed = rows.trees.next_tree().err();
        rows
    }
}

/// The rows of a range of a view.
pub(crate) struct TreeRows {
    direction: Direction,
    /// The active table and the frozen one, for as long as they have rows ahead.
    tables: [Option<TableCursor>; 2],
    trees: Trees,
    /// Rows of the tree that come before the next one of the tables.
    alone: usize,
    failed: Option<Error>,
    /// Deletions that were passed.
    skipped: u64,
    run: Run,
    space: Space,
    active: Arc<Tables>,
    frozen: Option<Arc<Frozen>>,
    sequence: u64,
}

/// Deletions without a row between them.
#[derive(Default)]
struct Run {
    count: u64,
    /// Those at its near and its far end.
    near: Bytes,
    far: Bytes,
}

impl Iterator for TreeRows {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.alone > 0 {
            self.alone -= 1;
            return self.trees.take();
        }
        loop {
            if let Some(error) = self.failed.take() {
                self.tables = [None, None];
                self.trees.end();
                return Some(Err(error));
            }
            if let [None, None] = self.tables {
                self.end_run();
                return self.trees.take();
            }
            if let Some(row) = self.merge() {
                self.end_run();
                return Some(Ok(row));
            }
            if self.failed.is_none() && self.tables.iter().all(Option::is_none) && self.trees.key().is_none()
            {
                self.end_run();
                return None;
            }
        }
    }
}

impl TreeRows {
    /// Passes over rows that come before a key, as far as that can be told without a look at each, and so many at most.
    pub(crate) fn pass_over(&mut self, before: Option<&[u8]>, max: usize) -> Result<usize> {
        let known = match self.tables {
            _ if self.failed.is_some() => 0,
            _ if self.alone > 0 => self.alone,
            [None, None] => usize::MAX,
            _ => 0,
        };
        if known == 0 {
            return Ok(0);
        }
        if self.alone == 0 {
            self.end_run();
        }
        let passed = self.trees.pass_over(before, known.min(max))?;
        self.alone = self.alone.saturating_sub(passed);
        Ok(passed)
    }

    /// The next row, or `None` after a step that gave none.
    fn merge(&mut self) -> Option<(Bytes, Bytes)> {
        let direction = self.direction;
        let before = |a: &[u8], b: &[u8]| match direction {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        };
        // The table whose key comes first; the active one if both have it.
        let mut chosen: Option<(usize, &Bytes)> = None;
        let mut twice = false;
        for (at, table) in self.tables.iter().enumerate() {
            let Some((key, _)) = table.as_ref().and_then(TableCursor::peek) else { continue };
            match chosen.map(|(_, first)| before(key, first)) {
                Some(Ordering::Greater) => {}
                Some(Ordering::Equal) => twice = true,
                Some(Ordering::Less) | None => chosen = Some((at, key)),
            }
        }
        let (at, key) = chosen?;
        let tree = self.trees.key().map(|tree| before(tree, key));
        if tree == Some(Ordering::Less) {
            // All rows of the leaf up to the table's key need no further look at it.
            self.alone = self.trees.rows_before(key).saturating_sub(1);
            return match self.trees.take()? {
                Ok(row) => Some(row),
                Err(error) => {
                    self.failed = Some(error);
                    None
                }
            };
        }
        if tree == Some(Ordering::Equal)
            && let Err(error) = self.trees.skip()
        {
            self.failed = Some(error);
            return None;
        }
        if twice {
            self.advance(1);
        }
        let (key, value) = self.tables[at].as_ref().and_then(TableCursor::peek)?;
        let (key, value) = (key.clone(), value.cloned());
        self.advance(at);
        if value.is_none() {
            self.pass(&key);
        }
        Some((key, value?))
    }

    /// Notes a deletion; at the first of a run, goes to the end of the span that it lies in.
    fn pass(&mut self, key: &Bytes) {
        self.skipped += 1;
        self.run.count += 1;
        self.run.far = key.clone();
        if self.run.count > 1 {
            return;
        }
        self.run.near = key.clone();
        let spans = &self.active.spans;
        if let Some(end) = spans.end_of(self.space, key, self.sequence, self.direction) {
            if end.included {
                self.run.far = end.key.clone();
            }
            self.seek(0, &end);
            self.seek(1, &end);
            self.failed = self.trees.seek(&end).err();
            return;
        }
        // Frozen tables know nothing of rows in the active ones.
        let Some(frozen) = &self.frozen else { return };
        if let Some(end) = frozen.tables.spans.end_of(self.space, key, u64::MAX, self.direction) {
            self.seek(1, &end);
            self.failed = self.trees.seek(&end).err();
            // The active table may have rows before the end, so the run is over.
            self.run = Run::default();
        }
    }

    /// Leaves a run of deletions behind as a span.
    fn end_run(&mut self) {
        if self.run.count >= spans::DELETIONS_MIN {
            let (first, last) = match self.direction {
                Direction::Forward => (&self.run.near, &self.run.far),
                Direction::Backward => (&self.run.far, &self.run.near),
            };
            self.active.spans.add(&self.active, self.space, first, last, self.sequence);
        }
        if self.run.count > 0 {
            self.run = Run::default();
        }
    }

    /// Puts a table's cursor behind a span.
    fn seek(&mut self, at: usize, end: &Edge) {
        if let Some(table) = &mut self.tables[at] {
            table.seek(&end.key);
            if end.included && table.peek().is_some_and(|(found, _)| *found == end.key) {
                table.advance();
            }
            if table.peek().is_none() {
                self.tables[at] = None;
            }
        }
    }

    fn advance(&mut self, at: usize) {
        if let Some(table) = &mut self.tables[at] {
            table.advance();
            if table.peek().is_none() {
                self.tables[at] = None;
            }
        }
    }
}

impl Drop for TreeRows {
    fn drop(&mut self) {
        if self.skipped > 0 {
            self.active.skipped.fetch_add(self.skipped, atomic::Ordering::Relaxed);
        }
    }
}

/// The rows of all trees that a range touches, nearly always one.
struct Trees {
    file: Arc<PageFile>,
    lower: Bound<Bytes>,
    upper: Bound<Bytes>,
    direction: Direction,
    /// The trees that are left, the next one last.
    left: Vec<(TreeName, Root)>,
    current: Option<TreeCursor>,
    /// The tree that the cursor is in.
    here: Option<(TreeName, Root)>,
    /// Pages of a state that nobody holds may be written over.
    _forest: Arc<Forest>,
}

impl Trees {
    fn new(
        view: &TreeView,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Trees {
        let first = match lower {
            Bound::Included(key) | Bound::Excluded(key) => TreeName::of(space, key),
            Bound::Unbounded => TreeName { space: space as u8, prefix: 0 },
        };
        let last = match upper {
            Bound::Included(key) | Bound::Excluded(key) => TreeName::of(space, key),
            Bound::Unbounded => TreeName { space: space as u8, prefix: u32::MAX },
        };
        let mut left: Vec<_> = match first <= last {
            true => view.forest.roots.range(first..=last).map(|(name, root)| (*name, *root)).collect(),
            false => Vec::new(),
        };
        if direction == Direction::Forward {
            left.reverse();
        }
        Trees {
            file: view.file.clone(),
            lower: lower.map(Bytes::from),
            upper: upper.map(Bytes::from),
            direction,
            left,
            current: None,
            here: None,
            _forest: view.forest.clone(),
        }
    }

    fn key(&self) -> Option<&[u8]> {
        self.current.as_ref()?.key()
    }

    /// How many rows of the current leaf come before a key.
    fn rows_before(&self, key: &[u8]) -> usize {
        self.current.as_ref().map_or(0, |cursor| cursor.rows_before(key))
    }

    fn take(&mut self) -> Option<Result<(Bytes, Bytes)>> {
        let row = self.current.as_mut()?.take()?;
        if self.key().is_none()
            && let Err(error) = self.next_tree()
        {
            self.end();
            return Some(Err(error));
        }
        if row.is_err() {
            self.end();
        }
        Some(row)
    }

    fn pass_over(&mut self, before: Option<&[u8]>, max: usize) -> Result<usize> {
        let Some(cursor) = &mut self.current else { return Ok(0) };
        let passed = cursor.pass_over(before, max);
        let passed = match self.key() {
            None if passed.is_ok() => self.next_tree().and(passed),
            _ => passed,
        };
        if passed.is_err() {
            self.end();
        }
        passed
    }

    fn skip(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.current {
            cursor.skip()?;
        }
        match self.key() {
            Some(_) => Ok(()),
            None => self.next_tree(),
        }
    }

    /// Goes on behind a span.
    fn seek(&mut self, end: &Edge) -> Result<()> {
        let Some((name, root)) = self.here else { return Ok(()) };
        let near = match end.included {
            true => Bound::Excluded(end.key.clone()),
            false => Bound::Included(end.key.clone()),
        };
        match self.direction {
            Direction::Forward => self.lower = near,
            Direction::Backward => self.upper = near,
        }
        self.left.push((name, root));
        self.current = None;
        self.next_tree()
    }

    /// Goes on to the next tree that has a row in the range.
    fn next_tree(&mut self) -> Result<()> {
        while self.key().is_none() {
            let Some((name, root)) = self.left.pop() else {
                self.current = None;
                return Ok(());
            };
            self.here = Some((name, root));
            let (lower, upper) = (as_slice(&self.lower), as_slice(&self.upper));
            self.current = Some(TreeCursor::new(&self.file, name, &root, lower, upper, self.direction)?);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.left.clear();
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::backend::tree::{Memory, TreeBackend};
    use crate::disk::memory::MemoryDisk;
    use crate::space::Write;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Step {
        Put(u8, u8),
        /// Deletes some keys in a row.
        Delete(u8, u8),
        /// The first rows from one end, as a queue asks for them.
        First(bool, u8),
        Scan(u8, u8, bool),
        Keep,
        Checkpoint,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (any::<u8>(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
            4 => (any::<u8>(), 1u8..40).prop_map(|(key, count)| Step::Delete(key, count)),
            4 => (any::<bool>(), 1u8..5).prop_map(|(forward, count)| Step::First(forward, count)),
            3 => (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(a, b, forward)| Step::Scan(a, b, forward)),
            1 => Just(Step::Keep),
            1 => Just(Step::Checkpoint),
        ];
        prop::collection::vec(step, 1..120)
    }

    fn key(key: u8) -> [u8; 5] {
        [0, 0, 0, 9, key]
    }

    fn rows(view: &TreeView, from: u8, to: u8, forward: bool, limit: usize) -> Vec<(u8, u8)> {
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        let (lower, upper) = (key(from), key(to));
        let rows = view.rows(Space::Index, Bound::Included(&lower), Bound::Included(&upper), direction);
        rows.take(limit).map(|row| row.map(|(key, value)| (key[4], value[0])).unwrap()).collect()
    }

    fn expected(model: &BTreeMap<u8, u8>, from: u8, to: u8, forward: bool, limit: usize) -> Vec<(u8, u8)> {
        let range = model.range(from..=to).map(|(key, value)| (*key, *value));
        match forward {
            true => range.take(limit).collect(),
            false => range.rev().take(limit).collect(),
        }
    }

    /// Rows that are passed over are those that would have come.
    fn check_passing(view: &TreeView, from: u8, to: u8, before: u8, expected: &[(u8, u8)]) {
        let (lower, upper, bound) = (key(from), key(to), key(before));
        let (lower, upper) = (Bound::Included(&lower[..]), Bound::Included(&upper[..]));
        let mut rows = view.rows(Space::Index, lower, upper, Direction::Forward);
        let mut at = 0;
        for turn in 0.. {
            let bound = (turn % 2 == 0).then_some(&bound[..]);
            let passed = rows.pass_over(bound, turn % 7 + 1).unwrap();
            assert!(passed <= turn % 7 + 1);
            assert!(bound.is_none() || expected[at..at + passed].iter().all(|row| row.0 < before));
            at += passed;
            let row = rows.next().map(|row| row.map(|(key, value)| (key[4], value[0])).unwrap());
            assert_eq!(row, expected.get(at).copied());
            at += 1;
            if row.is_none() {
                break;
            }
        }
    }

    /// Counted in deletions that a scan has to pass, which is what a queue's step once grew by.
    #[test]
    fn the_first_row_of_a_queue_costs_no_more_however_many_have_passed() {
        let memory = Memory { cache_bytes: 1 << 20, tables_bytes_max: 64 << 20 };
        let backend = TreeBackend::open(Arc::new(MemoryDisk::default()), memory, false, None).unwrap();
        let row = |number: u32, value: Option<u8>| Write {
            space: Space::Index,
            key: Bytes::from([[0, 0, 0, 9], number.to_be_bytes()].concat()),
            value: value.map(|value| Bytes::from([value])),
        };
        let apply = |writes: Vec<Write>| backend.apply(&mut writes.iter(), 1, false).unwrap();
        apply((0..1_000).map(|number| row(number, Some(1))).collect());
        backend.checkpoint(&mut |step| step()).unwrap();
        let mut passed_by_quarter = [0; 4];
        for number in 0..8_000u32 {
            let view = backend.tree_view();
            let before = view.active.skipped.load(atomic::Ordering::Relaxed);
            let first =
                view.rows(Space::Index, Bound::Unbounded, Bound::Unbounded, Direction::Forward).next();
            assert_eq!(first.unwrap().unwrap().0[4..], number.to_be_bytes());
            let passed = view.active.skipped.load(atomic::Ordering::Relaxed) - before;
            passed_by_quarter[number as usize / 2_000] += passed;
            apply(vec![row(number, None), row(number + 1_000, Some(1))]);
        }
        assert!(passed_by_quarter.iter().all(|passed| *passed < 5 * 2_000), "{passed_by_quarter:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn scans_find_what_lives_whatever_spans_were_left_behind(steps in steps()) {
            let memory = Memory { cache_bytes: 1 << 20, tables_bytes_max: 1 << 20 };
            let backend = TreeBackend::open(Arc::new(MemoryDisk::default()), memory, false, None).unwrap();
            let mut model = BTreeMap::new();
            let mut kept = None;
            let apply = |writes: Vec<Write>| backend.apply(&mut writes.iter(), 1, false).unwrap();
            let write = |at: u8, value: Option<u8>| Write {
                space: Space::Index,
                key: Bytes::from(key(at)),
                value: value.map(|value| Bytes::from([value])),
            };
            apply((0..=u8::MAX).map(|at| write(at, Some(at))).collect());
            model.extend((0..=u8::MAX).map(|at| (at, at)));
            for step in steps {
                match step {
                    Step::Put(at, value) => {
                        apply(vec![write(at, Some(value))]);
                        model.insert(at, value);
                    }
                    Step::Delete(at, count) => {
                        let keys = at..=at.saturating_add(count);
                        apply(keys.clone().map(|at| write(at, None)).collect());
                        model.retain(|at, _| !keys.contains(at));
                    }
                    Step::Keep => kept = Some((backend.tree_view(), model.clone())),
                    Step::Checkpoint => backend.checkpoint(&mut |step| step()).unwrap(),
                    Step::First(forward, limit) => {
                        let found = rows(&backend.tree_view(), 0, u8::MAX, forward, limit.into());
                        prop_assert_eq!(found, expected(&model, 0, u8::MAX, forward, limit.into()));
                    }
                    Step::Scan(a, b, forward) => {
                        let (a, b) = (a.min(b), a.max(b));
                        let found = rows(&backend.tree_view(), a, b, forward, 999);
                        prop_assert_eq!(found, expected(&model, a, b, forward, 999));
                        let all = expected(&model, a, b, true, 999);
                        check_passing(&backend.tree_view(), a, b, a.midpoint(b), &all);
                        if let Some((view, model)) = &kept {
                            prop_assert_eq!(rows(view, a, b, forward, 999), expected(model, a, b, forward, 999));
                        }
                    }
                }
            }
        }
    }
}
