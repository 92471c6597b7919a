//! The folder that a dump is written to.
//!
//! Files are written into a folder of their own, `kilim-dump.unfinished`, and moved to their places when all of them are
//! complete; the manifest comes last. So whoever sees the manifest sees the whole dump. A dump that is replaced stays as it
//! was until the new one is complete.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kilim_bson::Value;

use crate::Unfinished;
use crate::archive::{self, UNFINISHED};
use crate::manifest::{MANIFEST, Manifest};

/// Beside the folders of databases, whose names have no dot.
const LOCK: &str = "kilim-dump.lock";

pub(crate) struct Place<'p> {
    folder: &'p Path,
    /// Where files are until they are complete.
    pub unfinished: PathBuf,
    /// The files of the dump that is there, which go when the new one is complete.
    old: Vec<PathBuf>,
    made: &'p Unfinished,
    /// Held as long as the dump is being written.
    _lock: File,
}

impl<'p> Place<'p> {
    /// Refuses a folder that has a dump, unless that is to be replaced.
    pub fn prepare(folder: &'p Path, replace: bool, made: &'p Unfinished) -> Result<Place<'p>> {
        let unfinished = folder.join(UNFINISHED);
        let mut old = Vec::new();
        if folder.exists() {
            check_no_links(folder)?;
            old = archive::files(folder)?;
            // Where a dump has a manifest, other files are none of its own. One that cannot be read lists nothing.
            if let Ok(Some(manifest)) = Manifest::read(folder) {
                let listed = manifest.files();
                old.retain(|path| listed.contains(&*archive::name_in(folder, path)));
            }
            let found = match () {
                () if folder.join(MANIFEST).exists() => Some(format!("a dump already ({MANIFEST} is there)")),
                () if unfinished.exists() => {
                    Some(format!("a dump that was not finished, or is being written ({UNFINISHED} is there)"))
                }
                () => old
                    .first()
                    .map(|path| format!("a dump already ({} is there)", archive::name_in(folder, path))),
            };
            if let (Some(found), false) = (found, replace) {
                bail!(
                    "{} holds {found}: name another folder, or replace that dump with --replace",
                    folder.display()
                );
            }
        }
        let unwritable = || format!("cannot write to {}", folder.display());
        made.make_folder(folder).with_context(unwritable)?;
        if replace && unfinished.exists() {
            if is_locked(&unfinished.join(LOCK)) {
                bail!("another process is writing a dump to {}", folder.display());
            }
            fs::remove_dir_all(&unfinished).with_context(unwritable)?;
        }
        made.make_tree(&unfinished).with_context(unwritable)?;
        let lock = File::create_new(unfinished.join(LOCK)).with_context(unwritable)?;
        lock.lock().with_context(unwritable)?;
        Ok(Place { folder, unfinished, old, made, _lock: lock })
    }

    /// Moves all files to their places, and the manifest last.
    pub fn publish(&self, manifest: &Manifest) -> Result<()> {
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as i64);
        let complete = || {
            // From here on the old dump, if there is one, is not complete.
            remove_if_there(&self.folder.join(MANIFEST))?;
            self.old.iter().try_for_each(|path| remove_if_there(path))?;
            let folders: BTreeSet<&Path> = self.old.iter().filter_map(|path| path.parent()).collect();
            // One that holds something else stays.
            folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
            let mut touched = BTreeSet::new();
            for (name, _) in manifest.collections.iter().flat_map(|listed| &listed.files) {
                let place = self.folder.join(name);
                if let Some(folder) = place.parent()
                    && touched.insert(folder.to_owned())
                {
                    fs::create_dir_all(folder)?;
                }
                fs::rename(self.unfinished.join(name), &place)?;
            }
            touched.iter().try_for_each(|folder| File::open(folder)?.sync_all())?;
            File::open(self.folder)?.sync_all()?;
            fs::rename(self.unfinished.join(MANIFEST), self.folder.join(MANIFEST))?;
            fs::remove_dir_all(&self.unfinished)?;
            File::open(self.folder)?.sync_all()
        };
        let unwritable = || format!("cannot complete the dump in {}", self.folder.display());
        manifest.write(&self.unfinished, Value::DateTime(now)).with_context(unwritable)?;
        self.made.finish(complete).with_context(unwritable)
    }
}

impl Drop for Place<'_> {
    /// After `publish` nothing is unfinished.
    fn drop(&mut self) {
        self.made.remove();
    }
}

/// Refuses a folder in which a folder is a link: a database of that name would be written elsewhere, over what is there.
fn check_no_links(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() && path.is_dir() {
            bail!("{} is a link: a dump is written to a folder of its own", path.display());
        }
    }
    Ok(())
}

/// Whether a process holds a lock file. One that died holds none.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
