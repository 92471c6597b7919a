//! A state of the file that is held, to be copied while the store goes on.

use super::TreeBackend;
use super::open::read_free_map;
use crate::backup::Held;
use kilim_error::{Result, StorageError};

impl TreeBackend {
    /// Holds the newest state of the file. It is whole without the journal only if nothing is half merged.
    pub(super) fn hold_state(&self) -> Result<Held> {
        let turn = self.turn.lock();
        self.damage.lock().check_none()?;
        let (forest, is_merging) = {
            let state = self.state.read();
            (state.forest.clone(), state.frozen.is_some())
        };
        if turn.broken || is_merging {
            let what = "the last checkpoint failed, so there is no whole state to copy; the log says why";
            return Err(StorageError::Io(what.into()).into());
        }
        let free = read_free_map(&self.file, &turn.durable)?;
        Ok(Held::new(self.file.clone(), forest, turn.durable, &free))
    }
}
