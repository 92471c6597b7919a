//! Which blocks of the file are free, and which will be once a reader ends.
//!
//! A page that a checkpoint no longer needs may still be read: by whoever holds an older state, and by the next
//! start, if the power goes before the new state is on disk. States are numbered by epochs. A page that was
//! written for epoch `birth` and given up by epoch `freed` belongs to the states in between, so its blocks can be
//! used again as soon as no state with `birth <= epoch < freed` is held. One old reader therefore keeps the pages
//! of its own state, and not everything that was given up since.
//!
//! Invariant: a block is in a page of some state that is held, or in a page that is being written, or free.

use super::PagePtr;
use crate::extents::{Extent, FreeMap};
use kilim_error::Result;
use std::collections::BTreeMap;

pub(crate) struct Blocks {
    free: FreeMap,
    waiting: Vec<Freed>,
    /// Pages that belong to no state yet. The next start knows nothing of them, so the map on disk has them free.
    unborn: BTreeMap<u64, Unborn>,
}

/// A page on its way into a state, by its first block.
#[derive(Debug, Clone, Copy)]
struct Unborn {
    blocks: u32,
    /// The epoch that it is written for.
    birth: u64,
}

#[derive(Debug, Clone, Copy)]
struct Freed {
    page: PagePtr,
    freed: u64,
}

impl Blocks {
    pub(crate) fn new(free: FreeMap) -> Blocks {
        Blocks { free, waiting: Vec::new(), unborn: BTreeMap::new() }
    }

    pub(crate) fn allocate(&mut self, blocks: u32, birth: u64) -> Extent {
        let extent = self.free.allocate(blocks);
        self.unborn.insert(extent.first, Unborn { blocks, birth });
        extent
    }

    /// Gives back what was never part of a state.
    pub(crate) fn discard(&mut self, pages: &[Extent]) -> Result<()> {
        for page in pages {
            if self.unborn.remove(&page.first).is_some() {
                self.free.free(*page)?;
            }
        }
        Ok(())
    }

    /// Pages became part of a state, others were left out of it.
    pub(crate) fn commit(&mut self, written: &[Extent], given_up: &[PagePtr], epoch: u64) {
        for page in written {
            self.unborn.remove(&page.first);
        }
        self.waiting.extend(given_up.iter().map(|page| Freed { page: *page, freed: epoch }));
    }

    /// Frees the pages that no held state needs, and says which these were.
    pub(crate) fn settle(&mut self, held: &[u64]) -> Result<Vec<PagePtr>> {
        debug_assert!(held.is_sorted());
        let mut freed = Vec::new();
        self.waiting.retain(|each| {
            let next = held.partition_point(|&epoch| epoch < each.page.birth);
            let needed = held.get(next).is_some_and(|&epoch| epoch < each.freed);
            if !needed {
                freed.push(each.page);
            }
            needed
        });
        for page in &freed {
            self.free.free(page.extent())?;
        }
        Ok(freed)
    }

    /// What the next start finds free in a state that is about to be written, with pages of some epochs.
    pub(crate) fn free_on_disk(&self, given_up: &[PagePtr], epochs: &[u64]) -> Result<FreeMap> {
        let mut map = self.free.clone();
        for page in self.waiting.iter().map(|each| &each.page).chain(given_up) {
            map.free(page.extent())?;
        }
        for (&first, unborn) in self.unborn.iter().filter(|(_, unborn)| !epochs.contains(&unborn.birth)) {
            map.free(Extent { first, blocks: unborn.blocks })?;
        }
        map.shrink();
        Ok(map)
    }

    /// Gives the free blocks at the end up; says the file's length in blocks.
    pub(crate) fn shrink(&mut self) -> u64 {
        self.free.shrink();
        self.free.end()
    }

    pub(crate) fn end(&self) -> u64 {
        self.free.end()
    }

    pub(crate) fn free(&self) -> &FreeMap {
        &self.free
    }

    /// Blocks that wait for a reader to end.
    pub(crate) fn waiting_blocks(&self) -> u64 {
        self.waiting.iter().map(|each| u64::from(each.page.extent().blocks)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_free_when_no_held_state_lies_between_its_birth_and_its_end() {
        let page = |first, birth| PagePtr { first, bytes: 4096, birth };
        for (birth, freed, held, needed) in [
            (5, 8, vec![], false),
            (5, 8, vec![4], false),
            (5, 8, vec![5], true),
            (5, 8, vec![7], true),
            (5, 8, vec![8], false),
            (5, 8, vec![1, 9], false),
            (5, 8, vec![1, 6, 9], true),
        ] {
            let mut blocks = Blocks::new(FreeMap::new(10));
            blocks.commit(&[], &[page(3, birth)], freed);
            assert_eq!(blocks.settle(&held).unwrap().is_empty(), needed, "{birth} {freed} {held:?}");
            assert_eq!(blocks.free().free_blocks(), u64::from(!needed));
        }
    }

    #[test]
    fn the_map_on_disk_has_free_what_only_this_run_holds() {
        let mut blocks = Blocks::new(FreeMap::new(4));
        let unborn = blocks.allocate(2, 1);
        assert_eq!((unborn.first, blocks.end()), (4, 6));
        blocks.commit(&[], &[PagePtr { first: 1, bytes: 4096, birth: 1 }], 2);
        let map = blocks.free_on_disk(&[PagePtr { first: 2, bytes: 4096, birth: 1 }], &[2]).unwrap();
        assert_eq!((map.end(), map.free_blocks()), (4, 2));
        blocks.discard(&[unborn]).unwrap();
        assert_eq!(blocks.free().free_blocks(), 2);
    }
}
