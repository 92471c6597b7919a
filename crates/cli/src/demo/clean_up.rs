//! Nothing is left behind, not even when the demo is interrupted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use kilim_bson::doc;
use kilim_client::{Client, Uri};

use crate::interruption;
use crate::output::complain;

/// What has to go at the end.
#[derive(Default)]
struct Left {
    directory: Option<PathBuf>,
    databases: Vec<(Uri, &'static str)>,
}

pub(super) struct CleanUp {
    left: Arc<Mutex<Left>>,
}

impl CleanUp {
    /// From here on an interruption cleans up too.
    pub(super) fn prepare() -> Result<CleanUp> {
        let left = Arc::new(Mutex::new(Left::default()));
        let own = left.clone();
        interruption::catch(move |_| {
            // The databases are gone with the directory, if it is our own server.
            if let Err(error) = own.lock().unwrap_or_else(PoisonError::into_inner).remove() {
                complain!("\nkilim: {error:#}");
            }
            complain!("\nkilim: interrupted, and nothing is left behind");
        })
        .context("cannot catch signals")?;
        Ok(CleanUp { left })
    }

    /// A directory of its own.
    pub(super) fn directory(&mut self) -> Result<PathBuf> {
        let made = tempfile::Builder::new().prefix("kilim-demo-").tempdir();
        let path = made.context("cannot make a temporary directory")?.keep();
        self.left().directory = Some(path.clone());
        Ok(path)
    }

    /// A database that is about to be filled.
    pub(super) fn database(&mut self, uri: &Uri, name: &'static str) {
        self.left().databases.push((uri.clone(), name));
    }

    pub(super) fn finish(self) -> Result<()> {
        self.left().remove()
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        // After `finish` there is nothing; after an error there may be.
        let _ = self.left().remove();
    }
}

impl Left {
    fn remove(&mut self) -> Result<()> {
        let databases = std::mem::take(&mut self.databases);
        match self.directory.take() {
            Some(directory) => {
                // An interrupted server may still be writing; what it makes meanwhile goes with the next try.
                let mut removed = std::fs::remove_dir_all(&directory);
                for _ in 0..20 {
                    if removed.is_ok() || !directory.exists() {
                        return Ok(());
                    }
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    removed = std::fs::remove_dir_all(&directory);
                }
                removed.with_context(|| format!("cannot remove {}", directory.display()))
            }
            None => {
                for (uri, database) in databases {
                    let mut client = Client::open(&uri)?;
                    client.run(database, doc! {"dropDatabase": 1})?;
                }
                Ok(())
            }
        }
    }
}
