//! The library's own speed: point reads in process, and durable inserts beside what the storage engine does by itself.
//!
//! `cargo run --release -p kilim-bench --bin embedded -- [directory] [documents]`. Library and storage write in short
//! turns, so that what drifts hits both, and medians over the turns are printed. Beside the time that passed stands
//! the processor's: on a machine that others use too, that one compares.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kilim::bson::{Document, RawDocumentBuf, doc};
use kilim::{Collection, Database};
use kilim_storage::{Durability, Options, Space, Store, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;

/// What the server uses. A program that embeds the library chooses its own, and a read makes some thirty small
/// allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DOCUMENTS: u32 = 100_000;
const READ_TURNS: u32 = 10;
const INSERT_TURNS: u32 = 100;
const INSERTS_A_TURN: u32 = 25;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let given = arguments.next().map(PathBuf::from);
    let count = arguments.next().map_or(Ok(DOCUMENTS), |count| count.parse())?;
    let own = tempfile::tempdir().context("no temporary directory")?;
    let directory = given.as_deref().unwrap_or(own.path());
    let database = Database::open(directory.join("library"))?;
    let documents = database.collection::<Document>("documents");
    for first in (0..count).step_by(1000) {
        documents.insert_many((first..count.min(first + 1000)).map(document)).run()?;
    }

    let mut random = SmallRng::seed_from_u64(1);
    let (structs, raw_documents) = (documents.of_type::<Item>(), documents.of_type::<RawDocumentBuf>());
    let (mut as_document, mut as_struct, mut raw) = (Turns::default(), Turns::default(), Turns::default());
    for _ in 0..READ_TURNS {
        as_document.push(reads(&documents, count, &mut random)?);
        as_struct.push(reads(&structs, count, &mut random)?);
        raw.push(reads(&raw_documents, count, &mut random)?);
    }
    println!("point read, as Document         {as_document}");
    println!("point read, as a struct         {as_struct}");
    println!("point read, as RawDocumentBuf   {raw}");

    // As full as the library's, so that both write into the same sizes of trees.
    let store = Store::open(&directory.join("storage"), Options::default())?;
    for first in (0..count).step_by(1000) {
        let mut transaction = store.begin();
        (first..count.min(first + 1000)).try_for_each(|id| put(&mut transaction, id))?;
        transaction.commit(Durability::Durable)?;
    }
    let (mut library, mut storage) = (Turns::default(), Turns::default());
    for turn in 0..INSERT_TURNS {
        let first = count + turn * INSERTS_A_TURN;
        let by_library = || {
            timed(INSERTS_A_TURN, |n| {
                documents.insert_one(document(first + n)).run()?;
                Ok(())
            })
        };
        let by_storage = || {
            timed(INSERTS_A_TURN, |n| {
                let mut transaction = store.begin();
                put(&mut transaction, first + n)?;
                transaction.commit(Durability::Durable)?;
                Ok(())
            })
        };
        if turn % 2 == 0 {
            library.push(by_library()?);
            storage.push(by_storage()?);
        } else {
            storage.push(by_storage()?);
            library.push(by_library()?);
        }
    }
    println!("durable insert, library         {library}");
    println!("durable insert, storage alone   {storage}");
    println!(
        "library / storage               {:>9.2} elapsed  {:>9.2} CPU",
        library.elapsed() / storage.elapsed(),
        library.cpu() / storage.cpu()
    );
    Ok(())
}

/// About half a kilobyte.
fn document(id: u32) -> Document {
    let id = id as i32;
    doc! {"_id": id, "name": format!("document {id}"), "group": id % 100, "price": f64::from(id) / 3.0, "text": "x".repeat(400)}
}

/// The same for those who know what is in it.
#[derive(Deserialize)]
#[expect(dead_code, reason = "what counts is that it was read")]
struct Item {
    #[serde(rename = "_id")]
    id: i32,
    name: String,
    group: i32,
    price: f64,
    text: String,
}

/// As many reads as there are documents.
fn reads<T: serde::de::DeserializeOwned>(
    documents: &Collection<T>,
    count: u32,
    random: &mut SmallRng,
) -> Result<Cost> {
    timed(count, |_| {
        let found = documents.find_one(doc! {"_id": random.random_range(0..count) as i32}).run()?;
        found.map(drop).context("a document is missing")
    })
}

/// What an insert puts into storage: the record, the key of `_id`, the count.
fn put(transaction: &mut Transaction, id: u32) -> Result<()> {
    let bytes = kilim::bson::serialize_to_vec(&document(id))?;
    let key = id.to_be_bytes();
    transaction.add(b"count", 1, bytes.len() as i64);
    transaction.put(Space::Records, key.to_vec(), bytes);
    transaction.put(Space::Index, key.to_vec(), key.to_vec());
    Ok(())
}

/// What one operation took.
#[derive(Clone, Copy)]
struct Cost {
    elapsed: Duration,
    cpu: Duration,
}

/// Runs so many; what one of them took.
fn timed(count: u32, mut one: impl FnMut(u32) -> Result<()>) -> Result<Cost> {
    let (start, cpu) = (Instant::now(), cpu());
    for n in 0..count {
        one(n)?;
    }
    Ok(Cost { elapsed: start.elapsed() / count, cpu: (self::cpu() - cpu) / count })
}

/// The processor time of all of the process's threads so far.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which is there until it returns.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[derive(Default)]
struct Turns(Vec<Cost>);

impl Turns {
    fn push(&mut self, cost: Cost) {
        self.0.push(cost);
    }

    fn elapsed(&self) -> f64 {
        self.median(|cost| cost.elapsed)
    }

    fn cpu(&self) -> f64 {
        self.median(|cost| cost.cpu)
    }

    /// In microseconds.
    fn median(&self, figure: impl Fn(&Cost) -> Duration) -> f64 {
        let mut sorted: Vec<Duration> = self.0.iter().map(figure).collect();
        sorted.sort_unstable();
        sorted[sorted.len() / 2].as_secs_f64() * 1e6
    }
}

impl std::fmt::Display for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>9.2} µs elapsed {:>8.2} µs CPU", self.elapsed(), self.cpu())
    }
}
