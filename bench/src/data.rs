//! The documents that both servers get: about 1 KB each, a function of their number.

use kilim_bson::{Document, doc};
use kilim_testkit::link::{Fault, Link};

pub const DATABASE: &str = "bench";
pub const DOCS: &str = "docs";

const WORDS: [&str; 32] = [
    "amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll",
    "ledge", "marsh", "notch", "oasis", "plain", "quarry", "ridge", "slope", "trail", "upland", "vale",
    "wharf", "yard", "arch", "bridge", "canal", "dune", "estuary", "forest", "glade", "harbor",
];
const TEXT_BYTES: usize = 850;

/// A mixing function with an inverse, so that different numbers stay different.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// A permutation of `0..count`, so that a secondary key is unique and unrelated to the order of insertion.
/// `count` is a power of ten, to which the factor is coprime.
pub fn scattered(id: u32, count: u32) -> u32 {
    (u64::from(id) * 7_919_317 % u64::from(count)) as u32
}

fn text(seed: u64) -> String {
    let mut text = String::with_capacity(TEXT_BYTES + 8);
    let mut at = seed;
    while text.len() < TEXT_BYTES {
        at = mix(at.wrapping_add(0x9e37_79b9_7f4a_7c15));
        text.push_str(WORDS[at as usize % WORDS.len()]);
        // Numbers keep the text from compressing to nothing.
        text.push_str(&format!(" {} ", at >> 32 & 0xffff));
    }
    text.truncate(TEXT_BYTES);
    text
}

/// `k` is unique and scattered, `s` is the same in one of a hundred, `batch` in a thousand neighbours.
pub fn document(id: u32, count: u32) -> Document {
    doc! {
        "_id": id as i32,
        "k": scattered(id, count) as i32,
        "s": (id % 100) as i32,
        "batch": (id / 1000) as i32,
        "n": 0,
        "name": format!("item {}", mix(u64::from(id)) % 1_000_000),
        "price": (mix(u64::from(id)) % 100_000) as f64 / 100.0,
        "text": text(u64::from(id)),
    }
}

/// Inserts the documents `from..to` in batches, acknowledged without waiting for each sync.
pub fn fill(link: &mut Link, collection: &str, from: u32, to: u32, count: u32) -> Result<(), Fault> {
    for start in (from..to).step_by(1000) {
        let documents: Vec<Document> =
            (start..(start + 1000).min(to)).map(|id| document(id, count)).collect();
        let insert = doc! {"insert": collection, "documents": documents, "ordered": false};
        link.run(DATABASE, insert)?;
    }
    Ok(())
}

pub fn create_index(link: &mut Link, collection: &str, field: &str) -> Result<(), Fault> {
    let index = doc! {"key": {field: 1}, "name": format!("{field}_1")};
    link.run(DATABASE, doc! {"createIndexes": collection, "indexes": [index]}).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_about_a_kilobyte_and_keys_are_a_permutation() {
        assert!((900..1100).contains(&document(7, 1000).as_bytes().len()));
        let mut keys: Vec<u32> = (0..1000).map(|id| scattered(id, 1000)).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..1000).collect::<Vec<_>>());
    }
}
