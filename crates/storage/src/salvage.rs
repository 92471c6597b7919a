//! What can still be read of a damaged store.
//!
//! Trees are walked from their roots, and a page that cannot be read is passed over. What hung below a damaged inner
//! page is found by its own headers: every page says which tree it belongs to and when it was written, so one pass
//! over the file finds all leaves. Those in blocks that the free-space map calls free are of earlier states and are
//! left out. Where the map cannot be read, a leaf counts unless a younger one overlaps it. The same pass finds the
//! trees that a damaged directory no longer names. Then the journal's whole batches are laid over the trees, also
//! those behind damage.
//!
//! A damaged leaf is lost with its rows, and a damaged long value with its row. The report says which keys those were.
//!
//! Invariant: the directory is not changed, and a row is told once, in key order within its tree.

use crate::backend::tree::open::{TREES, read_free_map};
use crate::backend::tree::{decode, decode_epoch};
use crate::check::look_at;
use crate::clock::CommitTime;
use crate::disk::directory::DirectoryLock;
use crate::extents::FreeMap;
use crate::journal::Journal;
use crate::reclaim::decode_dead_key;
use crate::space::{Bytes, Space};
use crate::tree::file::{self, Kind, PageFile};
use crate::tree::page::{Page, Value};
use crate::tree::superblock::{SUPERBLOCKS, Superblock};
use crate::tree::{BLOCK_BYTES, DIRECTORY, PagePtr, Root, TreeName};
use kilim_error::{Result, StorageError};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

/// A damaged store that is open to be read.
pub struct Remains {
    file: Arc<PageFile>,
    roots: BTreeMap<TreeName, Root>,
    /// Leaves by tree that were found by their headers; `None` before the file was searched.
    leaves: RefCell<Option<BTreeMap<TreeName, Vec<PagePtr>>>>,
    free: Option<FreeMap>,
    /// What the journal has of each space: the newest value of a key, or its end.
    journal: [BTreeMap<Bytes, Option<Bytes>>; Space::COUNT],
    commit_time: CommitTime,
    losses: RefCell<Vec<Loss>>,
    notes: Vec<String>,
    /// The directory's locked file.
    _lock: DirectoryLock,
}

/// Something that could not be read.
#[derive(Debug, Clone)]
pub struct Loss {
    /// The space and the first four bytes of keys as a number; none if it concerns no tree in particular.
    pub tree: Option<(Space, u32)>,
    /// The keys that are concerned: from this one on, up to but without that one, as far as they are known.
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
    /// A sentence that names the page.
    pub what: String,
}

impl Remains {
    /// Opens what is left of a store. Fails only if there is nothing to look at, or another process uses it.
    pub fn open(dir: &Path) -> Result<Remains> {
        let (disk, lock) = look_at(dir)?;
        let file =
            disk.open(TREES).map_err(|error| StorageError::Io(format!("{}: {error}", dir.display())))?;
        let file = Arc::new(PageFile::new(file, TREES.to_owned(), 8 << 20, None));
        let mut remains = Remains {
            file,
            roots: BTreeMap::new(),
            leaves: RefCell::new(None),
            free: None,
            journal: Default::default(),
            commit_time: 0,
            losses: RefCell::default(),
            notes: Vec::new(),
            _lock: lock,
        };
        let Some(superblock) = remains.newest_superblock()? else {
            remains.notes.push(
                "both superblocks are damaged: trees are put together from what their pages say, and the journal \
                 cannot be used"
                    .into(),
            );
            remains.search();
            return Ok(remains);
        };
        remains.commit_time = superblock.commit_time;
        match read_free_map(&remains.file, &superblock) {
            Ok(free) => remains.free = Some(free),
            Err(error) => {
                remains.notes.push(format!("{error}: pages of earlier states may be taken for new ones"))
            }
        }
        remains.read_directory(&superblock);
        let (journal, commit_time) = (&mut remains.journal, &mut remains.commit_time);
        let (mut senseless, mut newest_epoch) = (0, 0);
        let missing =
            Journal::salvage(&disk, &superblock.store, &superblock.journal, &mut |_, time, payload| {
                if let Some(epoch) = decode_epoch(payload) {
                    newest_epoch = epoch.max(newest_epoch);
                    return Ok(());
                }
                match decode(payload) {
                    Some(writes) => writes.into_iter().for_each(|write| {
                        journal[write.space.at()].insert(write.key, write.value);
                    }),
                    None => senseless += 1,
                }
                *commit_time = time.max(*commit_time);
                Ok(())
            })?;
        remains.notes.extend(missing);
        if newest_epoch > superblock.epoch {
            remains.notes.push(format!(
                "{TREES} is in state {}, and the journal knows that it had reached state {newest_epoch}: what was \
                 loaded or dropped between is not as it was",
                superblock.epoch
            ));
        }
        if senseless > 0 {
            remains.notes.push(format!("{senseless} batches of the journal make no sense and were left out"));
        }
        Ok(remains)
    }

    /// The newest commit that was seen.
    pub fn commit_time(&self) -> CommitTime {
        self.commit_time
    }

    /// What could not be read so far: ask once all rows were taken.
    pub fn losses(&self) -> Vec<Loss> {
        self.losses.borrow().clone()
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The trees of a space of which something was found, by the first four bytes of their keys.
    pub fn trees(&self, space: Space) -> Vec<u32> {
        let of_space = |name: &TreeName| name.space == space as u8;
        let mut found: BTreeSet<u32> =
            self.roots.keys().filter(|name| of_space(name)).map(|name| name.prefix).collect();
        if let Some(leaves) = &*self.leaves.borrow()
            && !self.is_directory_whole()
        {
            found.extend(leaves.keys().filter(|name| of_space(name)).map(|name| name.prefix));
        }
        found.extend(self.journal[space.at()].keys().map(|key| TreeName::of(space, key).prefix));
        found.into_iter().collect()
    }

    /// The trees whose space was about to be given back: nothing refers to them.
    pub fn dropped(&self) -> BTreeSet<(Space, u32)> {
        let dead = |(key, _): (Vec<u8>, Vec<u8>)| {
            let (space, prefix) = decode_dead_key(&key)?;
            Some((space, u32::from_be_bytes(prefix.try_into().ok()?)))
        };
        self.rows(Space::Meta, 0).filter_map(dead).collect()
    }

    /// The rows of a tree that can be read, in key order.
    pub fn rows(&self, space: Space, prefix: u32) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
        let name = TreeName { space: space as u8, prefix };
        let of_tree = move |(key, _): &(&Bytes, &Option<Bytes>)| TreeName::of(space, key) == name;
        let lower = match space {
            Space::Meta => Bytes::from(&[][..]),
            _ => Bytes::from(&prefix.to_be_bytes()[..]),
        };
        let mut newer = self.journal[space.at()].range(lower..).take_while(of_tree).peekable();
        let mut tree = TreeRows::new(self, name).peekable();
        std::iter::from_fn(move || {
            loop {
                let from_tree = match (tree.peek(), newer.peek()) {
                    (None, None) => return None,
                    (Some((key, _)), Some((changed, _))) => match key[..].cmp(&changed[..]) {
                        std::cmp::Ordering::Less => true,
                        std::cmp::Ordering::Equal => {
                            tree.next();
                            false
                        }
                        std::cmp::Ordering::Greater => false,
                    },
                    (Some(_), None) => true,
                    (None, Some(_)) => false,
                };
                if from_tree {
                    return tree.next();
                }
                if let Some((key, Some(value))) = newer.next() {
                    return Some((key.to_vec(), value.to_vec()));
                }
            }
        })
    }

    fn newest_superblock(&mut self) -> Result<Option<Superblock>> {
        let mut newest: Option<Superblock> = None;
        for place in 0..SUPERBLOCKS {
            let mut block = [0; BLOCK_BYTES as usize];
            if self.file.file.read_at(&mut block, place * BLOCK_BYTES).is_err() {
                continue;
            }
            match Superblock::decode(&block, place) {
                Ok(found) if newest.is_none_or(|newest| found.epoch > newest.epoch) => newest = Some(found),
                Ok(_) => {}
                Err(Some(error)) => return Err(error),
                Err(None) if block.iter().all(|byte| *byte == 0) => {}
                Err(None) => self.notes.push(format!(
                    "superblock {place} is damaged: if it was the newer one, what followed the other may be missing"
                )),
            }
        }
        Ok(newest)
    }

    /// The roots that can be read. If some cannot, their trees are looked for.
    fn read_directory(&mut self, superblock: &Superblock) {
        let Some((page, level)) = superblock.directory else { return };
        let root = Root { page, level, rows: 0, blocks: 0, overflows: 0 };
        self.roots.insert(DIRECTORY, root);
        let rows: Vec<_> = TreeRows::new(self, DIRECTORY).collect();
        self.roots.remove(&DIRECTORY);
        for (key, value) in rows {
            if let (Some(name), Some(root)) = (TreeName::decode(&key), Root::decode(&value)) {
                self.roots.insert(name, root);
            }
        }
        if !self.is_directory_whole() {
            self.search();
        }
    }

    fn is_directory_whole(&self) -> bool {
        !self.roots.is_empty() && self.losses.borrow().iter().all(|loss| loss.tree.is_some())
    }

    /// Looks through the whole file for leaves, once.
    fn search(&self) {
        let mut leaves = self.leaves.borrow_mut();
        if leaves.is_some() {
            return;
        }
        let mut found: BTreeMap<TreeName, Vec<PagePtr>> = BTreeMap::new();
        let end = self.file.file.len().unwrap_or(0) / BLOCK_BYTES;
        let free: Vec<(u64, u64)> = self.free.iter().flat_map(FreeMap::iter).collect();
        let is_free = |block: u64| {
            let next = free.partition_point(|(first, _)| *first <= block);
            next > 0 && block < free[next - 1].0 + free[next - 1].1
        };
        let mut block = SUPERBLOCKS;
        while block < end {
            let mut header = [0; file::HEADER_BYTES];
            let read = self.file.file.read_at(&mut header, block * BLOCK_BYTES);
            let looked = read.ok().and_then(|()| file::look(&header, block)).filter(|_| !is_free(block));
            // A page is believed once all of it was read and its checksum is right.
            if let Some((at, kind)) = looked
                && self.file.read(at, kind).is_ok()
            {
                if kind.level == 0 {
                    found.entry(kind.tree).or_default().push(at);
                }
                block += u64::from(at.extent().blocks).max(1);
            } else {
                block += 1;
            }
        }
        *leaves = Some(found);
    }

    /// Leaves of a tree with keys in a range, in key order, none of them contradicted by a younger one.
    fn leaves_between(&self, name: TreeName, lower: &[u8], upper: Option<&[u8]>) -> VecDeque<PagePtr> {
        self.search();
        let leaves = self.leaves.borrow();
        let of_tree = leaves.as_ref().and_then(|leaves| leaves.get(&name));
        let mut candidates: Vec<(u64, Bytes, Bytes, PagePtr)> = Vec::new();
        for at in of_tree.into_iter().flatten() {
            let Ok(page) = self.file.page(*at, Kind { tree: name, level: 0 }) else { continue };
            if page.count() == 0 {
                continue;
            }
            let (first, last) = (Bytes::from(page.key(0)), Bytes::from(page.key(page.count() - 1)));
            if first[..] >= *lower && upper.is_none_or(|upper| last[..] < *upper) {
                candidates.push((at.birth, first, last, *at));
            }
        }
        // The youngest first.
        candidates.sort_by_key(|(birth, ..)| std::cmp::Reverse(*birth));
        let mut taken: BTreeMap<Bytes, (Bytes, PagePtr)> = BTreeMap::new();
        for (_, first, last, at) in candidates {
            let before = taken.range(..=last.clone()).next_back();
            if before.is_none_or(|(_, (end, _))| *end < first) {
                taken.insert(first, (last, at));
            }
        }
        taken.into_values().map(|(_, at)| at).collect()
    }

    fn lose(&self, name: TreeName, from: &[u8], to: Option<&[u8]>, what: String) {
        let space = Space::ALL.get(usize::from(name.space));
        let tree = space.map(|space| (*space, name.prefix));
        let mut losses = self.losses.borrow_mut();
        // A tree may be read more than once.
        if losses.iter().any(|known| known.what == what && known.from == from) {
            return;
        }
        losses.push(Loss { tree, from: from.to_vec(), to: to.map(<[u8]>::to_vec), what });
    }
}

/// The rows of a tree that can be read, in key order.
struct TreeRows<'r> {
    remains: &'r Remains,
    name: TreeName,
    /// Pages that are left, the next one last.
    pages: Vec<Place>,
    leaf: Option<(Page, usize)>,
}

/// A page, its level, and the keys that belong below it.
struct Place {
    at: PagePtr,
    level: u8,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl<'r> TreeRows<'r> {
    fn new(remains: &'r Remains, name: TreeName) -> TreeRows<'r> {
        let mut rows = TreeRows { remains, name, pages: Vec::new(), leaf: None };
        match remains.roots.get(&name) {
            Some(root) => {
                rows.pages.push(Place { at: root.page, level: root.level, lower: Vec::new(), upper: None })
            }
            // Its root is not known. A tree that is only in the journal has none.
            None if remains.leaves.borrow().is_some() => rows.push_found(&[], None),
            None => {}
        }
        rows
    }

    /// Goes on with the leaves that were found between two keys.
    fn push_found(&mut self, lower: &[u8], upper: Option<&[u8]>) {
        let found = self.remains.leaves_between(self.name, lower, upper);
        for at in found.into_iter().rev() {
            self.pages.push(Place { at, level: 0, lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec) });
        }
    }

    /// Goes on to the next leaf that can be read; false if there is none.
    fn next_leaf(&mut self) -> bool {
        while let Some(Place { at, level, lower, upper }) = self.pages.pop() {
            let page = self.remains.file.page(at, Kind { tree: self.name, level });
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    let how = if level == 0 { "" } else { "; its leaves were looked for in the whole file" };
                    self.remains.lose(self.name, &lower, upper.as_deref(), format!("{error}{how}"));
                    if level > 0 {
                        self.push_found(&lower, upper.as_deref());
                    }
                    continue;
                }
            };
            if level == 0 {
                self.leaf = Some((page, 0));
                return true;
            }
            for place in (0..page.count()).rev() {
                let lower = if place == 0 { lower.clone() } else { page.key(place).to_vec() };
                let upper = match place + 1 < page.count() {
                    true => Some(page.key(place + 1).to_vec()),
                    false => upper.clone(),
                };
                match page.child(place) {
                    Ok(at) => self.pages.push(Place { at, level: level - 1, lower, upper }),
                    Err(error) => self.remains.lose(self.name, &lower, upper.as_deref(), error.to_string()),
                }
            }
        }
        false
    }
}

impl Iterator for TreeRows<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((page, next)) = &mut self.leaf else {
                if self.next_leaf() {
                    continue;
                }
                return None;
            };
            if *next >= page.count() {
                self.leaf = None;
                continue;
            }
            let place = *next;
            *next += 1;
            let key = page.key(place).to_vec();
            let value = page.value(place).and_then(|value| match value {
                Value::Here(value) => Ok(value),
                Value::Overflow(at) => self.remains.file.overflow(at, self.name),
            });
            match value {
                Ok(value) => return Some((key, value.to_vec())),
                Err(error) => self.remains.lose(self.name, &key, Some(&key), error.to_string()),
            }
        }
    }
}
