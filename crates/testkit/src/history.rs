//! Histories: many clients at once, kills in between, and a search for anomalies in what they saw.
//!
//! A history is plain data, so each checker is a pure function and is proven twice: it passes on what
//! a correct server gives, and it fails on a history with a fault put in by hand.
//!
//! - [`bank`]: transfers conserve the total in every snapshot, and the ledger explains every balance.
//! - [`list_append`]: appends reveal the order of versions, so cycles between transactions show; those that
//!   snapshot isolation forbids are anomalies.
//! - [`maintained`]: what declared patterns maintain equals what is computed from the rest, in every snapshot.
//! - [`unique_key`]: many race for few unique values; no value has two holders, none is lost.

pub mod bank;
pub mod cycle;
pub mod list_append;
pub mod maintained;
pub mod pressure;
pub mod unique_key;

pub use pressure::{Plan, Report};
