//! Files that are not complete yet, so that whoever ends the program early can remove them.
//!
//! The work and the end of the program run in different threads. Both take one lock for the moments that count: making
//! something, giving it its final name, removing it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is being made.
#[derive(Debug, Clone, Default)]
pub struct Unfinished {
    /// In the order of their making.
    made: Arc<Mutex<Vec<Made>>>,
}

#[derive(Debug)]
enum Made {
    File(PathBuf),
    /// A folder that goes with all that is in it.
    Tree(PathBuf),
    /// A folder that others make, fill and rename. It goes with all that is in it.
    Expected(PathBuf),
    /// A folder that goes if nothing else is in it.
    Folder(PathBuf),
}

impl Unfinished {
    /// Makes a folder whose whole content is unfinished. It is an error if it exists.
    pub fn make_tree(&self, path: &Path) -> io::Result<()> {
        let mut made = self.lock();
        fs::create_dir(path)?;
        made.push(Made::Tree(path.to_owned()));
        Ok(())
    }

    /// Makes a folder, and those around it, unless it is there.
    pub fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut made = self.lock();
        let missing: Vec<&Path> = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
            .collect();
        fs::create_dir_all(path)?;
        made.extend(missing.iter().rev().map(|folder| Made::Folder((*folder).to_owned())));
        Ok(())
    }

    /// Makes a file. It is an error if it exists.
    pub fn make_file(&self, path: &Path) -> io::Result<fs::File> {
        let mut made = self.lock();
        let file = fs::File::create_new(path)?;
        made.push(Made::File(path.to_owned()));
        Ok(file)
    }

    /// Says that others are about to make a folder, which has another name once it is complete.
    pub fn expect_tree(&self, path: &Path) {
        self.lock().push(Made::Expected(path.to_owned()));
    }

    /// Gives everything its final name by `publish`, which nothing interrupts. Nothing is unfinished afterwards.
    pub fn finish<T>(&self, publish: impl FnOnce() -> T) -> T {
        let mut made = self.lock();
        made.clear();
        publish()
    }

    /// Removes all that is unfinished.
    pub fn remove(&self) {
        remove_all(&mut self.lock());
    }

    /// Removes all that is unfinished and has `end` end the program. Meanwhile nothing else is made, finished or told.
    pub fn remove_and(&self, end: impl FnOnce()) {
        let mut made = self.lock();
        remove_all(&mut made);
        end();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody can be told of what stays; its name says what it is.
fn remove_all(made: &mut Vec<Made>) {
    while let Some(last) = made.pop() {
        match last {
            Made::File(path) => drop(fs::remove_file(path)),
            Made::Folder(path) => drop(fs::remove_dir(path)),
            Made::Tree(path) => remove_tree(&path),
            Made::Expected(path) => {
                // Under its own name it could be taken for complete, and renamed, while half of it is gone.
                let mut aside = path.clone().into_os_string();
                aside.push(format!("-{}", std::process::id()));
                // Until the work notices it may make the folder again.
                for _ in 0..10 {
                    if fs::rename(&path, &aside).is_ok() {
                        remove_tree(Path::new(&aside));
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

fn remove_tree(path: &Path) {
    // The work goes on until the program ends, and may make one more file meanwhile.
    for _ in 0..20 {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
