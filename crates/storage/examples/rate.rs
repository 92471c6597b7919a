//! Measures the store: durable commits, point reads, scans, bulk loads, recovery, ranges over full tables, commits
//! during a checkpoint.
//!
//! `cargo run --release -p kilim-storage --example rate -- DIRECTORY [RECORDS]`; the variable `RATE_ONLY` names the
//! parts that are wanted: commits, load, reads, scan, ingest, range, checkpoint.
//!
//! Records are 1 KB of text that compresses about as well as documents do. CPU is of the whole process, so
//! flushes and compactions count.

use kilim_storage::{Direction, Durability, Options, Space, Store, Wait};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_secs(3);

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(dir) = args.next().map(PathBuf::from) else {
        eprintln!("usage: rate DIRECTORY [RECORDS]");
        std::process::exit(2);
    };
    let records: u64 = args.next().and_then(|count| count.parse().ok()).unwrap_or(300_000);
    let only = std::env::var("RATE_ONLY").unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|only| only == name);
    let began = Instant::now();
    let store = open(&dir);
    println!("opened in         {:>10.3} s", began.elapsed().as_secs_f64());
    if wanted("commits") {
        for threads in [1, 8, 64] {
            commits(&store, threads, Durability::Durable);
        }
        commits(&store, 8, Durability::Relaxed);
        hot(&store, 16);
    }
    if wanted("load") {
        load(&store, records);
    }
    if wanted("reads") {
        for threads in [1, 2] {
            point_reads(&store, records, threads);
        }
        misses(&store);
    }
    if wanted("scan") {
        scan(&store, Direction::Forward);
        scan(&store, Direction::Backward);
    }
    if wanted("ingest") {
        ingest(&store);
    }
    if wanted("range") {
        range(&store);
    }
    if wanted("checkpoint") {
        commits_beside_checkpoints(&store);
    }
    println!("disk              {:>10.1} MB", store.disk_bytes() as f64 / 1e6);
    drop(store);
    let began = Instant::now();
    let store = open(&dir);
    println!("reopened in       {:>10.3} s", began.elapsed().as_secs_f64());
    drop(store);
}

fn open(dir: &std::path::Path) -> Store {
    let options = Options { cache_bytes: 2 << 30, ..Options::default() };
    match Store::open(dir, options) {
        Ok(store) => store,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

fn key(collection: u32, record: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&collection.to_be_bytes());
    key[4..].copy_from_slice(&record.to_be_bytes());
    key
}

/// One of many ready-made records, so that making them is not measured.
fn record(at: u64) -> Vec<u8> {
    static POOL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..10_000).map(make_record).collect());
    POOL[at as usize % POOL.len()].clone()
}

fn make_record(seed: u64) -> Vec<u8> {
    let mut value = vec![0; 8];
    let mut random = seed;
    while value.len() < 1024 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        value.extend_from_slice(b"field: ");
        value.extend_from_slice(format!("{:x},", random >> 24).as_bytes());
    }
    value.truncate(1024);
    value
}

fn cpu() -> Duration {
    // SAFETY: getrusage fills the struct it is given.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Runs something and prints its rate and its CPU time per operation.
fn report(name: &str, run: impl FnOnce() -> u64) {
    let (began, used) = (Instant::now(), cpu());
    let count = run();
    let (took, used) = (began.elapsed(), cpu() - used);
    println!(
        "{name:<34} {:>10.0} /s {:>9.2} us CPU each",
        count as f64 / took.as_secs_f64(),
        used.as_secs_f64() * 1e6 / count as f64
    );
}

/// An insert as the engine does it: a record, two index entries, one counter.
fn commits(store: &Store, threads: u32, durability: Durability) {
    let before = store.stats();
    report(&format!("{durability:?} commits, {threads} threads"), || {
        let total = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let total = &total;
                scope.spawn(move || {
                    let end = Instant::now() + RUN;
                    let mut count = 0u64;
                    while Instant::now() < end {
                        let mut transaction = store.begin();
                        let id = key(1000 + thread, count);
                        let _ = transaction.lock(Space::Index, &id, Wait::No);
                        transaction.put(Space::Records, id, record(count));
                        transaction.put(Space::Index, id, [0; 8]);
                        transaction.put(Space::Index, key(5000 + thread, count), []);
                        transaction.add(b"collection", 1, 1024);
                        if let Err(error) = transaction.commit(durability) {
                            eprintln!("{error}");
                            return;
                        }
                        count += 1;
                    }
                    total.fetch_add(count, Ordering::Relaxed);
                });
            }
        });
        total.into_inner()
    });
    let after = store.stats();
    println!(
        "    {:.1} commits a batch",
        (after.commits - before.commits) as f64 / (after.batches - before.batches).max(1) as f64
    );
}

fn hot(store: &Store, threads: u32) {
    report(&format!("one hot record, {threads} writers"), || {
        let total = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let end = Instant::now() + RUN;
                    let mut count = 0u64;
                    while Instant::now() < end {
                        let mut transaction = store.begin();
                        let wait = Wait::Until { deadline: None, interrupt: &|| None };
                        let done = transaction.lock(Space::Records, b"hot", wait).and_then(|_| {
                            transaction.latest(Space::Records, b"hot")?;
                            transaction.put(Space::Records, b"hot".as_slice(), record(count));
                            transaction.commit(Durability::Durable)
                        });
                        if let Err(error) = done {
                            eprintln!("{error}");
                            return;
                        }
                        count += 1;
                    }
                    total.fetch_add(count, Ordering::Relaxed);
                });
            }
        });
        total.into_inner()
    });
}

fn load(store: &Store, records: u64) {
    report("bulk insert, 1000 records a commit", || {
        for first in (0..records).step_by(1000) {
            let mut transaction = store.begin();
            for at in first..(first + 1000).min(records) {
                transaction.put(Space::Records, key(1, at), record(at));
                transaction.put(Space::Index, key(2, at.wrapping_mul(0x9E3779B97F4A7C15)), at.to_be_bytes());
            }
            transaction.add(b"loaded", 1000, 1_024_000);
            if let Err(error) = transaction.commit(Durability::Durable) {
                eprintln!("{error}");
                return first.max(1);
            }
        }
        records
    });
}

fn point_reads(store: &Store, records: u64, threads: u64) {
    report(&format!("point reads by index, {threads} threads"), || {
        let total = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..threads {
                let total = &total;
                scope.spawn(move || {
                    let end = Instant::now() + RUN;
                    let (mut count, mut random) = (0, seed);
                    while Instant::now() < end {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let at = (random >> 20) % records;
                        let snapshot = store.snapshot();
                        let entry = snapshot.get(Space::Index, &key(2, at.wrapping_mul(0x9E3779B97F4A7C15)));
                        let found = matches!(entry, Ok(Some(_)))
                            && matches!(snapshot.get(Space::Records, &key(1, at)), Ok(Some(_)));
                        assert!(found, "record {at} is missing");
                        count += 1;
                    }
                    total.fetch_add(count, Ordering::Relaxed);
                });
            }
        });
        total.into_inner()
    });
}

fn misses(store: &Store) {
    report("point misses in the index", || {
        let end = Instant::now() + RUN;
        let mut count = 0;
        while Instant::now() < end {
            assert!(matches!(store.snapshot().get(Space::Index, &key(3, count)), Ok(None)));
            count += 1;
        }
        count
    });
}

fn scan(store: &Store, direction: Direction) {
    for round in ["first", "again"] {
        report(&format!("scan of 1 KB records, {direction:?}, {round}"), || {
            let (lower, upper) = (key(1, 0), key(2, 0));
            let rows = store.snapshot().scan(
                Space::Records,
                Bound::Included(&lower),
                Bound::Excluded(&upper),
                direction,
            );
            let mut bytes = 0;
            let mut count = 0;
            for row in rows {
                bytes += row.map_or(0, |(_, value)| value.len());
                count += 1;
            }
            assert!(bytes > 0);
            count
        });
    }
}

fn ingest(store: &Store) {
    report("ingestion of index keys", || {
        let keys = (0..1_000_000u64).map(|at| (key(9, at).to_vec(), Vec::new()));
        match store.ingest(Space::Index, keys) {
            Ok(()) => 1_000_000,
            Err(error) => {
                eprintln!("{error}");
                1
            }
        }
    });
}

/// An index of a million entries in its tree, and tables in memory that are nearly full, with a tenth as many entries
/// between those of the tree and records beside them.
fn range(store: &Store) {
    const ENTRIES: u64 = 1_000_000;
    let keys = (0..ENTRIES).map(|at| (key(11, at * 16).to_vec(), at.to_be_bytes().to_vec()));
    if let Err(error) = store.ingest(Space::Index, keys) {
        eprintln!("{error}");
        return;
    }
    let count = |name: &str| {
        report(&format!("index range, {name}"), || {
            let (lower, upper) = (key(11, 0), key(12, 0));
            let bounds = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
            let rows = store.snapshot().scan(Space::Index, bounds.0, bounds.1, Direction::Forward);
            rows.filter(|row| row.is_ok()).count() as u64
        });
    };
    count("from disk");
    count("tables empty");
    for first in (0..ENTRIES / 10).step_by(1000) {
        let mut transaction = store.begin();
        for at in first..first + 1000 {
            let scattered = at * 7_919_317 % ENTRIES;
            transaction.put(Space::Index, key(11, scattered * 16 + 5), at.to_be_bytes());
            transaction.put(Space::Records, key(11, at), record(at).split_off(400));
        }
        if let Err(error) = transaction.commit(Durability::Relaxed) {
            eprintln!("{error}");
            return;
        }
    }
    count("tables full");
    count("tables full");
}

/// Durable commits of one writer: while nothing else happens, and while a checkpoint merges what random inserts have left
/// in memory.
fn commits_beside_checkpoints(store: &Store) {
    const ROUNDS: u64 = 5;
    let mut next = 0u64;
    let mut commit = || {
        let began = Instant::now();
        let mut transaction = store.begin();
        transaction.put(Space::Records, key(13, next), record(next));
        next += 1;
        if let Err(error) = transaction.commit(Durability::Durable) {
            eprintln!("{error}");
        }
        began.elapsed()
    };
    let (mut quiet, mut beside, mut length) = (Vec::new(), Vec::new(), Duration::ZERO);
    for round in 0..ROUNDS {
        for first in (0..60_000).step_by(1000) {
            let mut transaction = store.begin();
            for at in first..first + 1000 {
                let at: u64 = round * 60_000 + at;
                transaction.put(Space::Records, key(14, at.wrapping_mul(0x9E37_79B9_7F4A_7C15)), record(at));
            }
            if let Err(error) = transaction.commit(Durability::Relaxed) {
                eprintln!("{error}");
                return;
            }
        }
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            quiet.push(commit());
        }
        std::thread::scope(|scope| {
            let began = Instant::now();
            let checkpoint = scope.spawn(|| store.checkpoint());
            while !checkpoint.is_finished() {
                beside.push(commit());
            }
            length += began.elapsed();
            if let Ok(Err(error)) = checkpoint.join() {
                eprintln!("{error}");
            }
        });
    }
    println!("checkpoint of 60 MB       {:>10.3} s", (length / ROUNDS as u32).as_secs_f64());
    for (name, times) in [("beside nothing", &mut quiet), ("beside a checkpoint", &mut beside)] {
        times.sort_unstable();
        let at = |share: f64| {
            times[((times.len() as f64 * share) as usize).min(times.len() - 1)].as_secs_f64() * 1e3
        };
        println!(
            "durable commits {name:<22} p50 {:>7.3} ms, p99 {:>7.3} ms, longest {:>7.3} ms of {}",
            at(0.5),
            at(0.99),
            at(1.0),
            times.len()
        );
    }
}
