//! Clients that do not behave: unfinished messages, unread replies, garbage, and those that vanish.
//!
//! Each step makes a connection of its own and ends it without a word. What the server holds for such a client must go
//! with the connection.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use kilim_bson::doc;
use rand::rngs::StdRng;
use rand::{Rng, RngCore};

use super::{DATABASE, Step, loads};
use crate::link::{Fault, Link, message};

pub(super) const ALL: &[(&str, Step)] =
    &[("unfinished messages", leave_unfinished), ("unread replies", leave_unread), ("garbage", send_garbage)];

/// Another connection to the same server.
fn beside(link: &Link) -> Result<TcpStream, Fault> {
    let stream = TcpStream::connect(link.peer()?)?;
    // A full buffer is what is wanted; waiting for room in it is not.
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    Ok(stream)
}

/// Some wait before they vanish.
fn pause(rng: &mut StdRng) {
    std::thread::sleep(Duration::from_millis(rng.random_range(1..300)));
}

fn leave_unfinished(link: &mut Link, rng: &mut StdRng, _: u64) -> Result<(), Fault> {
    let mut stream = beside(link)?;
    let text = "x".repeat(rng.random_range(10..3_000_000));
    let whole = message(&doc! {"insert": "unfinished", "documents": [{"text": text}], "$db": DATABASE});
    let part = rng.random_range(1..whole.len());
    // A server that hangs up on such a client is right.
    let _ = stream.write_all(&whole[..part]);
    pause(rng);
    Ok(())
}

fn leave_unread(link: &mut Link, rng: &mut StdRng, _: u64) -> Result<(), Fault> {
    let mut stream = beside(link)?;
    let find = doc! {"find": loads::DOCS, "batchSize": 100_000, "$db": DATABASE};
    let slow = doc! {"aggregate": loads::DOCS, "$db": DATABASE, "cursor": {}, "pipeline": [
        {"$unwind": "$list"}, {"$sort": {"text": 1}}, {"$group": {"_id": "$text", "all": {"$push": "$$ROOT"}}},
    ]};
    let question = message(if rng.random_bool(0.5) { &find } else { &slow });
    for _ in 0..rng.random_range(1..5) {
        if stream.write_all(&question).is_err() {
            break;
        }
    }
    pause(rng);
    Ok(())
}

fn send_garbage(link: &mut Link, rng: &mut StdRng, _: u64) -> Result<(), Fault> {
    let mut stream = beside(link)?;
    let mut bytes = message(&doc! {"find": loads::DOCS, "$db": DATABASE});
    match rng.random_range(0..3) {
        0 => rng.fill_bytes(&mut bytes),
        // A length that is not so, or a flipped byte.
        1 => rng.fill_bytes(&mut bytes[..4]),
        _ => {
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
    }
    let _ = stream.write_all(&bytes);
    pause(rng);
    Ok(())
}
