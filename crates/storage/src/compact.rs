//! Compaction on request: the trees of a collection written anew, and what that frees given back.

use crate::space::Space;
use crate::store::Store;
use kilim_error::Result;

/// What the store took on disk before a compaction and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    pub bytes_before: u64,
    pub bytes_after: u64,
}

impl Compacted {
    pub fn freed_bytes(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after)
    }
}

impl Store {
    /// Writes the trees with these prefixes anew, densely and near the beginning of the file, and gives all free
    /// space back to the file system. Readers and writers go on. What an older snapshot still reads is given back
    /// when that ends. `pace` is told how much is done and how much there is; an error of it ends the work, and what
    /// is done by then stays done.
    pub fn compact(
        &self,
        prefixes: &[(Space, [u8; 4])],
        pace: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Compacted> {
        let bytes_before = self.disk_bytes();
        self.checkpoint()?;
        let shared = self.shared();
        shared.free_space.check()?;
        shared.backend.compact(prefixes, &mut |step| shared.exclusively(step), pace)?;
        Ok(Compacted { bytes_before, bytes_after: self.disk_bytes() })
    }
}
