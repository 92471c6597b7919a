//! Recovery: a directory with damaged bytes is refused or opened, and what is read from it was written once.

use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use kilim_storage::{Direction, Durability, Options, Space, Store};

const RECORDS: u32 = 200;

/// The files of a directory that was written and closed.
static WRITTEN: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path(), Options::default()).expect("a new store opens");
    for number in 0..RECORDS {
        let mut transaction = store.begin();
        transaction.put(Space::Records, key(number), value(number));
        transaction.commit(Durability::Durable).expect("a commit succeeds");
    }
    store.close().expect("a store closes");
    let mut files = Vec::new();
    collect(directory.path(), directory.path(), &mut files);
    files.sort();
    files
});

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(number: u32) -> Vec<u8> {
    let mut value = vec![0; 8];
    value.extend_from_slice(format!("value {number}").as_bytes());
    value
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(root, &path, files),
            false => {
                let name = path.strip_prefix(root).expect("below the root").to_owned();
                files.push((name, fs::read(&path).expect("a file")));
            }
        }
    }
}

/// Three bytes place a change, one makes it: a file, a place in it, another byte there, or its end.
pub fn check(input: &[u8]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut files = WRITTEN.clone();
    for change in input.chunks_exact(4).take(16) {
        let at = usize::from(change[0]) % files.len();
        let bytes = &mut files[at].1;
        if bytes.is_empty() {
            continue;
        }
        let place = usize::from(u16::from_le_bytes([change[1], change[2]])) % bytes.len();
        match change[3] {
            0 => bytes.truncate(place),
            other => bytes[place] ^= other,
        }
    }
    for (name, bytes) in &files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        fs::write(path, bytes).expect("a file can be written");
    }
    let Ok(store) = Store::open(directory.path(), Options::default()) else { return };
    let snapshot = store.snapshot();
    for entry in snapshot.scan(Space::Records, Bound::Unbounded, Bound::Unbounded, Direction::Forward) {
        let Ok((found, bytes)) = entry else { return };
        let number: [u8; 4] = (&*found).try_into().expect("a key is as it was");
        let expected = value(u32::from_be_bytes(number));
        assert_eq!(&bytes[8..], &expected[8..], "a value is as it was");
    }
}
