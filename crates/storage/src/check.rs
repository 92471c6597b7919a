//! The offline check of a directory: every page, every block, the journal.
//!
//! The check takes the lock and reads the files through a [`Scratch`] disk, so nothing is changed. It looks at both
//! superblocks, the directory of roots, the free-space map, every page of every tree, and replays the journal
//! without keeping it. Then it accounts for the blocks: each is in one page, or free, or a leak. A leak is a note
//! and no problem, because it costs space and no data.
//!
//! What the rows mean is for the engine to check; [`open_to_look`] gives it a store that can be read, and whose
//! writes are lost.

use crate::backend::tree::open::{TREES, check_epoch, check_names, read_directory, read_free_map};
use crate::backend::tree::{decode, decode_epoch};
use crate::clock::CommitTime;
use crate::disk::directory::DirectoryLock;
use crate::disk::scratch::Scratch;
use crate::disk::{Disk, directory};
use crate::extents::{Extent, FreeMap};
use crate::journal::Journal;
use crate::space::Space;
use crate::store::{Options, Store};
use crate::tree::file::{Kind, PageFile};
use crate::tree::superblock::{SUPERBLOCKS, Superblock};
use crate::tree::walk::{self, Checked};
use crate::tree::{BLOCK_BYTES, DIRECTORY, PagePtr, Root, TreeName};
use kilim_error::{Error, Result, StorageError};
use std::path::Path;
use std::sync::Arc;

/// What a check of a directory found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The newest commit in the trees or in the journal.
    pub commit_time: CommitTime,
    pub file_bytes: u64,
    pub free_bytes: u64,
    /// What is neither in a page nor free.
    pub leaked_bytes: u64,
    pub journal_batches: u64,
    pub journal_bytes: u64,
    pub trees: Vec<TreeReport>,
    /// What is wrong with the store as a whole, a sentence each.
    pub problems: Vec<String>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
}

/// What a check of one tree found.
#[derive(Debug, Clone)]
pub struct TreeReport {
    pub space: Space,
    /// The collection's or index's id; zero in `Meta`.
    pub prefix: u32,
    pub rows: u64,
    pub pages: u64,
    pub bytes: u64,
    /// A sentence each, which names the page.
    pub problems: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.trees.iter().all(|tree| tree.problems.is_empty())
    }
}

/// Checks a directory. An error says that it could not be checked; what is damaged is in the report.
pub fn check(dir: &Path) -> Result<Report> {
    let (disk, _lock) = look_at(dir)?;
    let mut report = Report::default();
    let file = disk.open(TREES).map_err(|error| io(&*disk, &error))?;
    let len = file.len().map_err(|error| io(&*disk, &error))?;
    report.file_bytes = len;
    let page_file = Arc::new(PageFile::new(file, TREES.to_owned(), 1 << 20, None));
    let Some(superblock) = newest_superblock(&page_file, &mut report)? else { return Ok(report) };
    report.commit_time = superblock.commit_time;
    if len < superblock.end * BLOCK_BYTES {
        let missing = superblock.end * BLOCK_BYTES - len;
        report.problems.push(format!("{TREES} was cut: its last {missing} bytes are missing"));
    }
    check_pages(&page_file, &superblock, &mut report)?;
    check_journal(&disk, &superblock, &mut report)?;
    Ok(report)
}

/// Opens a store to read it: what is written to it stays in memory and is lost with the handle. The directory is
/// locked and not changed.
pub fn open_to_look(dir: &Path, options: Options) -> Result<Store> {
    let (disk, lock) = look_at(dir)?;
    Store::open_on(disk, options, Some(lock))
}

/// Locks a directory that holds a store.
pub(crate) fn look_at(dir: &Path) -> Result<(Arc<dyn Disk>, DirectoryLock)> {
    // Before the lock, which would make the directory.
    if !dir.is_dir() {
        return Err(StorageError::Io(format!("{}: there is no such directory", dir.display())).into());
    }
    let lock = directory::lock(dir)?;
    let disk = Scratch::over(dir)
        .map_err(|error| Error::from(StorageError::Io(format!("{}: {error}", dir.display()))))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let names = disk.list().map_err(|error| io(&*disk, &error))?;
    check_names(&*disk, &names)?;
    if !names.iter().any(|name| name == TREES) {
        return Err(StorageError::Io(format!("{}: it holds no {TREES}", dir.display())).into());
    }
    Ok((disk, lock))
}

/// The superblock that a start would take. One of the two may be damaged: a power loss can tear it.
fn newest_superblock(file: &PageFile, report: &mut Report) -> Result<Option<Superblock>> {
    let mut newest: Option<Superblock> = None;
    for place in 0..SUPERBLOCKS {
        let mut block = [0; BLOCK_BYTES as usize];
        if let Err(error) = file.file.read_at(&mut block, place * BLOCK_BYTES) {
            report.problems.push(format!("{TREES}: superblock {place} cannot be read: {error}"));
            continue;
        }
        match Superblock::decode(&block, place) {
            Ok(found) if newest.is_none_or(|newest| found.epoch > newest.epoch) => newest = Some(found),
            Ok(_) => {}
            Err(Some(error)) => return Err(error),
            // A new store has written one only.
            Err(None) if block.iter().all(|byte| *byte == 0) => {}
            Err(None) => report.notes.push(format!(
                "{TREES}: superblock {place} is torn or damaged; the other one is used, and the next checkpoint \
                 writes this one anew"
            )),
        }
    }
    if newest.is_none() {
        report.problems.push(format!("{TREES}: both superblocks are damaged"));
    }
    Ok(newest)
}

/// Checks all pages, then that every block is in one of them or free.
fn check_pages(file: &Arc<PageFile>, superblock: &Superblock, report: &mut Report) -> Result<()> {
    let mut places: Vec<PagePtr> = vec![superblock.free_map];
    let roots = match read_directory(file, superblock) {
        Ok(roots) => Some(roots),
        Err(error) => {
            report.problems.push(format!("the directory of trees cannot be read: {error}"));
            None
        }
    };
    if let (Some(roots), Some((page, level))) = (&roots, superblock.directory) {
        let root = Root { page, level, rows: roots.len() as u64, blocks: 0, overflows: 0 };
        let Checked { places: of_directory, problems, .. } = walk::check(file, DIRECTORY, &root);
        places.extend(of_directory);
        report.problems.extend(problems);
    }
    let is_whole = roots.is_some();
    for (name, root) in roots.into_iter().flatten() {
        let checked = walk::check(file, name, &root);
        let blocks: u64 = checked.places.iter().map(|at| u64::from(at.extent().blocks)).sum();
        if checked.problems.is_empty() && blocks != root.blocks {
            report.notes.push(format!("{name}: the root counts {} blocks, there are {blocks}", root.blocks));
        }
        places.extend(checked.places);
        let Some(&space) = Space::ALL.get(usize::from(name.space)) else {
            report.problems.push(format!("the directory names a tree of the unknown space {}", name.space));
            continue;
        };
        report.trees.push(TreeReport {
            space,
            prefix: name.prefix,
            rows: checked.rows,
            pages: checked.pages,
            bytes: blocks * BLOCK_BYTES,
            problems: checked.problems,
        });
    }
    match read_free_map(file, superblock) {
        Ok(free) => {
            report.free_bytes = free.free_blocks() * BLOCK_BYTES;
            check_blocks(places, &free, report);
            if !is_whole || !report.is_clean() {
                // What hangs below a damaged page was not found.
                report.leaked_bytes = 0;
            }
        }
        Err(error) => report.problems.push(error.to_string()),
    }
    if report.leaked_bytes > 0 {
        let bytes = report.leaked_bytes;
        report.notes.push(format!(
            "{bytes} bytes of {TREES} are neither used nor free, as a dropped tree with damage leaves them; a dump \
             and a restore give them back"
        ));
    }
    Ok(())
}

/// Whether no block is in two pages, or in a page and free; counts those that are nowhere.
fn check_blocks(places: Vec<PagePtr>, free: &FreeMap, report: &mut Report) {
    let mut used: Vec<(Extent, bool)> = places.iter().map(|at| (at.extent(), false)).collect();
    used.push((Extent { first: 0, blocks: SUPERBLOCKS as u32 }, false));
    for (mut first, mut blocks) in free.iter() {
        while blocks > 0 {
            let part = blocks.min(u64::from(u32::MAX));
            used.push((Extent { first, blocks: part as u32 }, true));
            first += part;
            blocks -= part;
        }
    }
    used.sort_unstable_by_key(|(extent, _)| extent.first);
    let (mut end, mut before_is_free, mut leaked) = (0, false, 0);
    for (Extent { first, blocks }, is_free) in used {
        if first < end {
            let how = if is_free || before_is_free { "in a page and free" } else { "in two pages" };
            report.problems.push(format!("{TREES}: block {first} is {how}"));
        }
        leaked += first.saturating_sub(end);
        let behind = first + u64::from(blocks);
        if behind > end {
            (end, before_is_free) = (behind, is_free);
        }
    }
    if end > free.end() {
        report.problems.push(format!("{TREES}: a page lies behind the end at block {}", free.end()));
    }
    report.leaked_bytes = (leaked + free.end().saturating_sub(end)) * BLOCK_BYTES;
}

/// Whether a start could replay the journal.
fn check_journal(disk: &Arc<dyn Disk>, superblock: &Superblock, report: &mut Report) -> Result<()> {
    let (mut batches, mut senseless) = (0, Vec::new());
    let recovered =
        Journal::recover(disk.clone(), superblock.store, superblock.journal, &mut |batch, _, payload| {
            if let Some(epoch) = decode_epoch(payload) {
                return check_epoch(&**disk, superblock, epoch);
            }
            batches += 1;
            if decode(payload).is_none() {
                senseless.push(format!("the journal's batch {batch} makes no sense"));
            }
            Ok(())
        });
    report.journal_batches = batches;
    report.problems.extend(senseless);
    match recovered {
        Ok(recovered) => {
            report.journal_bytes = recovered.replayed_bytes;
            report.commit_time = report.commit_time.max(recovered.commit_time.unwrap_or(0));
            if let Some(cut) = recovered.cut {
                report.notes.push(format!(
                    "the journal ends in {}, in the middle of {} bytes that were not acknowledged as on disk; the next \
                     start cuts them off",
                    cut.file, cut.bytes
                ));
            }
        }
        Err(Error::Storage(StorageError::Corrupt(what))) => report.problems.push(what),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The problems of one tree of a state, as of the pages on disk. `pace` is told the bytes of each page that was read,
/// and ends the check by an error.
pub(crate) fn check_tree(
    file: &PageFile,
    name: TreeName,
    root: &Root,
    pace: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut waiting = vec![(root.page, root.level)];
    while let Some((at, level)) = waiting.pop() {
        pace(u64::from(at.bytes))?;
        let kind = Kind { tree: name, level };
        let page = file.read(at, kind).and_then(|raw| {
            let damaged = |error: Error| file.damaged(at, kind, &error.to_string());
            crate::tree::page::Page::decode(raw).map_err(damaged)
        });
        let below = page.and_then(|page| walk::pages_below(&page, level));
        let (children, overflows) = match below {
            Ok(below) => below,
            Err(Error::Storage(StorageError::Corrupt(what))) => {
                problems.push(what);
                continue;
            }
            Err(error) => return Err(error),
        };
        waiting.extend(children.into_iter().map(|child| (child, level.saturating_sub(1))));
        for at in overflows {
            pace(u64::from(at.bytes))?;
            match file.read(at, Kind { tree: name, level: crate::tree::file::OVERFLOW_LEVEL }) {
                Ok(_) => {}
                Err(Error::Storage(StorageError::Corrupt(what))) => problems.push(what),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(problems)
}

fn io(disk: &dyn Disk, error: &std::io::Error) -> Error {
    StorageError::Io(format!("{}: {error}", disk.name())).into()
}
