//! A disk in memory under a whole store, for tests of what lies above: the power can go after any change to its files.
//!
//! [`MemoryDisk`](crate::MemoryDisk) keeps maps and stops between commits. This one keeps the files of a real store, with
//! its journal, its trees and its checkpoints, and tells a test of each write, sync and change of names. The test can
//! take from any such [`Moment`] the disk that a loss of power or a death of the process would leave.

use crate::disk::Disk;
use crate::disk::memory::{Dice, Image, MemoryDisk};
use crate::store::{Options, Store};
use kilim_error::Result;
use std::sync::Arc;

/// Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimulatedDisk {
    disk: MemoryDisk,
}

/// A disk as it is just after a change.
pub struct Moment<'a> {
    image: &'a Image,
}

impl SimulatedDisk {
    /// Opens the store on it, or makes one. Nothing keeps two from being open at a time.
    pub fn open(&self, options: Options) -> Result<Store> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        Store::open_on(disk, options, None)
    }

    /// From now on this is told of each change, by the thread that makes it. Other changes wait meanwhile.
    pub fn watch(&self, mut watcher: impl FnMut(Moment<'_>) + Send + 'static) {
        self.disk.watch(move |image| watcher(Moment { image }));
    }
}

impl Moment<'_> {
    /// What a loss of power leaves: all that was synced, and of the rest a choice by dice, sector by sector.
    pub fn power_cut(&self, seed: u64) -> SimulatedDisk {
        SimulatedDisk { disk: self.image.power_cut(&mut Dice(seed)) }
    }

    /// What a death of the process leaves: all that was written.
    pub fn kill(&self) -> SimulatedDisk {
        SimulatedDisk { disk: self.image.disk() }
    }
}
