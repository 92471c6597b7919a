//! Attacks on the tree backend: random lives under mishaps, and damage to its files.
//!
//! [`world`] is a life that follows from a seed, [`model`] what it should lead to, [`structure`] a full check of the
//! file, [`corruption`] the damage, [`lying`] disks that say what is not so, [`findings`] what all of it has found. The tests here are short, for every run; `cargo xtask trust --seconds N` runs
//! the same code for long, from a seed of choice. A seed that found something becomes a named test.

mod corruption;
mod findings;
mod lying;
mod model;
mod structure;
mod world;

use lying::Lie;
use std::time::{Duration, Instant};
use world::World;

/// The lives of the short form.
const SHORT: u64 = 100;

/// The stores that the short form damages, and how often it damages each.
const SHORT_SUBJECTS: u64 = 20;
const DAMAGES: u64 = 25;

/// The lives of the short form that end on a disk that lies.
const SHORT_LIES: u64 = 200;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_store_keeps_its_promises_whatever_happens_to_its_disk() {
    for seed in 0..SHORT {
        World::new(seed).run();
    }
}

#[test]
fn damage_to_a_file_is_found_or_harmless() {
    for seed in 0..SHORT_SUBJECTS {
        corruption::check(seed, DAMAGES);
    }
}

#[test]
fn a_write_that_lands_elsewhere_is_found_or_leaves_an_earlier_commit() {
    for seed in 0..SHORT_LIES {
        lying::check(seed, Lie::Misdirected);
    }
}

#[test]
fn syncs_that_were_not_done_are_found_or_leave_an_earlier_commit() {
    for seed in 0..SHORT_LIES {
        lying::check(seed, Lie::NotSynced);
    }
}

/// `cargo xtask trust --cases N --seed N`
#[test]
#[ignore = "the long form, run by `cargo xtask trust`"]
fn trust_lies() {
    let cases = number("KILIM_TRUST_CASES").unwrap_or(10_000);
    let first = number("KILIM_TRUST_SEED").unwrap_or(1_000_000);
    let mut failed = Vec::new();
    for lie in [Lie::Misdirected, Lie::NotSynced] {
        let mut total = corruption::Tally::default();
        for seed in first..first + cases {
            match std::panic::catch_unwind(|| lying::check(seed, lie)) {
                Ok(tally) => total.add(tally),
                Err(_) => failed.push((lie, seed)),
            }
            if failed.len() == 10 {
                break;
            }
        }
        println!("{lie:?} from seed {first}: {total:?}");
    }
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}

/// `cargo xtask trust --seconds N --seed N`
#[test]
#[ignore = "the long form, run by `cargo xtask trust`"]
fn trust_lives() {
    let seconds = number("KILIM_TRUST_SECONDS").unwrap_or(60);
    let first = number("KILIM_TRUST_SEED").unwrap_or(1_000_000);
    let count = number("KILIM_TRUST_COUNT").unwrap_or(u64::MAX);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut seed, mut checkpoints, mut starts) = (first, 0, 0);
    let mut failed = Vec::new();
    while Instant::now() < end && seed - first < count && failed.len() < 10 {
        match std::panic::catch_unwind(|| World::new(seed).run()) {
            Ok((made, opened)) => {
                checkpoints += made;
                starts += opened;
            }
            Err(_) => failed.push(seed),
        }
        seed += 1;
    }
    println!("{} lives from seed {first}: {checkpoints} checkpoints, {starts} starts", seed - first);
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}

/// `cargo xtask trust --cases N --seed N`
#[test]
#[ignore = "the long form, run by `cargo xtask trust`"]
fn trust_damage() {
    let cases = number("KILIM_TRUST_CASES").unwrap_or(10_000);
    let first = number("KILIM_TRUST_SEED").unwrap_or(1_000_000);
    let (mut total, mut failed) = (corruption::Tally::default(), Vec::new());
    for seed in first..first + cases.div_ceil(DAMAGES) {
        match std::panic::catch_unwind(|| corruption::check(seed, DAMAGES)) {
            Ok(tally) => total.add(tally),
            Err(_) => failed.push(seed),
        }
        if failed.len() == 10 {
            break;
        }
    }
    println!("damage from seed {first}: {total:?}");
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}
