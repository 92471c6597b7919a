//! `fsync` with `lock`: nobody writes, so that the files can be copied.
//!
//! A command that writes enters before it begins and leaves when it is through. Locking waits for those that are inside and
//! keeps others out; then a thread has the store stand still until the last unlock. Commands that wait to enter give up
//! when their time is over. Jobs in the background do not enter: what they commit waits in the store.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kilim_error::{Error, ErrorCode, Result, StorageError};
use kilim_storage::Store;
use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{Condvar, Mutex, RawRwLock, RwLock};

use crate::operation::Operation;

/// Between two looks at whether an operation that waits is to end.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
pub struct FsyncLock {
    /// Shared by commands that write.
    writers: Arc<RwLock<()>>,
    /// One locks at a time.
    turn: Mutex<()>,
    still: Arc<Still>,
    held: Mutex<Held>,
}

/// A command that writes is inside.
pub type Entered = ArcRwLockReadGuard<RawRwLock, ()>;

#[derive(Default)]
struct Held {
    /// How often it was locked and not unlocked.
    count: u32,
    holder: Option<(ArcRwLockWriteGuard<RawRwLock, ()>, JoinHandle<()>)>,
}

/// What the thread that keeps the store still and the others tell each other.
#[derive(Default)]
struct Still {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Moving,
    Standing,
    Failed(Error),
    /// It is to move again.
    Released,
}

impl FsyncLock {
    /// Waits until nobody has locked, and keeps others from locking.
    pub fn enter(&self, operation: &Operation) -> Result<Entered> {
        loop {
            match self.writers.try_read_arc_for(LOOK) {
                Some(entered) => return Ok(entered),
                None => operation.check()?,
            }
        }
    }

    /// How often it is locked.
    pub fn count(&self) -> u32 {
        self.held.lock().count
    }

    /// Locks, and says how often it is locked then.
    pub fn lock(&self, store: &Store, operation: &Operation) -> Result<u32> {
        let _turn = loop {
            match self.turn.try_lock_for(LOOK) {
                Some(turn) => break turn,
                None => operation.check()?,
            }
        };
        if self.count() == 0 {
            let guard = loop {
                // Short turns: while one waits here, new writers wait behind it.
                match self.writers.try_write_arc_for(LOOK) {
                    Some(guard) => break guard,
                    None => operation.check()?,
                }
            };
            let holder = self.stand_still(store)?;
            self.held.lock().holder = Some((guard, holder));
        }
        let mut held = self.held.lock();
        held.count += 1;
        Ok(held.count)
    }

    /// Unlocks once, and says how often it is still locked.
    pub fn unlock(&self) -> Result<u32> {
        let mut held = self.held.lock();
        if held.count == 0 {
            return Err(Error::user(ErrorCode::IllegalOperation, "fsyncUnlock called when not locked"));
        }
        held.count -= 1;
        if held.count == 0 {
            self.release(&mut held);
        }
        Ok(held.count)
    }

    /// Ends all locks: the server ends.
    pub fn clear(&self) {
        let mut held = self.held.lock();
        held.count = 0;
        self.release(&mut held);
    }

    fn release(&self, held: &mut Held) {
        let Some((_guard, holder)) = held.holder.take() else { return };
        self.still.set(State::Released);
        if holder.join().is_err() {
            tracing::error!("the thread that kept the store still panicked");
        }
    }

    /// Has a thread keep the store still; returns once it stands.
    fn stand_still(&self, store: &Store) -> Result<JoinHandle<()>> {
        self.still.set(State::Moving);
        let (still, store) = (self.still.clone(), store.clone());
        let environment = store.environment().clone();
        let spawned = environment.spawn("kilim-fsync-lock", move || {
            let stood = store.stand_still(&mut || {
                still.set(State::Standing);
                still.wait(|state| matches!(state, State::Released));
            });
            if let Err(error) = stood {
                still.set(State::Failed(error));
            }
        });
        let holder = spawned.map_err(|error| StorageError::Io(format!("cannot start a thread: {error}")))?;
        match self.still.wait(|state| !matches!(state, State::Moving)) {
            Some(error) => {
                let _ = holder.join();
                Err(error)
            }
            None => Ok(holder),
        }
    }
}

impl Still {
    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Waits for a state; gives the error if that is one.
    fn wait(&self, is_reached: impl Fn(&State) -> bool) -> Option<Error> {
        let mut state = self.state.lock();
        while !is_reached(&state) {
            self.changed.wait(&mut state);
        }
        match &*state {
            State::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }
}
