//! Opening a store: what must be there, what must not, and how a new one is made.
//!
//! Nothing on disk is changed before all of it was found whole: the superblock, the directory, the free-space map,
//! the journal. A store is made under the name `creating`, which becomes `kilim.db` when all of it is on disk; a
//! start that finds `creating` begins anew, because nobody was told of a write in it.

use super::{Quiet, State, Tables, TreeBackend, Turn, decode, decode_epoch};
use crate::disk::Disk;
use crate::disk::directory::DirectoryLock;
use crate::environment::Environment;
use crate::extents::FreeMap;
use crate::format::{FORMAT_VERSION, FORMAT_VERSION_WITH_LOG};
use crate::free_space::{FreeSpace, default_reserve_bytes};
use crate::journal::Journal;
use crate::snapshot::Direction;
use crate::tree::blocks::Blocks;
use crate::tree::builder::Edit;
use crate::tree::cursor::Cursor;
use crate::tree::file::{FREE_MAP_LEVEL, Kind, PageFile};
use crate::tree::forest::{Epochs, Forest};
use crate::tree::superblock::{SUPERBLOCKS, Superblock};
use crate::tree::{BLOCK_BYTES, DIRECTORY, Root, TreeName};
use kilim_error::{Error, Result, StorageError};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub(crate) const TREES: &str = "kilim.db";
pub(crate) const CREATING: &str = "creating";
pub(crate) const LOCK: &str = "lock";

/// How far each start moves the file's epoch. A process that died may have left pages of epochs behind its last state, in the
/// very blocks that this one writes next; with other epochs a write that the disk loses is told from them. No process
/// tries so many checkpoints in vain, and 64 bits have room for as many starts.
const EPOCHS_OF_A_START: u64 = 1 << 32;

/// How a store uses memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) cache_bytes: u64,
    /// Rows in memory beyond which a checkpoint is due.
    pub(crate) tables_bytes_max: usize,
}

/// The format of a store that is being opened, before anything is written to it: one that gets a change log is not to be
/// opened by a program that knows none.
fn version(found: u32, logs: bool) -> u32 {
    if logs { found.max(FORMAT_VERSION_WITH_LOG) } else { found }
}

impl TreeBackend {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        memory: Memory,
        logs: bool,
        lock: Option<DirectoryLock>,
    ) -> Result<TreeBackend> {
        let names = disk.list().map_err(|error| at(&*disk, &error))?;
        check_names(&*disk, &names)?;
        if !names.iter().any(|name| name == TREES) {
            create(&disk, &names)?;
        }
        let file = disk.open(TREES).map_err(|error| at(&*disk, &error))?;
        let superblock = Superblock::read(&*file, TREES)?;
        let len = file.len().map_err(|error| at(&*disk, &error))?;
        if len < superblock.end * BLOCK_BYTES {
            let missing = superblock.end * BLOCK_BYTES - len;
            return Err(corrupt(&*disk, format!("{TREES} was cut: its last {missing} bytes are missing")));
        }
        let file = Arc::new(PageFile::new(file, TREES.to_owned(), memory.cache_bytes, lock));
        let free = read_free_map(&file, &superblock)?;
        let roots = read_directory(&file, &superblock)?;

        let active = Tables::new(disk.environment().now());
        let mut sequence = superblock.journal.sequence.wrapping_sub(1);
        let mut commit_time = superblock.commit_time;
        let mut recovered = Journal::recover(
            disk.clone(),
            superblock.store,
            superblock.journal,
            &mut |batch, time, payload| {
                if let Some(epoch) = decode_epoch(payload) {
                    sequence = batch;
                    return check_epoch(&*disk, &superblock, epoch);
                }
                let Some(writes) = decode(payload) else {
                    return Err(corrupt(&*disk, format!("the journal's batch {batch} makes no sense")));
                };
                active.insert(writes.iter(), batch);
                sequence = batch;
                commit_time = commit_time.max(time);
                Ok(())
            },
        )?;
        if let Some(cut) = &recovered.cut {
            tracing::warn!(
                position = cut.position,
                bytes = cut.bytes,
                commit_time,
                "the journal ends in the middle of something that was not acknowledged as on disk; it is cut there"
            );
        }
        // From here on the store is known to be whole, and is written to. Names and the superblock first, once more: they may
        // have been read from the operating system's memory and not be on disk, if the last process died before it had
        // synced them. What is acknowledged must not go with a name, and what the superblock before needs is about to be used
        // again.
        disk.sync_directory().map_err(|error| at(&*disk, &error))?;
        // The file's length as well, which a failed sync may have lost.
        file.file.set_len(len).map_err(|error| at(&*disk, &error))?;
        let superblock = Superblock {
            version: version(superblock.version, logs),
            epoch: superblock.epoch.saturating_add(EPOCHS_OF_A_START),
            place: (superblock.place + 1) % SUPERBLOCKS,
            ..superblock
        };
        superblock.write(&file)?;
        recovered.journal.limit_segments(memory.tables_bytes_max as u64 / 2);
        recovered.journal.resume()?;
        let epochs = Arc::new(Epochs::default());
        let forest = Arc::new(Forest::new(superblock.epoch, roots, &epochs));
        let scarce_bytes = 2 * default_reserve_bytes(&*disk);
        let quiet = Quiet { appended: recovered.journal.appended(), since: disk.environment().now() };
        Ok(TreeBackend {
            scarce_bytes,
            plenty: FreeSpace::of_disk(disk.clone(), Some(scarce_bytes)),
            quiet: Mutex::new(quiet),
            disk,
            file,
            journal: recovered.journal,
            blocks: Mutex::new(Blocks::new(free)),
            epochs,
            last_epoch: AtomicU64::new(superblock.epoch),
            state: RwLock::new(State { active, frozen: None, forest, sequence, commit_time }),
            turn: Mutex::new(Turn { durable: superblock, broken: false }),
            dead: Mutex::default(),
            trouble: Mutex::default(),
            damage: Mutex::default(),
            checkpointed: Condvar::new(),
            waiting: Mutex::new(()),
            deadline: Mutex::new(None),
            payload: Mutex::default(),
            tables_bytes_max: memory.tables_bytes_max,
        })
    }
}

/// Refuses a file that is older than its journal knows.
pub(crate) fn check_epoch(disk: &dyn Disk, superblock: &Superblock, epoch: u64) -> Result<()> {
    if epoch <= superblock.epoch {
        return Ok(());
    }
    let what = format!(
        "{TREES} is in state {}, and the journal knows that it had reached state {epoch}: its newest superblock is \
         damaged, or it is an older copy",
        superblock.epoch
    );
    Err(corrupt(disk, what))
}

/// Refuses a directory that is not exactly a store's, or nothing yet.
pub(crate) fn check_names(disk: &dyn Disk, names: &[String]) -> Result<()> {
    let has = |name: &str| names.iter().any(|each| each == name);
    if has("keyspaces") && has("version") && !has(TREES) {
        return Err(corrupt(
            disk,
            "it has the format of an earlier Kilim; `kilim migrate` makes a new directory of it".into(),
        ));
    }
    let foreign = names.iter().find(|name| {
        // A file system's own folder, and files that a desktop leaves everywhere.
        let harmless = name.starts_with('.') || *name == "lost+found";
        !harmless && ![TREES, CREATING, LOCK].contains(&&***name) && !Journal::is_slot(name)
    });
    if let Some(name) = foreign {
        return Err(corrupt(disk, format!("it holds {name}, which is not Kilim's; nothing was changed")));
    }
    if has(TREES) && has(CREATING) {
        return Err(corrupt(disk, format!("it holds {CREATING} beside {TREES}; nothing was changed")));
    }
    if !has(TREES)
        && !has(CREATING)
        && let Some(name) = names.iter().find(|name| Journal::is_slot(name))
    {
        return Err(corrupt(disk, format!("it holds {name} but no {TREES}; nothing was changed")));
    }
    Ok(())
}

/// Makes an empty store.
fn create(disk: &Arc<dyn Disk>, names: &[String]) -> Result<()> {
    let io = |error: std::io::Error| at(&**disk, &error);
    if names.iter().any(|name| name == CREATING) {
        tracing::info!(place = disk.name(), "the first start was interrupted and is repeated");
        // The mark goes last.
        for name in names.iter().filter(|name| Journal::is_slot(name)) {
            disk.remove(name).map_err(io)?;
        }
        disk.sync_directory().map_err(io)?;
        disk.remove(CREATING).map_err(io)?;
    }
    let file = disk.create(CREATING).map_err(io)?;
    disk.sync_directory().map_err(io)?;
    let store = new_store_id(disk.environment());
    let (_, journal) = Journal::create(disk.clone(), store)?;

    let file = PageFile::new(file, CREATING.to_owned(), 0, None);
    let blocks = Mutex::new(Blocks::new(FreeMap::new(SUPERBLOCKS)));
    let mut edit = Edit::new(&file, &blocks, 1);
    let (free_map, end) = edit.write_free_map()?;
    let first = Superblock {
        place: 1,
        version: FORMAT_VERSION,
        store,
        epoch: 1,
        directory: None,
        free_map,
        end,
        journal,
        commit_time: 0,
    };
    file.file.set_len(end * BLOCK_BYTES).map_err(io)?;
    file.sync()?;
    first.write(&file)?;
    // The journal's name, before there is a store that needs it.
    disk.sync_directory().map_err(io)?;
    disk.rename(CREATING, TREES).map_err(io)?;
    disk.sync_directory().map_err(io)
}

/// Sixteen bytes that no other store has.
pub(crate) fn new_store_id(environment: &Environment) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&environment.random().to_le_bytes());
    id[8..].copy_from_slice(&environment.random().to_le_bytes());
    id
}

pub(crate) fn read_free_map(file: &PageFile, superblock: &Superblock) -> Result<FreeMap> {
    let kind = Kind { tree: DIRECTORY, level: FREE_MAP_LEVEL };
    let raw = file.read(superblock.free_map, kind)?;
    let broken = |how: String| file.damaged(superblock.free_map, kind, &how);
    let (len, rest) = raw.split_first_chunk::<4>().ok_or_else(|| broken("it is empty".into()))?;
    let encoded = rest.get(..u32::from_le_bytes(*len) as usize);
    let encoded = encoded.ok_or_else(|| broken("it is shorter than it says".into()))?;
    let map = FreeMap::decode(encoded).map_err(|error| broken(error.to_string()))?;
    if map.end() != superblock.end {
        return Err(broken("it is of another length than the file".into()));
    }
    Ok(map)
}

pub(crate) fn read_directory(
    file: &Arc<PageFile>,
    superblock: &Superblock,
) -> Result<BTreeMap<TreeName, Root>> {
    let mut roots = BTreeMap::new();
    let Some((page, level)) = superblock.directory else { return Ok(roots) };
    let root = Root { page, level, rows: 0, blocks: 0, overflows: 0 };
    let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = Cursor::new(file, DIRECTORY, &root, lower, upper, Direction::Forward)?;
    while let Some(row) = cursor.take() {
        let (key, value) = row?;
        let (Some(name), Some(root)) = (TreeName::decode(&key), Root::decode(&value)) else {
            return Err(StorageError::Corrupt(format!("{TREES}: a root in the directory is none")).into());
        };
        roots.insert(name, root);
    }
    Ok(roots)
}

fn corrupt(disk: &dyn Disk, what: String) -> Error {
    StorageError::Corrupt(format!("{}: {what}", disk.name())).into()
}

fn at(disk: &dyn Disk, error: &std::io::Error) -> Error {
    StorageError::Io(format!("{}: {error}", disk.name())).into()
}
