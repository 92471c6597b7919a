//! Crashes: what a server has acknowledged is there after any of them, and nothing is half there.
//!
//! Three ways to die, one way to look. `kill -9` at random ([`kill_rounds`]) tries recovery under
//! concurrency but keeps the page cache, so it proves nothing about fsync; the preload shim
//! ([`Shim`], `shim/shim.c`) records writes and syncs, and [`power_loss`] rebuilds the directory as it
//! was at each sync and opens it; faults that the shim injects ([`full_disk`], [`failed_sync`]) try what
//! happens while the server lives. Afterwards [`workload`] compares the database with what its clients
//! remember.

pub mod faults;
pub mod log;
pub mod rebuild;
pub mod runs;
pub mod shim;
pub mod workload;

pub use faults::{failed_sync, full_disk, full_disk_by_surprise};
pub use runs::{KillPlan, PowerPlan, Summary, kill_rounds, power_loss};
pub use shim::Shim;
