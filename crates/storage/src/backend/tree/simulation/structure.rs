//! A full check of a store's tree file as it lies on a disk.
//!
//! Every page of every tree is read and checked, and the blocks are counted: superblocks, pages and the map of free
//! blocks together are the whole file, and no block is in two of them. So a leak is found as well as a double use.

use super::super::open::{TREES, read_directory, read_free_map};
use crate::disk::Disk;
use crate::disk::memory::MemoryDisk;
use crate::extents::{Extent, FreeMap};
use crate::tree::file::PageFile;
use crate::tree::superblock::{SUPERBLOCKS, Superblock};
use crate::tree::{DIRECTORY, PagePtr, Root, TreeName, walk};
use std::sync::Arc;

/// What is wrong with the file, a sentence each, or its map of free blocks.
pub(super) fn check(disk: &MemoryDisk) -> Result<FreeMap, Vec<String>> {
    let mut problems = Vec::new();
    let map = look(disk, &mut problems).unwrap_or_else(|error| {
        problems.push(error.to_string());
        FreeMap::new(0)
    });
    if problems.is_empty() { Ok(map) } else { Err(problems) }
}

fn look(disk: &MemoryDisk, problems: &mut Vec<String>) -> kilim_error::Result<FreeMap> {
    let file = disk.open(TREES).map_err(|error| crate::format::corrupt(format!("{TREES}: {error}")))?;
    let superblock = Superblock::read(&*file, TREES)?;
    let file = Arc::new(PageFile::new(file, TREES.to_owned(), 0, None));
    let free = read_free_map(&file, &superblock)?;
    let roots = read_directory(&file, &superblock)?;

    let mut owners: Vec<(Extent, String)> = vec![
        (Extent { first: 0, blocks: SUPERBLOCKS as u32 }, "the superblocks".to_owned()),
        (superblock.free_map.extent(), "the map of free blocks".to_owned()),
    ];
    for (first, blocks) in free.iter() {
        owners.push((Extent { first, blocks: blocks as u32 }, "free".to_owned()));
    }
    let mut look_at = |name: TreeName, root: &Root| {
        let found = walk::check(&file, name, root);
        problems.extend(found.problems);
        let blocks: u64 = found.places.iter().map(|page| u64::from(page.extent().blocks)).sum();
        if name != DIRECTORY && root.blocks != blocks {
            problems.push(format!("{name}: the root counts {} blocks, there are {blocks}", root.blocks));
        }
        owners.extend(found.places.iter().map(|page: &PagePtr| (page.extent(), name.to_string())));
    };
    for (name, root) in &roots {
        look_at(*name, root);
    }
    if let Some((page, level)) = superblock.directory {
        look_at(DIRECTORY, &Root { page, level, rows: roots.len() as u64, blocks: 0, overflows: 0 });
    }
    owners.sort_by_key(|(extent, _)| extent.first);
    let mut end = 0;
    let mut before = "the beginning";
    for (extent, owner) in &owners {
        if extent.first != end {
            let how = if extent.first > end { "blocks leaked between" } else { "blocks are used twice by" };
            problems.push(format!("{how} {before} ending at {end} and {owner} from {}", extent.first));
        }
        end = extent.first + u64::from(extent.blocks);
        before = owner;
    }
    if end != superblock.end {
        problems.push(format!("the file has {} blocks, {end} are accounted for", superblock.end));
    }
    Ok(free)
}
