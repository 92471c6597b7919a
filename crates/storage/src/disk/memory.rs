//! A disk in memory, for tests: it can be copied, damaged, made to fail, and cut off from power.
//!
//! Each file keeps its bytes as a reader sees them, its bytes as of the last sync, and the changes since. The
//! directory keeps the same of its names. A power cut builds another disk from what was synced plus a random
//! choice of what was not, sector by sector, as [`super`] allows; a rename happens as a whole or not at all.
//!
//! A disk can be made to die: after a number of changes the next write is torn and everything fails, as if the
//! process had been killed there. It can be given a size: a write that needs more blocks than are left writes what
//! fits and fails as a full disk does. A write can be made to land elsewhere.
//!
//! Invariant: a disk made by `copy` or `power_cut` shares nothing with the one it was made of.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, File, FileSystemSpace};
use crate::environment::Environment;

/// What a drive writes whole.
const SECTOR: usize = 512;

/// What a file system allocates.
const BLOCK: usize = 4096;

/// What a test is asked before each change: the operation, the file's name and the offset.
type Fault = Box<dyn FnMut(&str, &str, u64) -> io::Result<()> + Send>;
/// What a test is asked before each write: the file's name and the offset. It may name another place.
type Misdirection = Box<dyn FnMut(&str, u64) -> Option<(String, u64)> + Send>;
type ReadFault = Box<dyn FnMut(&str, u64) -> io::Result<()> + Send>;
/// What a test is told after each change.
type Watcher = Box<dyn FnMut(&Image) + Send>;

/// Everything on the disk at one moment.
#[derive(Clone, Default)]
pub(crate) struct Image {
    files: Vec<FileImage>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// Names and the file each stands for since, or none, in order. What one operation did is one entry.
    pending_names: Vec<Vec<(String, Option<usize>)>>,
}

#[derive(Clone, Default)]
struct FileImage {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<Pending>,
    /// Whether each block takes room on the disk.
    allocated: Vec<bool>,
}

/// A change that was not synced.
#[derive(Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl FileImage {
    fn write(&mut self, offset: usize, written: &[u8]) {
        overwrite(&mut self.bytes, offset, written);
        self.pending.push(Pending::Write(offset, written.to_vec()));
        let blocks = offset / BLOCK..(offset + written.len()).div_ceil(BLOCK);
        self.allocated.resize(self.allocated.len().max(blocks.end), false);
        self.allocated[blocks].fill(true);
    }

    /// How many bytes of a write fit a number of blocks.
    fn fitting(&self, offset: usize, len: usize, mut blocks: usize) -> usize {
        for block in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
            if !self.allocated.get(block).copied().unwrap_or(false) {
                if blocks == 0 {
                    return (block * BLOCK).saturating_sub(offset);
                }
                blocks -= 1;
            }
        }
        len
    }

    /// What is on disk after a choice among the unsynced changes.
    fn settled(&self, mut is_there: impl FnMut() -> bool) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for change in &self.pending {
            match change {
                Pending::SetLen(len) if is_there() => bytes.resize(*len, 0),
                Pending::SetLen(_) => {}
                Pending::Write(offset, written) => {
                    let mut from = 0;
                    while from < written.len() {
                        let to = written.len().min(from + SECTOR - (offset + from) % SECTOR);
                        if is_there() {
                            overwrite(&mut bytes, offset + from, &written[from..to]);
                        }
                        from = to;
                    }
                }
            }
        }
        bytes
    }
}

#[derive(Default)]
struct Shared {
    image: Mutex<Image>,
    fault: Mutex<Option<Fault>>,
    /// Asked before each read: the file's name and the offset.
    read_fault: Mutex<Option<ReadFault>>,
    misdirection: Mutex<Option<Misdirection>>,
    watcher: Mutex<Option<Watcher>>,
    changes: Mutex<u64>,
    death: Mutex<Option<Death>>,
    /// In blocks.
    capacity: Mutex<Option<usize>>,
    environment: Environment,
}

/// When everything ends.
struct Death {
    /// Changes before it; at zero everything fails.
    changes_left: u64,
    /// By how much the last write is torn.
    tear: u64,
}

#[derive(Clone, Default)]
pub(crate) struct MemoryDisk {
    shared: Arc<Shared>,
}

/// A small generator of its own, so that a failing case is named by one number.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }
}

impl Image {
    /// Another disk that holds the same, synced and not.
    pub(crate) fn disk(&self) -> MemoryDisk {
        MemoryDisk { shared: Arc::new(Shared { image: Mutex::new(self.clone()), ..Shared::default() }) }
    }

    /// Where the writes to a file begin and end that were not synced.
    pub(crate) fn unsynced_writes(&self, name: &str) -> Vec<std::ops::Range<usize>> {
        let pending = self.files[self.names[name]].pending.iter();
        let range = |change: &Pending| match change {
            Pending::Write(offset, written) => Some(*offset..offset + written.len()),
            Pending::SetLen(_) => None,
        };
        pending.filter_map(range).collect()
    }

    /// What a power loss at this moment may leave: each unsynced name and sector is there or is not, by dice.
    pub(crate) fn power_cut(&self, dice: &mut Dice) -> MemoryDisk {
        // Besides a mixture, everything and nothing are likely outcomes.
        let chance = [0, 1, 5, 9, 10][dice.roll(5) as usize];
        let mut names = self.synced_names.clone();
        for names_of_one in &self.pending_names {
            if dice.roll(10) < chance {
                apply_names(&mut names, names_of_one);
            }
        }
        let files = self.files.iter().map(|file| {
            let bytes = file.settled(|| dice.roll(10) < chance);
            let allocated = file.allocated.clone();
            FileImage { synced: bytes.clone(), bytes, pending: Vec::new(), allocated }
        });
        Image { files: files.collect(), synced_names: names.clone(), names, pending_names: Vec::new() }.disk()
    }
}

fn apply_names(names: &mut BTreeMap<String, usize>, changes: &[(String, Option<usize>)]) {
    for (name, file) in changes {
        match file {
            Some(file) => names.insert(name.clone(), *file),
            None => names.remove(name),
        };
    }
}

fn overwrite(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    if bytes.len() < offset + written.len() {
        bytes.resize(offset + written.len(), 0);
    }
    bytes[offset..offset + written.len()].copy_from_slice(written);
}

impl MemoryDisk {
    pub(crate) fn image(&self) -> Image {
        self.shared.image.lock().clone()
    }

    pub(crate) fn copy(&self) -> MemoryDisk {
        self.image().disk()
    }

    /// Changes a file's bytes behind everybody's back.
    pub(crate) fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut image = self.shared.image.lock();
        let file = image.names[name];
        change(&mut image.files[file].bytes);
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let image = self.shared.image.lock();
        image.files[image.names[name]].bytes.clone()
    }

    /// Takes what was written and not synced for clean, as an operating system does after a failed sync: it is
    /// read as before, and no later sync puts it on disk.
    pub(crate) fn take_for_clean(&self, name: &str) {
        let mut image = self.shared.image.lock();
        let file = image.names[name];
        image.files[file].pending.clear();
    }

    /// Loses by dice what was written to a file and not synced, as a failed sync does: it is read as before, and
    /// no later sync puts it on disk.
    pub(crate) fn lose_unsynced(&self, name: &str, dice: &mut Dice) {
        let mut image = self.shared.image.lock();
        let Some(&file) = image.names.get(name) else { return };
        let file = &mut image.files[file];
        let chance = [0, 5, 10][dice.roll(3) as usize];
        file.synced = file.settled(|| dice.roll(10) < chance);
        file.pending.clear();
    }

    /// The process dies after this many more changes, of which the last one is torn if it is a write.
    pub(crate) fn die_after(&self, changes: u64, tear: u64) {
        *self.shared.death.lock() = Some(Death { changes_left: changes, tear });
    }

    pub(crate) fn forget_death(&self) {
        *self.shared.death.lock() = None;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.shared.death.lock().as_ref().is_some_and(|death| death.changes_left == 0)
    }

    /// Gives the disk a size beyond what is in use now, or none.
    pub(crate) fn set_room(&self, bytes: Option<u64>) {
        let used = self.used_blocks();
        *self.shared.capacity.lock() = bytes.map(|bytes| used + bytes as usize / BLOCK);
    }

    fn used_blocks(&self) -> usize {
        let image = self.shared.image.lock();
        let files = image.names.values().map(|file| &image.files[*file].allocated);
        files.flatten().filter(|allocated| **allocated).count()
    }

    fn free_blocks(&self) -> Option<usize> {
        let capacity = (*self.shared.capacity.lock())?;
        Some(capacity.saturating_sub(self.used_blocks()))
    }

    /// From now on each read happens only if this says so.
    pub(crate) fn fail_reads(&self, fault: impl FnMut(&str, u64) -> io::Result<()> + Send + 'static) {
        *self.shared.read_fault.lock() = Some(Box::new(fault));
    }

    /// Every file as a reader sees it.
    pub(crate) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let image = self.shared.image.lock();
        image.names.iter().map(|(name, file)| (name.clone(), image.files[*file].bytes.clone())).collect()
    }

    /// A disk that holds these files, all of it synced.
    pub(crate) fn holding(contents: &BTreeMap<String, Vec<u8>>) -> MemoryDisk {
        let mut image = Image::default();
        for (name, bytes) in contents {
            image.names.insert(name.clone(), image.files.len());
            let allocated = vec![true; bytes.len().div_ceil(BLOCK)];
            image.files.push(FileImage {
                bytes: bytes.clone(),
                synced: bytes.clone(),
                pending: Vec::new(),
                allocated,
            });
        }
        image.synced_names = image.names.clone();
        MemoryDisk { shared: Arc::new(Shared { image: Mutex::new(image), ..Shared::default() }) }
    }

    /// How many operations have changed or synced anything.
    pub(crate) fn changes(&self) -> u64 {
        *self.shared.changes.lock()
    }

    /// From now on each change happens only if this says so.
    pub(crate) fn fail(&self, fault: impl FnMut(&str, &str, u64) -> io::Result<()> + Send + 'static) {
        *self.shared.fault.lock() = Some(Box::new(fault));
    }

    /// From now on each write goes where this says, if it says something.
    pub(crate) fn misdirect(
        &self,
        misdirection: impl FnMut(&str, u64) -> Option<(String, u64)> + Send + 'static,
    ) {
        *self.shared.misdirection.lock() = Some(Box::new(misdirection));
    }

    pub(crate) fn heal(&self) {
        *self.shared.fault.lock() = None;
        *self.shared.misdirection.lock() = None;
        *self.shared.read_fault.lock() = None;
    }

    /// From now on this sees the disk after each change.
    pub(crate) fn watch(&self, watcher: impl FnMut(&Image) + Send + 'static) {
        *self.shared.watcher.lock() = Some(Box::new(watcher));
    }

    fn change<T>(
        &self,
        operation: (&str, &str, u64),
        apply: impl FnOnce(&mut Image) -> io::Result<T>,
    ) -> io::Result<T> {
        self.come_closer_to_death()?;
        if let Some(fault) = self.shared.fault.lock().as_mut() {
            fault(operation.0, operation.1, operation.2)?;
        }
        *self.shared.changes.lock() += 1;
        let mut image = self.shared.image.lock();
        let outcome = apply(&mut image)?;
        if let Some(watcher) = self.shared.watcher.lock().as_mut() {
            watcher(&image);
        }
        Ok(outcome)
    }

    fn come_closer_to_death(&self) -> io::Result<()> {
        if let Some(death) = &mut *self.shared.death.lock() {
            death.changes_left = death.changes_left.saturating_sub(1);
            if death.changes_left == 0 {
                return Err(io::Error::other("the process is dead"));
            }
        }
        Ok(())
    }

    /// How much of a write is done if the process dies in it.
    fn torn(&self, len: usize) -> Option<usize> {
        let death = self.shared.death.lock();
        death.as_ref().filter(|death| death.changes_left == 1).map(|death| death.tear as usize % (len + 1))
    }

    fn file(&self, name: &str, number: usize) -> Arc<dyn File> {
        Arc::new(MemoryFile { disk: self.clone(), name: name.to_owned(), number })
    }
}

impl Disk for MemoryDisk {
    fn environment(&self) -> &Environment {
        &self.shared.environment
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.shared.image.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let found = self.shared.image.lock().names.get(name).copied();
        Ok(self.file(name, found.ok_or(io::ErrorKind::NotFound)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let number = self.change(("create", name, 0), |image| {
            if image.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            image.files.push(FileImage::default());
            let number = image.files.len() - 1;
            image.names.insert(name.to_owned(), number);
            image.pending_names.push(vec![(name.to_owned(), Some(number))]);
            Ok(number)
        })?;
        Ok(self.file(name, number))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(("remove", name, 0), |image| {
            image.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
            image.pending_names.push(vec![(name.to_owned(), None)]);
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(("rename", from, 0), |image| {
            let number = image.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            image.names.insert(to.to_owned(), number);
            image.pending_names.push(vec![(from.to_owned(), None), (to.to_owned(), Some(number))]);
            Ok(())
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.change(("sync_directory", "", 0), |image| {
            image.synced_names = image.names.clone();
            image.pending_names.clear();
            Ok(())
        })
    }

    fn space(&self) -> Option<FileSystemSpace> {
        let free_blocks = self.free_blocks()?;
        let total = (free_blocks + self.used_blocks()) * BLOCK;
        Some(FileSystemSpace { free_bytes: (free_blocks * BLOCK) as u64, total_bytes: total as u64 })
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    name: String,
    number: usize,
}

impl MemoryFile {
    fn change(&self, operation: &str, offset: u64, apply: impl FnOnce(&mut FileImage)) -> io::Result<()> {
        self.disk.change((operation, &self.name, offset), |image| {
            apply(&mut image.files[self.number]);
            Ok(())
        })
    }
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.shared.image.lock().files[self.number].bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(fault) = self.disk.shared.read_fault.lock().as_mut() {
            fault(&self.name, offset)?;
        }
        let image = self.disk.shared.image.lock();
        let from = image.files[self.number].bytes.get(offset as usize..).unwrap_or_default();
        buffer.copy_from_slice(from.get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let elsewhere = self.disk.shared.misdirection.lock().as_mut().and_then(|ask| ask(&self.name, offset));
        if let Some((name, at)) = elsewhere {
            let number = self.disk.shared.image.lock().names[&name];
            return self.disk.change(("write", &name, at), |image| {
                image.files[number].write(at as usize, bytes);
                Ok(())
            });
        }
        let at = offset as usize;
        if let Some(torn) = self.disk.torn(bytes.len()) {
            self.disk.shared.image.lock().files[self.number].write(at, &bytes[..torn]);
        }
        let free_blocks = self.disk.free_blocks();
        let mut is_full = false;
        self.change("write", offset, |file| {
            let fitting = free_blocks.map_or(bytes.len(), |blocks| file.fitting(at, bytes.len(), blocks));
            is_full = fitting < bytes.len();
            if fitting > 0 || bytes.is_empty() {
                file.write(at, &bytes[..fitting]);
            }
        })?;
        if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.change("sync", 0, |file| {
            for change in std::mem::take(&mut file.pending) {
                match change {
                    Pending::Write(offset, written) => overwrite(&mut file.synced, offset, &written),
                    Pending::SetLen(len) => file.synced.resize(len, 0),
                }
            }
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change("set_len", len, |file| {
            file.bytes.resize(len as usize, 0);
            file.allocated.truncate((len as usize).div_ceil(BLOCK));
            file.pending.push(Pending::SetLen(len as usize));
        })
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change("punch", offset, |file| {
            let (offset, len) = (offset as usize, len as usize);
            file.write(offset, &vec![0; len]);
            file.allocated[offset.div_ceil(BLOCK)..(offset + len) / BLOCK].fill(false);
        })
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let image = self.disk.shared.image.lock();
        let allocated = &image.files[self.number].allocated;
        Ok((allocated.iter().filter(|allocated| **allocated).count() * BLOCK) as u64)
    }
}
