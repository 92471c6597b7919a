//! The memtable: a versioned ordered map in memory, written by one and read by many without locks.
//!
//! It is a skip list. Each key has one node; a node holds the versions of its key, newest first, and the one
//! it was made with lies inside it, so that the usual scan step touches one allocation. A reader at sequence
//! `at` sees of each key the newest version whose sequence is at most `at`. Nodes and versions are never
//! changed nor freed before the whole list is dropped; only the pointers between them move. They lie in an [`Arena`].
//!
//! A search compares keys that lie all over memory. So a node has the beginning of its key beside its links, and asks for the
//! node below before it looks at the one ahead.
//!
//! The one writer holds a mutex, so its stores need no compare-and-swap. It remembers where it wrote last
//! (the finger), so keys that come in order or in clusters are placed without a search from the top.
//!
//! # Why a reader sees a consistent state while the writer goes on
//!
//! The reader got `at` and the table through a publication (a lock, a channel) that came after every write
//! with a sequence up to `at`. Call those writes old and all others new; sequences never decrease, so no old
//! write comes later.
//!
//! - What is reached is whole. A node or version is filled in before the Release store that links it, and all
//!   links are read with Acquire, so whoever reaches it sees its contents and its own links at least as they
//!   were when it was linked. That also holds for a new node that so far hangs in some levels only: the
//!   levels above merely lack a short cut, and its own tower is filled in up to the top.
//! - No old node is passed over going forward. A link of level 0 only ever changes to a node between its
//!   owner and its former target. A reader sees each old link at least as new as the last old write left it,
//!   thus its target is the next old node or a new node before that; and a new node's link was aimed, when it
//!   was made, at the node then following, so from new nodes the walk comes to the same next old node. Links
//!   of higher levels are used to come closer to a key from below only, and the rest of the way is walked on
//!   level 0.
//! - The same holds going backward. `prev` of a node only ever changes to a node between its former target
//!   and its owner, and a new node's `prev` is set before it is linked. The writer links a node forward first
//!   and turns its successor's `prev` to it afterwards, so for a moment a walk backward misses a node that a
//!   walk forward finds; that node is new, and of old nodes both links were set before the publication.
//! - New nodes and versions change nothing. A new node has versions above `at` only, so the reader steps over
//!   it. A new version stands before the old ones in the chain, and the reader walks past it.
//!
//! Invariant: on each level keys strictly ascend, each level holds a subset of the level below, and in a
//! chain of versions the sequences do not ascend from newest to oldest.

mod arena;

use self::arena::Arena;
use crate::prefetch::{prefetch, prefetch_at};
use crate::snapshot::Direction;
use crate::space::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::alloc::Layout;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::marker::PhantomData;
use std::ops::Bound;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

pub(crate) struct Memtable {
    /// Comes before all keys and has all levels. Its key and version are never looked at.
    head: NonNull<Node>,
    /// Levels in use. Readers take it as a hint where to begin, so an outdated value only costs steps.
    levels: AtomicUsize,
    bytes: AtomicUsize,
    writing: Mutex<Writing>,
}

/// The right to write into a table, held by one at a time.
pub(crate) struct Writer<'t> {
    table: &'t Memtable,
    writing: MutexGuard<'t, Writing>,
}

/// Goes over a range of a table as of one sequence. Owns its share of the table.
pub(crate) struct Cursor {
    table: Arc<Memtable>,
    at: u64,
    direction: Direction,
    /// The far end of the range in the cursor's direction.
    limit: Bound<Bytes>,
    place: Option<Place>,
}

impl Memtable {
    pub(crate) fn new() -> Memtable {
        let mut nodes = Arena::new();
        let nothing = Version { sequence: u64::MAX, value: None };
        let head = Node::allocate(&mut nodes, Bytes::new(&[]), nothing, MAX_LEVELS);
        Memtable {
            head,
            levels: AtomicUsize::new(1),
            bytes: AtomicUsize::new(0),
            writing: Mutex::new(Writing {
                fingers: [head; MAX_LEVELS],
                sequence: 0,
                random: RANDOM_SEED,
                nodes,
                versions: Arena::new(),
            }),
        }
    }

    /// The one writer; others wait for it.
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer { table: self, writing: self.writing.lock() }
    }

    /// The newest version at or before `at`; `Some(None)` is a deletion.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<&Option<Bytes>> {
        let key = Sought::new(key);
        let mut node = self.head();
        let mut passed = None;
        for level in (0..self.levels.load(Relaxed)).rev() {
            while let Some(next) = node.next_asking(level).filter(|next| Some(*next) != passed) {
                match next.compare(&key) {
                    Less => node = next,
                    Equal => return next.visible(at),
                    Greater => {
                        passed = Some(next);
                        break;
                    }
                }
            }
        }
        None
    }

    /// The newest versions of all keys from `from` on, in order, deletions included. For a table that is no
    /// longer written.
    pub(crate) fn newest<'t>(
        &'t self,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&'t Bytes, Option<&'t Bytes>)> + use<'t> {
        let mut next = self.first_from(from);
        let mut ahead = next.and_then(NodeRef::following);
        let nodes = std::iter::from_fn(move || {
            let node = next?;
            // While the row at hand is used, the key and the value of the next one come, and the node behind that.
            next = ahead;
            if let Some(next) = next {
                next.prefetch_contents();
                ahead = next.following().inspect(|ahead| prefetch_node(ahead.node));
            }
            Some(node)
        });
        nodes.filter_map(|node| Some((node.key(), node.visible(u64::MAX)?.as_ref())))
    }

    /// What the table holds: keys, values, nodes and versions, superseded ones too.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head().following().is_none()
    }

    fn head(&self) -> NodeRef<'_> {
        // SAFETY: the head is made with the table, is whole from the start and lies in the table's arena, which the
        // borrow of `self` keeps.
        unsafe { NodeRef::new(self.head) }
    }

    fn first_from(&self, lower: Bound<&[u8]>) -> Option<NodeRef<'_>> {
        match lower {
            Bound::Unbounded => self.head().following(),
            Bound::Included(key) => self.search(self.head(), self.levels.load(Relaxed), key, false).1,
            Bound::Excluded(key) => self.search(self.head(), self.levels.load(Relaxed), key, true).1,
        }
    }

    fn last_until(&self, upper: Bound<&[u8]>) -> Option<NodeRef<'_>> {
        let levels = self.levels.load(Relaxed);
        let node = match upper {
            Bound::Included(key) => self.search(self.head(), levels, key, true).0,
            Bound::Excluded(key) => self.search(self.head(), levels, key, false).0,
            Bound::Unbounded => {
                let mut node = self.head();
                for level in (0..levels).rev() {
                    while let Some(next) = node.next(level) {
                        node = next;
                    }
                }
                node
            }
        };
        (node != self.head()).then_some(node)
    }

    /// The last node before `key` and the one after it, where a node of the very key counts as before it if
    /// `equal_is_before`. Begins at `node`, which is before the key, and goes down from below level `levels`.
    fn search<'t>(
        &'t self,
        mut node: NodeRef<'t>,
        levels: usize,
        key: &[u8],
        equal_is_before: bool,
    ) -> (NodeRef<'t>, Option<NodeRef<'t>>) {
        let key = Sought::new(key);
        // The levels often end at the same node, which need not be compared again.
        let mut passed = None;
        for level in (0..levels).rev() {
            while let Some(next) = node.next_asking(level).filter(|next| Some(*next) != passed) {
                if next.is_before_sought(&key, equal_is_before) {
                    node = next;
                } else {
                    passed = Some(next);
                    break;
                }
            }
        }
        // Not `node.next(0)`, which may have become a node before the key by now.
        (node, passed)
    }
}

impl Writer<'_> {
    /// Sequences never decrease, and a key is written once per sequence.
    pub(crate) fn set(&mut self, key: &Bytes, value: Option<Bytes>, sequence: u64) {
        debug_assert!(sequence >= self.writing.sequence, "the sequence went back to {sequence}");
        self.writing.sequence = sequence;
        let version = Version { sequence, value };
        let content = version.value.as_ref().map_or(0, |value| value.len());
        let added = match self.find(key) {
            Some(node) => {
                let node = node.node;
                // SAFETY: it was found in this table, which is borrowed for as long as the reference is used.
                unsafe { self.table.own(node) }.push(&mut self.writing.versions, version);
                content + size_of::<Later>()
            }
            None => {
                let levels = self.writing.random_levels();
                self.insert(key, version, levels);
                content + key.len() + Node::layout(levels).size()
            }
        };
        // Nobody else writes it, so this needs no atomic addition.
        self.table.bytes.store(self.table.bytes.load(Relaxed) + added, Relaxed);
    }

    /// The node of `key`. If there is none, the fingers are left at its predecessors.
    ///
    /// The fingers stand at a cut of the list: each is the last node of its level before the cut. So if the
    /// key belongs between the finger and its successor on one level, it does so on all levels above, and it
    /// suffices to climb to the first such level and to search below it.
    fn find(&mut self, key: &[u8]) -> Option<NodeRef<'_>> {
        let table = self.table;
        let key = &Sought::new(key);
        // SAFETY: fingers are the head or were linked by `insert`, so they are whole nodes of this table,
        // which is borrowed for as long as the reference is used.
        let finger = |fingers: &Fingers, level: usize| unsafe { table.own(fingers[level]) };
        let fingers = &mut self.writing.fingers;
        let head = table.head();
        let last = finger(fingers, 0);
        let order = if last == head { Greater } else { last.compare(key).reverse() };

        // The node to search from, the levels to search below, the node known to be not before the key.
        let mut from = last;
        let mut level = 0;
        let mut passed = None;
        let mut found = None;
        match order {
            Equal => return Some(last),
            // All fingers are before the key. Climb until a successor is not.
            Greater => {
                while level < MAX_LEVELS {
                    let Some(next) = finger(fingers, level).next(level) else { break };
                    if next != from {
                        let order = next.compare(key);
                        if order != Less {
                            passed = Some(next);
                            found = (order == Equal).then_some(next);
                            break;
                        }
                        from = next;
                    }
                    level += 1;
                }
            }
            // All successors are past the key. Climb until a finger is before it.
            Less => loop {
                level += 1;
                let node = if level < MAX_LEVELS { finger(fingers, level) } else { head };
                if node == from {
                    continue;
                }
                let order = if node == head { Less } else { node.compare(key) };
                match order {
                    Less => {
                        passed = Some(from);
                        from = node;
                        break;
                    }
                    Equal => return Some(node),
                    Greater => from = node,
                }
            },
        }

        for level in (0..level).rev() {
            while let Some(next) = from.next_asking(level).filter(|next| Some(*next) != passed) {
                let order = next.compare(key);
                if order == Less {
                    from = next;
                    continue;
                }
                passed = Some(next);
                found = (order == Equal).then_some(next);
                break;
            }
            fingers[level] = from.node;
        }
        found
    }

    /// Links a new node behind the fingers and moves them onto it.
    fn insert(&mut self, key: &Bytes, version: Version, levels: usize) {
        let table = self.table;
        let node = Node::allocate(&mut self.writing.nodes, key.clone(), version, levels);
        // SAFETY: `allocate` returned a whole node with `levels` levels. It lies in the table's arena, which the table's
        // drop frees with everything in it.
        let node = unsafe { table.own(node) };
        // SAFETY: fingers are the head or nodes linked earlier.
        let before = |finger: NonNull<Node>| unsafe { table.own(finger) };
        let fingers = &mut self.writing.fingers[..levels];
        let last = before(fingers[0]);
        let after = last.following();

        // Nobody sees the node yet: the Release stores that link it publish these too.
        for (level, finger) in fingers.iter().enumerate() {
            node.link(level).store(before(*finger).link(level).load(Relaxed), Relaxed);
        }
        let prev = if last == table.head() { ptr::null_mut() } else { last.node.as_ptr() };
        node.header().prev.store(prev, Relaxed);

        for (level, finger) in fingers.iter_mut().enumerate() {
            before(*finger).link(level).store(node.node.as_ptr(), Release);
            *finger = node.node;
        }
        if let Some(after) = after {
            after.header().prev.store(node.node.as_ptr(), Release);
        }
        if levels > table.levels.load(Relaxed) {
            table.levels.store(levels, Relaxed);
        }
    }
}

impl Cursor {
    pub(crate) fn new(
        table: &Arc<Memtable>,
        at: u64,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Cursor {
        let (start, limit) = match direction {
            Direction::Forward => (table.first_from(lower), upper),
            Direction::Backward => (table.last_until(upper), lower),
        };
        let limit = limit.map(Bytes::from);
        let mut cursor = Cursor { table: table.clone(), at, direction, limit, place: None };
        cursor.place = cursor.settle(start);
        cursor
    }

    /// The entry it stands on, `None` past the end. Deletions are shown too, as entries without value.
    pub(crate) fn peek(&self) -> Option<(&Bytes, Option<&Bytes>)> {
        let place = self.place.as_ref()?;
        // SAFETY: the node and the version were found in this table, which never changes or frees either
        // before it is dropped, and the cursor's share keeps it for as long as `self` is borrowed.
        let (key, value) = unsafe { (&(*place.node.as_ptr()).key, place.value.as_ref()) };
        Some((key, value.as_ref()))
    }

    pub(crate) fn advance(&mut self) {
        self.place = self.here().and_then(|node| self.settle(self.step(node)));
    }

    /// Goes on, in its direction, to the first entry at or past `key`; never back.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        let Some(node) = self.here() else { return };
        let to = match self.direction {
            Direction::Forward => {
                if !node.is_before(key, false) {
                    return;
                }
                // Climb along ever taller nodes as long as they are before the key, then search down. So a
                // near key is found in few steps.
                let mut near = node;
                while let Some(next) = near.next(near.levels() - 1).filter(|next| next.is_before(key, false))
                {
                    near = next;
                }
                self.table.search(near, near.levels(), key, false).1
            }
            Direction::Backward => {
                if node.is_before(key, true) {
                    return;
                }
                // There is no way up backward, so a key that is not near is searched from the top.
                let mut near = node.preceding();
                for _ in 0..SEEK_STEPS {
                    match near {
                        Some(node) if !node.is_before(key, true) => near = node.preceding(),
                        _ => break,
                    }
                }
                match near {
                    Some(node) if !node.is_before(key, true) => self.table.last_until(Bound::Included(key)),
                    near => near,
                }
            }
        };
        self.place = self.settle(to);
    }

    /// The first entry visible to this cursor from `node` on, within the range.
    fn settle(&self, mut node: Option<NodeRef<'_>>) -> Option<Place> {
        while let Some(at) = node {
            // The limit comes first, lest a crowd of new nodes behind it be walked through.
            if !self.within(at.key()) {
                return None;
            }
            if let Some(value) = at.visible(self.at) {
                return Some(Place { node: at.node, value: NonNull::from(value) });
            }
            node = self.step(at);
        }
        None
    }

    fn step<'t>(&self, node: NodeRef<'t>) -> Option<NodeRef<'t>> {
        match self.direction {
            Direction::Forward => node.following(),
            Direction::Backward => node.preceding(),
        }
    }

    fn within(&self, key: &[u8]) -> bool {
        match (&self.limit, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(limit), Direction::Forward) => key <= limit.as_ref(),
            (Bound::Excluded(limit), Direction::Forward) => key < limit.as_ref(),
            (Bound::Included(limit), Direction::Backward) => key >= limit.as_ref(),
            (Bound::Excluded(limit), Direction::Backward) => key > limit.as_ref(),
        }
    }

    fn here(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `settle` took the node from this cursor's table, whose share it holds.
        self.place.as_ref().map(|place| unsafe { self.table.own(place.node) })
    }
}

/// A quarter of a level's nodes reach the next one, so this serves some 16 million keys without slowing down.
const MAX_LEVELS: usize = 12;

/// How many entries a seek backward tries before it searches from the top.
const SEEK_STEPS: usize = 8;

/// Any odd number. Heights need not be secret: keys are placed by one writer and a table lives briefly.
const RANDOM_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

type Fingers = [NonNull<Node>; MAX_LEVELS];

/// What only the writer needs.
struct Writing {
    /// Of each level the last node before a cut, which is where the last write was.
    fingers: Fingers,
    sequence: u64,
    random: u64,
    /// Where all nodes lie. It goes with the table, and so does the next.
    nodes: Arena,
    /// Where the versions lie that came after the first.
    versions: Arena,
}

/// Where a cursor stands.
struct Place {
    node: NonNull<Node>,
    value: NonNull<Option<Bytes>>,
}

struct Version {
    sequence: u64,
    value: Option<Bytes>,
}

/// A version that came after the one in the node.
struct Later {
    version: Version,
    /// Null if the next older one is that in the node.
    older: *mut Later,
}

/// A node's fixed part. Its piece of the arena goes on with `levels` links, of which `tower` is the place. A search
/// looks at the key's beginning and then at a link, so these are neighbours and mostly share a cache line.
#[repr(C)]
struct Node {
    first: Version,
    /// Null as long as there is only the first version.
    newest: AtomicPtr<Later>,
    /// Null if the head comes before it.
    prev: AtomicPtr<Node>,
    levels: u32,
    /// The beginning of the key, in two parts for the sake of the layout.
    tree: u32,
    words: [u64; 2],
    key: Bytes,
    tower: [AtomicPtr<Node>; 0],
}

/// Says that a node will be read soon: its first version and its links.
fn prefetch_node(node: NonNull<Node>) {
    let address = node.as_ptr().cast_const().cast::<u8>();
    prefetch_at(address);
    prefetch_at(address.wrapping_add(64));
}

/// A key that is looked for, and its beginning.
struct Sought<'k> {
    key: &'k [u8],
    tree: u32,
    words: [u64; 2],
}

/// The first bytes of a key, with zeros behind its end: those that say which tree it belongs to, and the following. Keys whose
/// beginnings differ compare as these do.
fn beginning(key: &[u8]) -> (u32, [u64; 2]) {
    const BYTES: usize = size_of::<u32>() + 2 * size_of::<u64>();
    let bytes = match key.first_chunk::<BYTES>() {
        Some(bytes) => *bytes,
        None => {
            let mut bytes = [0; BYTES];
            bytes[..key.len()].copy_from_slice(key);
            bytes
        }
    };
    let [a, b, c, d, words @ ..] = bytes;
    let words = u128::from_be_bytes(words);
    (u32::from_be_bytes([a, b, c, d]), [(words >> 64) as u64, words as u64])
}

impl Sought<'_> {
    fn new(key: &[u8]) -> Sought<'_> {
        let (tree, words) = beginning(key);
        Sought { key, tree, words }
    }
}

/// A whole node of a table that is borrowed for `'t`. Kept as a pointer because a reference to [`Node`] would
/// not reach its tower.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NodeRef<'t> {
    node: NonNull<Node>,
    table: PhantomData<&'t Memtable>,
}

// SAFETY: the pointers lead to nodes and versions that the table alone owns and that hold `Bytes`, which are
// Send. Nothing in them is tied to a thread.
unsafe impl Send for Memtable {}
// SAFETY: through a shared table, threads read keys and versions that do not change once linked, follow
// atomic links as argued in the header, and write under the mutex only. The contents, `Bytes`, are Sync.
unsafe impl Sync for Memtable {}
// SAFETY: the pointers lead into the table whose share moves along with them, and that table is Send and
// Sync.
unsafe impl Send for Cursor {}

impl Memtable {
    /// # Safety
    /// The node was allocated whole, and belongs to this table and to no other owner.
    unsafe fn own(&self, node: NonNull<Node>) -> NodeRef<'_> {
        // SAFETY: a node of the table lives until the table is dropped, which the borrow of `self` excludes.
        unsafe { NodeRef::new(node) }
    }
}

impl Writing {
    /// One level, and with a chance of a quarter each time one more.
    fn random_levels(&mut self) -> usize {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let stop = 1 << (2 * (MAX_LEVELS - 1));
        (self.random | stop).trailing_zeros() as usize / 2 + 1
    }
}

impl Node {
    fn layout(levels: usize) -> Layout {
        let tower = Layout::array::<AtomicPtr<Node>>(levels).expect("a tower has few levels");
        let (layout, offset) = Layout::new::<Node>().extend(tower).expect("a node is small");
        debug_assert_eq!(offset, std::mem::offset_of!(Node, tower));
        layout
    }

    /// A node that is linked to nothing. The caller owns it, until the arena goes.
    fn allocate(arena: &mut Arena, key: Bytes, first: Version, levels: usize) -> NonNull<Node> {
        debug_assert!((1..=MAX_LEVELS).contains(&levels));
        let node = arena.allocate(Node::layout(levels)).cast::<Node>();
        let (tree, words) = beginning(&key);
        let fixed = Node {
            first,
            newest: AtomicPtr::default(),
            prev: AtomicPtr::default(),
            levels: levels as u32,
            tree,
            words,
            key,
            tower: [],
        };
        // SAFETY: the allocation is fresh, aligned for and as large as a `Node` followed by `levels` links,
        // which begin at `tower` as the type is repr(C) and ends with it. So all writes are within it, and
        // with them all of it is initialised.
        unsafe {
            node.write(fixed);
            let tower = (&raw mut (*node.as_ptr()).tower).cast::<AtomicPtr<Node>>();
            for level in 0..levels {
                tower.add(level).write(AtomicPtr::default());
            }
        }
        node
    }

    /// Drops what a node and its versions hold, one after the other: a chain may be longer than the stack is deep. Where they
    /// lay is the arena's.
    ///
    /// # Safety
    /// The node came from [`Node::allocate`], its arena and that of its versions live, and nobody uses them any more.
    unsafe fn end(node: NonNull<Node>) {
        // SAFETY: by the contract the node is whole and ours alone. Later versions were written whole by `push` and are in
        // one chain only, so each is dropped once, after the next older one was read from it. Links need no drop.
        unsafe {
            let mut later = *(*node.as_ptr()).newest.get_mut();
            while !later.is_null() {
                let older = (*later).older;
                later.drop_in_place();
                later = older;
            }
            node.drop_in_place();
        }
    }
}

impl<'t> NodeRef<'t> {
    /// # Safety
    /// The node came from [`Node::allocate`], and its table is dropped only after `'t`.
    unsafe fn new(node: NonNull<Node>) -> NodeRef<'t> {
        NodeRef { node, table: PhantomData }
    }

    fn header(self) -> &'t Node {
        // SAFETY: by the type's contract the node is initialised and lives for `'t`. It is only ever shared:
        // what changes in it are atomics.
        unsafe { self.node.as_ref() }
    }

    fn key(self) -> &'t Bytes {
        &self.header().key
    }

    /// Says that the key and the value will be read soon.
    fn prefetch_contents(self) {
        let node = self.header();
        prefetch(&node.key);
        node.first.value.iter().for_each(|value| prefetch(value));
    }

    fn levels(self) -> usize {
        self.header().levels as usize
    }

    fn compare(self, key: &Sought<'_>) -> std::cmp::Ordering {
        let node = self.header();
        let beginnings = (node.tree, node.words).cmp(&(key.tree, key.words));
        beginnings.then_with(|| node.key.as_ref().cmp(key.key))
    }

    fn is_before(self, key: &[u8], equal_is_before: bool) -> bool {
        self.is_before_sought(&Sought::new(key), equal_is_before)
    }

    fn is_before_sought(self, key: &Sought<'_>, equal_is_before: bool) -> bool {
        match self.compare(key) {
            Less => true,
            Equal => equal_is_before,
            Greater => false,
        }
    }

    fn link(self, level: usize) -> &'t AtomicPtr<Node> {
        assert!(level < self.levels());
        // SAFETY: `level` is checked, so the link is within the allocation, where `allocate` initialised it.
        // The pointer comes from `self.node`, which was made from the whole allocation, not from a reference
        // to the fixed part. It lives for `'t` and is only ever shared.
        unsafe { &*(&raw const (*self.node.as_ptr()).tower).cast::<AtomicPtr<Node>>().add(level) }
    }

    fn next(self, level: usize) -> Option<NodeRef<'t>> {
        let next = NonNull::new(self.link(level).load(Acquire))?;
        // SAFETY: links lead to whole nodes of the same table (Acquire pairs with the Release in `insert`),
        // and all nodes of a table live until it is dropped, so at least as long as this one is borrowed.
        Some(unsafe { NodeRef::new(next) })
    }

    /// The next node of a level, for a search that goes down from here if that one is too far: what comes next then is
    /// on its way by the time it is known.
    fn next_asking(self, level: usize) -> Option<NodeRef<'t>> {
        if let Some(below) = level.checked_sub(1) {
            let next = self.link(below).load(Relaxed);
            // The address is not looked at here, so it may be any, and null.
            prefetch_at(next.wrapping_byte_add(std::mem::offset_of!(Node, words)).cast_const().cast());
        }
        self.next(level)
    }

    /// The next node in key order.
    fn following(self) -> Option<NodeRef<'t>> {
        self.next(0)
    }

    /// The node before this one in key order, the head excluded.
    fn preceding(self) -> Option<NodeRef<'t>> {
        let prev = NonNull::new(self.header().prev.load(Acquire))?;
        // SAFETY: as in `next`.
        Some(unsafe { NodeRef::new(prev) })
    }

    /// The newest version at or before `at`.
    fn visible(self, at: u64) -> Option<&'t Option<Bytes>> {
        let node = self.header();
        let mut later = node.newest.load(Acquire).cast_const();
        // SAFETY: a version in the chain is whole (Acquire pairs with the Release in `push`, and `older` was
        // in the chain before), does not change, and is freed with the node only, thus after `'t`.
        while let Some(version) = unsafe { later.as_ref::<'t>() } {
            if version.version.sequence <= at {
                return Some(&version.version.value);
            }
            later = version.older;
        }
        (node.first.sequence <= at).then_some(&node.first.value)
    }

    /// Adds a version that is newer than all others. Only the writer may; `versions` is his.
    fn push(self, versions: &mut Arena, version: Version) {
        let node = self.header();
        let older = node.newest.load(Relaxed);
        // SAFETY: as in `visible`.
        let newest = unsafe { older.as_ref() }.map_or(node.first.sequence, |older| older.version.sequence);
        debug_assert!(newest < version.sequence, "a key is written once per sequence");
        let later = versions.allocate(Layout::new::<Later>()).cast::<Later>();
        // SAFETY: the piece is fresh, and large enough and aligned for a version. The Release store publishes it.
        unsafe { later.write(Later { version, older }) };
        node.newest.store(later.as_ptr(), Release);
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        // In the order in which they were made, and not by their links, which lead all over memory.
        self.writing.get_mut().nodes.each(|piece| {
            let node = piece.cast::<Node>();
            // SAFETY: each piece of this arena is a node that `Node::allocate` has written, and is visited once. `&mut self`
            // says that no reader and no writer is left: cursors hold a share of the table, all else borrows it. The arenas
            // are fields, which go after this.
            unsafe {
                let bytes = Node::layout((*node.as_ptr()).levels as usize).size();
                Node::end(node);
                bytes
            }
        });
    }
}

#[cfg(test)]
mod tests;
