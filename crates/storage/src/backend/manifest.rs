//! The lists of tables, checked before fjall trusts them.
//!
//! Each keyspace has a file `current` that names the list in force, `v<number>`, and holds that list's checksum. fjall
//! writes the checksum and does not look at it: a list with a damaged byte makes it reserve whatever memory a count
//! asks for, which ends the process. So a start reads the few lists itself, and refuses a damaged one.
//!
//! Invariant: what `check` lets pass is, byte by byte, what was written.

use kilim_error::{Result, StorageError};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

// fjall's names, on disk.
const KEYSPACES: &str = "keyspaces";
const CURRENT: &str = "current";

/// On disk: the list's number, its checksum, and the checksum's kind.
const CURRENT_BYTES: usize = 8 + 16 + 1;
const KIND_XXH3: u8 = 0;

/// Refuses a store with a damaged list of tables.
pub(crate) fn check(dir: &Path) -> Result<()> {
    let keyspaces = match fs::read_dir(dir.join(KEYSPACES)) {
        Ok(keyspaces) => keyspaces,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unread(dir, &error)),
    };
    for keyspace in keyspaces {
        let keyspace = keyspace.map_err(|error| unread(dir, &error))?.path();
        match fs::read(keyspace.join(CURRENT)) {
            Ok(current) => check_current(&keyspace, &current)?,
            // A keyspace that was never finished is fjall's to remove; a file is none.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(unread(&keyspace, &error)),
        }
    }
    Ok(())
}

fn check_current(keyspace: &Path, current: &[u8]) -> Result<()> {
    let damaged = |what: &str| {
        let place = keyspace.join(what);
        Err(StorageError::Corrupt(format!("{} is damaged", place.display())).into())
    };
    let Ok(current) = <[u8; CURRENT_BYTES]>::try_from(current) else { return damaged(CURRENT) };
    let (number, rest) = current.split_at(8);
    let (checksum, kind) = rest.split_at(16);
    if kind != [KIND_XXH3] {
        return damaged(CURRENT);
    }
    let list = format!("v{}", u64::from_le_bytes(number.try_into().expect("eight bytes")));
    let checksum = u128::from_le_bytes(checksum.try_into().expect("sixteen bytes"));
    match fs::read(keyspace.join(&list)) {
        Ok(bytes) if xxh3_128(&bytes) == checksum => Ok(()),
        Ok(_) => damaged(&list),
        // Its number is damaged, or the list is gone.
        Err(error) if error.kind() == ErrorKind::NotFound => damaged(CURRENT),
        Err(error) => Err(unread(keyspace, &error)),
    }
}

fn unread(place: &Path, error: &io::Error) -> kilim_error::Error {
    StorageError::Io(format!("{}: {error}", place.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options, Space, Store};

    /// Every byte of every list, and of what names it: one that is changed is noticed, and nothing else is refused.
    #[test]
    fn a_damaged_list_of_tables_is_refused_and_asks_for_no_memory() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Options::default()).unwrap();
        let mut transaction = store.begin();
        transaction.put(Space::Records, b"key".to_vec(), b"some value".to_vec());
        transaction.commit(Durability::Durable).unwrap();
        store.close().unwrap();
        check(directory.path()).unwrap();
        let mut damaged = 0;
        for keyspace in fs::read_dir(directory.path().join(KEYSPACES)).unwrap() {
            let keyspace = keyspace.unwrap().path();
            let Ok(current) = fs::read(keyspace.join(CURRENT)) else { continue };
            let number = u64::from_le_bytes(current[..8].try_into().unwrap());
            for path in [keyspace.join(CURRENT), keyspace.join(format!("v{number}"))] {
                let whole = fs::read(&path).unwrap();
                for at in 0..whole.len() {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 0x3D;
                    fs::write(&path, &bytes).unwrap();
                    let error = check(directory.path()).unwrap_err();
                    assert!(error.to_string().contains("damaged"), "{error}");
                    damaged += 1;
                }
                fs::write(&path, &whole[..whole.len() - 1]).unwrap();
                assert!(check(directory.path()).is_err());
                fs::write(&path, &whole).unwrap();
            }
        }
        assert!(damaged > 100);
        drop(Store::open(directory.path(), Options::default()).unwrap());
    }
}
