//! A transaction's own writes, ordered, and cheap to freeze into a view.
//!
//! They lie in a tree of sorted vectors behind `Arc`s. Most transactions write a handful of keys, which are one vector: few
//! allocations, and a view of it is a reference count. A document with many index keys brings them in order, so that most
//! writes are appended. What is written to while a view lives is copied: one vector of each level.
//!
//! Invariant: at most one entry per space and key; a view never changes; no vector but that of an empty overlay is empty.

use crate::counter::{Counter, CounterChange};
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use std::ops::Bound;
use std::sync::Arc;

/// Entries of a vector: so many are moved quickly, and bound what a copy on write costs.
const VECTOR_MAX: usize = if cfg!(test) { 4 } else { 64 };

#[derive(Clone, Default)]
pub(crate) struct Overlay {
    root: Node,
    counters: Arc<Vec<CounterChange>>,
    bytes: usize,
}

#[derive(Clone)]
enum Node {
    Leaf(Arc<Vec<Write>>),
    Inner(Arc<Vec<Child>>),
}

/// A node below another one, and where it begins: none of its keys is less, and all keys before it are. The first child
/// takes what is less than its beginning, too.
#[derive(Clone)]
struct Child {
    space: Space,
    key: Bytes,
    node: Node,
}

impl Default for Node {
    fn default() -> Node {
        Node::Leaf(Arc::default())
    }
}

impl Node {
    fn find(&self, space: Space, key: &[u8]) -> Option<&Write> {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(rows) => {
                    return place_in(rows, space, key).ok().and_then(|at| rows.get(at));
                }
                Node::Inner(children) => node = &children[child_of(children, space, key)].node,
            }
        }
    }

    /// Puts a write in place. Gives what the node has no room for, as a node to stand behind it.
    fn set(&mut self, write: Write) -> Option<Child> {
        match self {
            Node::Leaf(rows) => {
                let place = place_in(rows, write.space, &write.key);
                let rows = Arc::make_mut(rows);
                let at = match place {
                    Ok(at) => {
                        rows[at] = write;
                        return None;
                    }
                    Err(at) => at,
                };
                let behind = insert(rows, at, write)?;
                let Write { space, key, .. } = &behind[0];
                Some(Child { space: *space, key: key.clone(), node: Node::Leaf(Arc::new(behind)) })
            }
            Node::Inner(children) => {
                let at = child_of(children, write.space, &write.key);
                let children = Arc::make_mut(children);
                let added = children[at].node.set(write)?;
                let behind = insert(children, at + 1, added)?;
                let Child { space, key, .. } = &behind[0];
                Some(Child { space: *space, key: key.clone(), node: Node::Inner(Arc::new(behind)) })
            }
        }
    }

    /// The first entry that is not before a range; `is_before` is true of all keys up to some place, and of none behind it.
    fn first_from(&self, is_before: &impl Fn(Space, &[u8]) -> bool) -> Option<&Write> {
        match self {
            Node::Leaf(rows) => rows.get(rows.partition_point(|row| is_before(row.space, &row.key))),
            Node::Inner(children) => {
                let behind = children.partition_point(|child| is_before(child.space, &child.key));
                // It may lie in the last child that begins before the range, or is the first of the next one.
                let mut candidates = children[behind.saturating_sub(1)..].iter();
                candidates.find_map(|child| child.node.first_from(is_before))
            }
        }
    }

    /// The last entry for which `is_before` holds.
    fn last_before(&self, is_before: &impl Fn(Space, &[u8]) -> bool) -> Option<&Write> {
        match self {
            Node::Leaf(rows) => {
                let behind = rows.partition_point(|row| is_before(row.space, &row.key));
                rows.get(behind.checked_sub(1)?)
            }
            Node::Inner(children) => {
                let behind = children.partition_point(|child| is_before(child.space, &child.key));
                children[behind.saturating_sub(1)].node.last_before(is_before)
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(rows) => rows.len(),
            Node::Inner(children) => children.iter().map(|child| child.node.len()).sum(),
        }
    }

    /// Moves the entries out, or copies them where a view has them too.
    fn append_to(self, out: &mut Vec<Write>) {
        match self {
            Node::Leaf(rows) => match Arc::try_unwrap(rows) {
                Ok(rows) => out.extend(rows),
                Err(shared) => out.extend_from_slice(&shared),
            },
            Node::Inner(children) => {
                Arc::unwrap_or_clone(children).into_iter().for_each(|child| child.node.append_to(out));
            }
        }
    }
}

/// Inserts into a vector that may be full: gives its upper part then.
fn insert<T>(all: &mut Vec<T>, at: usize, added: T) -> Option<Vec<T>> {
    if all.len() < VECTOR_MAX {
        all.insert(at, added);
        return None;
    }
    // What is appended leaves full vectors behind.
    let middle = if at == all.len() { at } else { all.len() / 2 };
    let mut behind = Vec::with_capacity(VECTOR_MAX);
    behind.extend(all.drain(middle..));
    match at < middle {
        true => all.insert(at, added),
        false => behind.insert(at - middle, added),
    }
    Some(behind)
}

fn place_in(rows: &[Write], space: Space, key: &[u8]) -> Result<usize, usize> {
    // Keys come in order more often than not.
    if rows.last().is_some_and(|last| (last.space, &*last.key) < (space, key)) {
        return Err(rows.len());
    }
    rows.binary_search_by(|row| (row.space, &*row.key).cmp(&(space, key)))
}

fn child_of(children: &[Child], space: Space, key: &[u8]) -> usize {
    let behind = children.partition_point(|child| (child.space, &*child.key) <= (space, key));
    behind.saturating_sub(1)
}

impl Overlay {
    pub(crate) fn is_empty(&self) -> bool {
        self.counters.is_empty() && !self.has_entries()
    }

    pub(crate) fn has_entries(&self) -> bool {
        match &self.root {
            Node::Leaf(rows) => !rows.is_empty(),
            Node::Inner(_) => true,
        }
    }

    /// About how much memory the writes hold; overwritten values are counted once more.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The outer `None` is "not written here", the inner one "deleted here".
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Option<&Option<Bytes>> {
        self.root.find(space, key).map(|write| &write.value)
    }

    pub(crate) fn set(&mut self, write: Write) {
        self.bytes += write.bytes();
        if let Some(behind) = self.root.set(write) {
            let first =
                Child { space: Space::Meta, key: Bytes::default(), node: std::mem::take(&mut self.root) };
            let mut children = Vec::with_capacity(VECTOR_MAX);
            children.extend([first, behind]);
            self.root = Node::Inner(Arc::new(children));
        }
    }

    pub(crate) fn change_counter(&mut self, change: CounterChange) {
        let counters = Arc::make_mut(&mut self.counters);
        match counters.iter_mut().find(|known| known.key == change.key) {
            Some(known) if change.removed => *known = change,
            Some(known) => known.delta = known.delta.plus(change.delta),
            None => counters.push(change),
        }
    }

    pub(crate) fn counter(&self, key: &[u8], before: Counter) -> Counter {
        match self.counters.iter().find(|change| *change.key == *key) {
            Some(change) => change.apply(before),
            None => before,
        }
    }

    /// The writes, sorted within each space, and the counter changes.
    pub(crate) fn into_parts(self) -> (Vec<Write>, Arc<Vec<CounterChange>>) {
        let writes = match self.root {
            Node::Leaf(rows) => Arc::unwrap_or_clone(rows),
            inner => {
                let mut writes = Vec::with_capacity(inner.len());
                inner.append_to(&mut writes);
                writes
            }
        };
        (writes, self.counters)
    }

    /// The first entry of a range, seen from the side the scan begins at.
    pub(crate) fn first_in(
        &self,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Option<(&Bytes, &Option<Bytes>)> {
        if crate::backend::is_empty_range(lower, upper) {
            return None;
        }
        let below = |of: Space, key: &[u8]| match lower {
            Bound::Unbounded => of < space,
            Bound::Included(lower) => (of, key) < (space, lower),
            Bound::Excluded(lower) => (of, key) <= (space, lower),
        };
        let not_above = |of: Space, key: &[u8]| match upper {
            Bound::Unbounded => of <= space,
            Bound::Included(upper) => (of, key) <= (space, upper),
            Bound::Excluded(upper) => (of, key) < (space, upper),
        };
        let write = match direction {
            Direction::Forward => self.root.first_from(&below),
            Direction::Backward => self.root.last_before(&not_above),
        }?;
        let is_within = !below(write.space, &write.key) && not_above(write.space, &write.key);
        is_within.then_some((&write.key, &write.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<(Space, Vec<u8>), Option<Vec<u8>>>;

    fn space() -> impl Strategy<Value = Space> {
        prop_oneof![Just(Space::Meta), Just(Space::Records), Just(Space::Index)]
    }

    /// Keys of few bytes, so that many are equal or follow each other.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0u8..6, 0..4)
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
    }

    fn is_as(overlay: &Overlay, model: &Model) -> Result<(), TestCaseError> {
        prop_assert_eq!(overlay.has_entries(), !model.is_empty());
        for ((space, key), value) in model {
            let found = overlay.get(*space, key).map(|value| value.as_deref().map(<[u8]>::to_vec));
            prop_assert_eq!(found.as_ref(), Some(value));
        }
        let (writes, _) = overlay.clone().into_parts();
        let writes = writes
            .iter()
            .map(|write| ((write.space, write.key.to_vec()), write.value.as_deref().map(<[u8]>::to_vec)));
        prop_assert_eq!(writes.collect::<Vec<_>>(), model.clone().into_iter().collect::<Vec<_>>());
        Ok(())
    }

    proptest! {
        #[test]
        fn an_overlay_is_an_ordered_map_and_views_of_it_stay(
            writes in prop::collection::vec((space(), key(), prop::option::of(key()), prop::bool::weighted(0.1)), 0..200),
            absent in prop::collection::vec((space(), key()), 10),
            ranges in prop::collection::vec((space(), bound(), bound(), any::<bool>()), 20),
        ) {
            let (mut overlay, mut model) = (Overlay::default(), Model::new());
            let mut views = Vec::new();
            for (space, key, value, looks) in writes {
                if looks {
                    views.push((overlay.clone(), model.clone()));
                }
                let write =
                    Write { space, key: key.as_slice().into(), value: value.as_deref().map(Bytes::from) };
                overlay.set(write);
                model.insert((space, key), value);
            }
            views.push((overlay, model));
            for (overlay, model) in &views {
                is_as(overlay, model)?;
                for (space, key) in &absent {
                    prop_assert_eq!(
                        overlay.get(*space, key).is_some(),
                        model.contains_key(&(*space, key.clone()))
                    );
                }
                for (space, lower, upper, forward) in &ranges {
                    let (lower, upper) = (lower.as_ref().map(|key| &key[..]), upper.as_ref().map(|key| &key[..]));
                    let within = |key: &[u8]| {
                        use std::ops::RangeBounds;
                        <(Bound<&[u8]>, Bound<&[u8]>) as RangeBounds<[u8]>>::contains(&(lower, upper), key)
                    };
                    let mut expected = model.keys().filter(|(of, key)| of == space && within(key));
                    let (expected, direction) = match forward {
                        true => (expected.next(), Direction::Forward),
                        false => (expected.next_back(), Direction::Backward),
                    };
                    let found = overlay.first_in(*space, lower, upper, direction).map(|(key, _)| key.to_vec());
                    prop_assert_eq!(found.as_ref(), expected.map(|(_, key)| key));
                }
            }
        }
    }

    #[test]
    fn keys_in_order_fill_vectors() {
        let mut overlay = Overlay::default();
        for key in 0..100u32 {
            overlay.set(Write { space: Space::Index, key: key.to_be_bytes().into(), value: None });
        }
        fn leaves(node: &Node) -> Vec<usize> {
            match node {
                Node::Leaf(rows) => vec![rows.len()],
                Node::Inner(children) => children.iter().flat_map(|child| leaves(&child.node)).collect(),
            }
        }
        assert_eq!(leaves(&overlay.root), [VECTOR_MAX; 25]);
    }
}
