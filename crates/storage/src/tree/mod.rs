//! Ordered trees in one file, changed by writing new pages and never old ones.
//!
//! Every collection and every index is a tree of its own (`Space::Meta` is one tree), so that a drop frees a tree
//! and an index build puts a finished one in place. A page is written once, at a place nothing durable refers to.
//! A checkpoint writes new leaves, the inner pages above them and the directory of roots, syncs, and then makes
//! all of it the state of the file by one write to a superblock (`file.rs`).
//!
//! - `page.rs`: what lies in a page, and how a key is found there.
//! - `file.rs`: pages on disk and in the cache; every page read from disk is checked.
//! - `superblock.rs`: the two blocks that say which state is the newest.
//! - `blocks.rs`: which blocks are free, and which become free when a reader ends.
//! - `builder.rs`: from rows in order, and subtrees kept as they are, to pages.
//! - `merge.rs`: changes in key order into a tree.
//! - `rewrite.rs`: a tree's pages again, densely, at low addresses.
//! - `cursor.rs`: lookups and scans.
//! - `forest.rs`: the roots of one state, and who still reads it.
//! - `walk.rs`: every page of a tree, to free it or to check it.

pub(crate) mod blocks;
pub(crate) mod builder;
pub(crate) mod cursor;
pub(crate) mod file;
pub(crate) mod forest;
pub(crate) mod merge;
pub(crate) mod page;
#[cfg(test)]
mod properties;
pub(crate) mod rewrite;
pub(crate) mod superblock;
pub(crate) mod walk;

use crate::extents::Extent;
use crate::space::Space;

/// What the file is allocated in. A page occupies whole blocks, so that no write touches a block in which
/// something older lives. On disk.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Which tree a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TreeName {
    /// The space's number, or [`DIRECTORY`].
    pub(crate) space: u8,
    /// A collection's or an index's id: the first four bytes of its keys. Zero in `Meta`.
    pub(crate) prefix: u32,
}

/// The tree of all other trees' roots. On disk.
pub(crate) const DIRECTORY: TreeName = TreeName { space: u8::MAX, prefix: 0 };

/// The one tree of `Space::Meta`.
pub(crate) const META: TreeName = TreeName { space: Space::Meta as u8, prefix: 0 };

impl TreeName {
    /// The order of names is the order of keys.
    pub(crate) fn of(space: Space, key: &[u8]) -> TreeName {
        let prefix = match (space, key.first_chunk::<4>()) {
            (Space::Meta, _) => 0,
            (_, Some(prefix)) => u32::from_be_bytes(*prefix),
            (_, None) => {
                let mut prefix = [0; 4];
                prefix[..key.len()].copy_from_slice(key);
                u32::from_be_bytes(prefix)
            }
        };
        TreeName { space: space as u8, prefix }
    }

    /// On disk: the key in the directory.
    pub(crate) fn encode(self) -> [u8; 5] {
        let mut out = [self.space; 5];
        out[1..].copy_from_slice(&self.prefix.to_be_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<TreeName> {
        let (space, prefix) = bytes.split_first()?;
        Some(TreeName { space: *space, prefix: u32::from_be_bytes(prefix.try_into().ok()?) })
    }
}

impl std::fmt::Display for TreeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Space::ALL.get(usize::from(self.space)) {
            Some(Space::Meta) => write!(f, "meta"),
            Some(space) => write!(f, "{} {}", space.name(), self.prefix),
            None => write!(f, "directory"),
        }
    }
}

/// Where a page lies, and when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PagePtr {
    /// Its first block.
    pub(crate) first: u64,
    /// With its header.
    pub(crate) bytes: u32,
    /// The epoch that it was written for. An older page in the same place has another one.
    pub(crate) birth: u64,
}

impl PagePtr {
    /// On disk.
    pub(crate) const BYTES: usize = 20;

    pub(crate) fn extent(&self) -> Extent {
        Extent { first: self.first, blocks: blocks_of(u64::from(self.bytes)) }
    }

    pub(crate) fn encode(&self) -> [u8; PagePtr::BYTES] {
        let mut out = [0; PagePtr::BYTES];
        out[..8].copy_from_slice(&self.first.to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[12..].copy_from_slice(&self.birth.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<PagePtr> {
        let bytes: &[u8; PagePtr::BYTES] = bytes.try_into().ok()?;
        Some(PagePtr {
            first: u64::from_le_bytes(bytes[..8].try_into().ok()?),
            bytes: u32::from_le_bytes(bytes[8..12].try_into().ok()?),
            birth: u64::from_le_bytes(bytes[12..].try_into().ok()?),
        })
    }
}

/// The root of a tree, and what is known of the whole of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) page: PagePtr,
    /// Zero if the root is a leaf.
    pub(crate) level: u8,
    pub(crate) rows: u64,
    /// Blocks of all its pages.
    pub(crate) blocks: u64,
    /// Values that lie outside of leaves. Without any, a tree can be freed without reading its leaves.
    pub(crate) overflows: u64,
}

impl Root {
    /// On disk.
    const BYTES: usize = PagePtr::BYTES + 1 + 3 * 8;

    pub(crate) fn encode(&self) -> [u8; Root::BYTES] {
        let mut out = [0; Root::BYTES];
        out[..20].copy_from_slice(&self.page.encode());
        out[20] = self.level;
        for (place, number) in [self.rows, self.blocks, self.overflows].into_iter().enumerate() {
            out[21 + 8 * place..29 + 8 * place].copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Root> {
        if bytes.len() != Root::BYTES {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Root {
            page: PagePtr::decode(&bytes[..20])?,
            level: bytes[20],
            rows: number(21)?,
            blocks: number(29)?,
            overflows: number(37)?,
        })
    }
}

pub(crate) fn blocks_of(bytes: u64) -> u32 {
    bytes.div_ceil(BLOCK_BYTES) as u32
}
