//! A process killed while it commits: what it acknowledged is there, whole and without holes.
//!
//! The test starts itself as a child, which commits and prints each acknowledged number, and kills it. A kill
//! keeps the page cache, so this shows recovery and batch atomicity, not what a power loss would leave.

use kilim_storage::{Direction, Durability, Options, Space, Store};
use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD_DIR: &str = "KILIM_STORAGE_KILL_DIR";
const WRITERS: u64 = 4;

fn open(dir: &Path) -> Store {
    Store::open(
        dir,
        Options { cache_bytes: 16 << 20, free_space_reserve_bytes: Some(0), ..Options::default() },
    )
    .unwrap()
}

/// A writer's number as a record and as an index entry, which only ever come together.
fn key(writer: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&writer.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn count(store: &Store, space: Space, writer: u64) -> u64 {
    let (lower, upper) = (key(writer, 0), key(writer + 1, 0));
    let rows =
        store.snapshot().scan(space, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward);
    rows.enumerate()
        .inspect(|(at, row)| assert_eq!(*row.as_ref().unwrap().0, key(writer, *at as u64), "a hole"))
        .count() as u64
}

/// The child: does nothing unless it is started by the test below.
#[test]
fn a_child_commits_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let store = open(Path::new(&dir));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                for number in count(store, Space::Records, writer).. {
                    let mut transaction = store.begin();
                    transaction.put(Space::Records, key(writer, number), vec![0; 2_000]);
                    transaction.put(Space::Index, key(writer, number), []);
                    transaction.add(b"all", 1, 2_000);
                    transaction.commit(Durability::Durable).unwrap();
                    let line = format!("acknowledged {writer} {number}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there_after_it() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_child_commits_until_it_is_killed", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut acknowledged = [0; WRITERS as usize];
            for line in output.lines().map_while(Result::ok) {
                // A line that the kill cut short was not acknowledged to anybody.
                let words: Vec<&str> = line.split(' ').collect();
                if let ["acknowledged", writer, number] = words[..]
                    && let (Ok(writer), Ok(number)) = (writer.parse::<usize>(), number.parse::<u64>())
                {
                    acknowledged[writer] = acknowledged[writer].max(number + 1);
                }
            }
            acknowledged
        });
        std::thread::sleep(Duration::from_millis(150 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reader.join().unwrap();

        let store = open(dir.path());
        let mut total = 0;
        for (writer, acknowledged) in (0..).zip(acknowledged) {
            let records = count(&store, Space::Records, writer);
            assert!(records >= acknowledged, "{records} records, {acknowledged} acknowledged");
            assert_eq!(count(&store, Space::Index, writer), records);
            total += records;
        }
        assert_eq!(store.snapshot().counter(b"all").unwrap().count, total as i64);
        store.close().unwrap();
    }
}
