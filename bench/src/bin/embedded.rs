//! The library's own speed: point reads in process, and durable inserts beside what the storage engine does by itself.
//!
//! `cargo run --release --bin embedded -- [directory]`. Rounds are interleaved; medians are printed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kilim::bson::{Document, RawDocumentBuf, doc};
use kilim::{Collection, Database};
use kilim_storage::{Durability, Options, Space, Store};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const DOCUMENTS: i32 = 100_000;
const READS: u32 = 100_000;
const INSERTS: u32 = 1_000;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let own = tempfile::tempdir().context("no temporary directory")?;
    let directory = given.as_deref().unwrap_or(own.path());
    let database = Database::open(directory.join("library"))?;
    let documents = database.collection::<Document>("documents");
    for first in (0..DOCUMENTS).step_by(1000) {
        documents.insert_many((first..first + 1000).map(document)).run()?;
    }
    let store = Store::open(&directory.join("storage"), Options::default())?;
    let mut random = SmallRng::seed_from_u64(1);
    let (mut typed, mut raw, mut library, mut storage) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        typed.push(reads(&documents, &mut random)?);
        raw.push(reads(&documents.of_type::<RawDocumentBuf>(), &mut random)?);
        let first = DOCUMENTS + (round as i32) * INSERTS as i32;
        library.push(timed(INSERTS, |n| {
            documents.insert_one(document(first + n as i32)).run()?;
            Ok(())
        })?);
        storage.push(timed(INSERTS, |n| put(&store, first as u32 + n))?);
    }
    let (library, storage) = (median(library), median(storage));
    println!("point read, as Document         {:>9.2?}", median(typed));
    println!("point read, as RawDocumentBuf   {:>9.2?}", median(raw));
    println!("durable insert, library         {library:>9.2?}");
    println!("durable insert, storage alone   {storage:>9.2?}");
    println!("library / storage               {:>9.2}", library.as_secs_f64() / storage.as_secs_f64());
    Ok(())
}

/// About half a kilobyte.
fn document(id: i32) -> Document {
    doc! {"_id": id, "name": format!("document {id}"), "group": id % 100, "price": f64::from(id) / 3.0, "text": "x".repeat(400)}
}

fn reads<T: serde::de::DeserializeOwned>(
    documents: &Collection<T>,
    random: &mut SmallRng,
) -> Result<Duration> {
    timed(READS, |_| {
        let found = documents.find_one(doc! {"_id": random.random_range(0..DOCUMENTS)}).run()?;
        found.map(drop).context("a document is missing")
    })
}

/// What an insert puts into storage: the record, the key of `_id`, the count.
fn put(store: &Store, id: u32) -> Result<()> {
    let bytes = kilim::bson::serialize_to_vec(&document(id as i32))?;
    let mut transaction = store.begin();
    let key = id.to_be_bytes();
    transaction.add(b"count", 1, bytes.len() as i64);
    transaction.put(Space::Records, key.to_vec(), bytes);
    transaction.put(Space::Index, key.to_vec(), key.to_vec());
    transaction.commit(Durability::Durable)?;
    Ok(())
}

/// The time of one of so many.
fn timed(count: u32, mut one: impl FnMut(u32) -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    for n in 0..count {
        one(n)?;
    }
    Ok(start.elapsed() / count)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
