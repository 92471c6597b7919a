//! The shim sees what a program written with std does to its files, and the rebuild puts back what was synced.
//!
//! The program is this test binary, run again under the shim: `tiny_program` does its work only then.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kilim_testkit::crash::Shim;
use kilim_testkit::crash::log::{Event, Record, decode_log};
use kilim_testkit::crash::rebuild::{Names, Replay, Survival};

const DIRECTORY: &str = "TINY_PROGRAM_DIRECTORY";

fn sync_directory(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Each `// n` is a sync, counted from one.
#[test]
fn tiny_program() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let path = |name: &str| directory.join(name);
    let mut file = File::create(path("journal")).unwrap();
    file.write_all(b"one").unwrap();
    file.sync_all().unwrap(); // 1
    sync_directory(&directory); // 2
    file.write_all(b"two").unwrap();
    file.sync_data().unwrap(); // 3

    // A new file replaces another by rename, with a clone of the descriptor and vectored writes.
    let new = OpenOptions::new().create_new(true).read(true).write(true).open(path("current.new")).unwrap();
    let mut clone = new.try_clone().unwrap();
    let written = clone.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cd")]).unwrap();
    assert_eq!(written, 4);
    // Opened again by its descriptor, as the journal does for direct writes.
    let again = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", new.as_raw_fd())).unwrap();
    again.write_all_at(b"X", 1).unwrap();
    clone.sync_all().unwrap(); // 4
    fs::rename(path("current.new"), path("current")).unwrap();
    sync_directory(&directory); // 5

    fs::create_dir(path("tables")).unwrap();
    let mut table = OpenOptions::new().create(true).append(true).open(path("tables/1")).unwrap();
    table.write_all(b"t").unwrap();
    table.write_all(b"u").unwrap();
    table.sync_all().unwrap(); // 6
    sync_directory(&path("tables")); // 7
    sync_directory(&directory); // 8

    file.set_len(4).unwrap();
    fs::remove_file(path("current")).unwrap();
    file.sync_all().unwrap(); // 9
    sync_directory(&directory); // 10

    // This one goes past libc, as tempfile's rename does; the listing has it all the same.
    let temporary = tempfile::NamedTempFile::new_in(&directory).unwrap();
    temporary.as_file().write_all_at(b"p", 0).unwrap();
    temporary.as_file().sync_all().unwrap(); // 11
    temporary.persist(path("persisted")).unwrap();
    sync_directory(&directory); // 12
    fs::copy(path("persisted"), path("tables/2")).unwrap();
    File::open(path("tables/2")).unwrap().sync_all().unwrap(); // 13
    sync_directory(&path("tables")); // 14
    file.write_all_at(b"lost", 0).unwrap();
}

fn run_tiny(shim: &Shim, directory: &Path, faults: Option<&str>) -> bool {
    fs::create_dir_all(directory).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tiny_program"]).envs(shim.environment(directory)).env(DIRECTORY, directory);
    if let Some(faults) = faults {
        command.env("KILIM_SHIM_FAIL", faults);
    }
    command.output().unwrap().status.success()
}

fn contents(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            found.insert(name.clone(), "/".to_owned());
            let inner = contents(&entry.path());
            found.extend(inner.into_iter().map(|(inside, text)| (format!("{name}/{inside}"), text)));
        } else {
            found.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
    found
}

fn rebuilt_after(records: &[Record], syncs: usize, target: &Path) -> BTreeMap<String, String> {
    let mut replay = Replay::new(Names::Strict);
    for record in records {
        if replay.syncs == syncs {
            break;
        }
        replay.apply(record).unwrap();
    }
    assert_eq!(replay.syncs, syncs, "the program syncs often enough");
    replay.lay_out(target, Survival::Strict).unwrap();
    contents(target)
}

#[test]
fn a_directory_is_rebuilt_as_of_each_sync() {
    let place = tempfile::tempdir().unwrap();
    let shim = Shim::build(&place.path().join("shim")).unwrap();
    let directory = place.path().join("data");
    assert!(run_tiny(&shim, &directory, None));
    let records = decode_log(&fs::read(&shim.log).unwrap()).unwrap();

    let tables: &[(&str, &str)] =
        &[("current", "aXcd"), ("journal", "onetwo"), ("tables", "/"), ("tables/1", "tu")];
    let cases: &[(usize, &[(&str, &str)])] = &[
        (0, &[]),
        (1, &[]),
        (2, &[("journal", "one")]),
        (3, &[("journal", "onetwo")]),
        (4, &[("journal", "onetwo")]),
        (5, &[("current", "aXcd"), ("journal", "onetwo")]),
        (7, &[("current", "aXcd"), ("journal", "onetwo")]),
        (8, tables),
        (9, &[("current", "aXcd"), ("journal", "onet"), ("tables", "/"), ("tables/1", "tu")]),
        (10, &[("journal", "onet"), ("tables", "/"), ("tables/1", "tu")]),
        (12, &[("journal", "onet"), ("persisted", "p"), ("tables", "/"), ("tables/1", "tu")]),
        (
            14,
            &[
                ("journal", "onet"),
                ("persisted", "p"),
                ("tables", "/"),
                ("tables/1", "tu"),
                ("tables/2", "p"),
            ],
        ),
    ];
    for (syncs, expected) in cases {
        let found = rebuilt_after(&records, *syncs, &place.path().join("rebuilt"));
        let expected = expected.iter().map(|&(n, c)| (n.to_owned(), c.to_owned())).collect();
        assert_eq!(found, expected, "after sync {syncs}");
    }

    // With everything that was ever written, the rebuild is the directory itself.
    let mut replay = Replay::new(Names::Strict);
    for record in &records {
        replay.apply(record).unwrap();
    }
    let all = place.path().join("all");
    let complete = (0..200).any(|seed| {
        replay.lay_out(&all, Survival::Some { seed }).unwrap();
        contents(&all) == contents(&directory)
    });
    assert!(complete, "some choice of survivors is all of them");
}

#[test]
fn a_fault_hits_the_call_it_names() {
    let place = tempfile::tempdir().unwrap();
    let shim = Shim::build(&place.path().join("shim")).unwrap();
    for (faults, class, error, syncs) in [
        ("fsync:3:EIO", "fsync", libc::EIO, 2),
        ("write:2:ENOSPC", "write", libc::ENOSPC, 2),
        ("write:99:EIO,create:2+:ENOSPC", "create", libc::ENOSPC, 3),
    ] {
        let directory = place.path().join("data");
        assert!(!run_tiny(&shim, &directory, Some(faults)), "{faults} fails the program");
        let records = decode_log(&fs::read(&shim.log).unwrap()).unwrap();
        let fault = records.iter().find_map(|record| match &record.event {
            Event::Fault { class, error } => Some((class.clone(), *error)),
            _ => None,
        });
        assert_eq!(fault, Some((class.to_owned(), error)));
        let ended = records.iter().filter(|r| matches!(r.event, Event::SyncEnd { .. })).count();
        assert_eq!(ended, syncs, "{faults}");
        fs::remove_dir_all(&directory).unwrap();
        fs::remove_file(&shim.log).unwrap();
    }
}
