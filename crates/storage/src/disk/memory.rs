//! A disk in memory, for tests: it can be copied, damaged, made to fail, and cut off from power.
//!
//! Each file keeps its bytes as a reader sees them, its bytes as of the last sync, and the writes since. The
//! directory keeps the same of its names. A power cut builds another disk from what was synced plus a random
//! choice of what was not, sector by sector, as [`super`] allows.
//!
//! Invariant: a disk made by `copy` or `power_cut` shares nothing with the one it was made of.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, File, FileSystemSpace};

/// What a drive writes whole.
const SECTOR: usize = 512;

/// What a test is asked before each change: the operation, the file's name and the offset.
type Fault = Box<dyn FnMut(&str, &str, u64) -> io::Result<()> + Send>;
/// What a test is told after each change.
type Watcher = Box<dyn FnMut(&Image) + Send>;

/// Everything on the disk at one moment.
#[derive(Clone, Default)]
pub(crate) struct Image {
    files: Vec<FileImage>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// A name and the file it stands for since, or none, in order.
    pending_names: Vec<(String, Option<usize>)>,
}

#[derive(Clone, Default)]
struct FileImage {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Default)]
struct Shared {
    image: Mutex<Image>,
    fault: Mutex<Option<Fault>>,
    watcher: Mutex<Option<Watcher>>,
    changes: Mutex<u64>,
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
    /// What a power loss at this moment may leave: each unsynced name and sector is there or is not, by dice.
    pub(crate) fn power_cut(&self, dice: &mut Dice) -> MemoryDisk {
        // Besides a mixture, everything and nothing are likely outcomes.
        let chance = [0, 1, 5, 9, 10][dice.roll(5) as usize];
        let mut names = self.synced_names.clone();
        for (name, file) in &self.pending_names {
            if dice.roll(10) < chance {
                match file {
                    Some(file) => names.insert(name.clone(), *file),
                    None => names.remove(name),
                };
            }
        }
        let files = self.files.iter().map(|file| {
            let mut bytes = file.synced.clone();
            for (offset, written) in &file.pending {
                let mut from = 0;
                while from < written.len() {
                    let to = written.len().min(from + SECTOR - (offset + from) % SECTOR);
                    if dice.roll(10) < chance {
                        overwrite(&mut bytes, offset + from, &written[from..to]);
                    }
                    from = to;
                }
            }
            FileImage { synced: bytes.clone(), bytes, pending: Vec::new() }
        });
        let image =
            Image { files: files.collect(), synced_names: names.clone(), names, pending_names: Vec::new() };
        MemoryDisk { shared: Arc::new(Shared { image: Mutex::new(image), ..Shared::default() }) }
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
        MemoryDisk { shared: Arc::new(Shared { image: Mutex::new(self.image()), ..Shared::default() }) }
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

    /// How many operations have changed or synced anything.
    pub(crate) fn changes(&self) -> u64 {
        *self.shared.changes.lock()
    }

    /// From now on each change happens only if this says so.
    pub(crate) fn fail(&self, fault: impl FnMut(&str, &str, u64) -> io::Result<()> + Send + 'static) {
        *self.shared.fault.lock() = Some(Box::new(fault));
    }

    pub(crate) fn heal(&self) {
        *self.shared.fault.lock() = None;
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

    fn file(&self, name: &str, number: usize) -> Arc<dyn File> {
        Arc::new(MemoryFile { disk: self.clone(), name: name.to_owned(), number })
    }
}

impl Disk for MemoryDisk {
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
            image.pending_names.push((name.to_owned(), Some(number)));
            Ok(number)
        })?;
        Ok(self.file(name, number))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(("remove", name, 0), |image| {
            image.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
            image.pending_names.push((name.to_owned(), None));
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(("rename", from, 0), |image| {
            let number = image.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            image.names.insert(to.to_owned(), number);
            image.pending_names.push((from.to_owned(), None));
            image.pending_names.push((to.to_owned(), Some(number)));
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
        None
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
        let image = self.disk.shared.image.lock();
        let from = image.files[self.number].bytes.get(offset as usize..).unwrap_or_default();
        buffer.copy_from_slice(from.get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change("write", offset, |file| {
            overwrite(&mut file.bytes, offset as usize, bytes);
            file.pending.push((offset as usize, bytes.to_vec()));
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.change("sync", 0, |file| {
            for (offset, written) in std::mem::take(&mut file.pending) {
                overwrite(&mut file.synced, offset, &written);
            }
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // Synced at once, which a test of the journal can do with: it only ever shortens a spare.
        self.change("set_len", len, |file| {
            file.bytes.resize(len as usize, 0);
            file.synced.resize(len as usize, 0);
            file.pending.clear();
        })
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(&vec![0; len as usize], offset)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.len()
    }
}
