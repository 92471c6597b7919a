//! Fuzz targets: what must hold whatever the bytes are.
//!
//! The same functions run in two ways. `instrumented` gives them to libFuzzer, which learns from coverage:
//! `cargo xtask fuzz`, for as long as one likes. `tests/bounded.rs` gives them the specs' questions, changed at random
//! from a fixed seed ([`mutation`]): a part of every test run, the same inputs each time.
//!
//! Most targets take extended JSON: a fuzzer changes text more cleverly than lengths within lengths, and a finding can
//! be read.

pub mod mutation;
mod patience;
mod subject;
pub mod target;

pub use patience::patient;
pub use subject::{document, subjects, walk};
