//! What the messages of all connections hold in memory.
//!
//! A message that is being read and a reply that is being written each hold their bytes. One connection is bounded by the
//! length of a message, but thousands of clients that send half a message, or never read their replies, are not. So large
//! messages take a share of one budget. A connection takes the share for the whole message before it reads more than its
//! beginning, so nobody waits for more while holding some. Where there is none left it waits, and connections that hold a
//! share and have not moved a byte for a while are cut. A reply is in memory when its size is known, so it goes beyond the
//! budget rather than wait for long, and others are cut ([`Memory::wants`]; the connection says when it
//! is stalled). It was made by an operation, which took its memory within the bound of the process, and it is not copied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The budget.
#[derive(Debug)]
pub(crate) struct Memory {
    max: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// What connections wait for.
    wanted: usize,
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(max: usize) -> Arc<Memory> {
        Arc::new(Memory { max, state: Mutex::default(), freed: Condvar::new() })
    }

    /// Takes a share, waiting for others to give theirs back; none if that takes too long.
    pub(crate) fn take(self: &Arc<Memory>, bytes: usize, patience: Duration) -> Option<Share> {
        let mut state = self.state.lock();
        // One message is always let through, however small the budget.
        let fits = |state: &State| state.used + bytes <= self.max || state.used == 0;
        if !fits(&state) {
            let deadline = Instant::now() + patience;
            state.wanted += bytes;
            while !fits(&state) && !self.freed.wait_until(&mut state, deadline).timed_out() {}
            state.wanted -= bytes;
            if !fits(&state) {
                return None;
            }
        }
        state.used += bytes;
        Some(Share { memory: self.clone(), bytes })
    }

    /// Takes a share for what is in memory already. It waits for a moment, but not for long: that would save nothing.
    pub(crate) fn take_anyway(self: &Arc<Memory>, bytes: usize, patience: Duration) -> Share {
        self.take(bytes, patience).unwrap_or_else(|| {
            self.state.lock().used += bytes;
            Share { memory: self.clone(), bytes }
        })
    }

    pub(crate) fn used(&self) -> usize {
        self.state.lock().used
    }

    /// What is missing now: what connections wait for, and what was taken beyond the budget.
    pub(crate) fn wants(&self) -> usize {
        let state = self.state.lock();
        state.wanted + state.used.saturating_sub(self.max)
    }
}

impl Share {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.state.lock().used -= self.bytes;
        self.memory.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_waits_for_others_and_not_for_ever() {
        let memory = Memory::new(100);
        let first = memory.take(60, Duration::ZERO).expect("there is room");
        assert!(memory.take(60, Duration::from_millis(10)).is_none());
        assert_eq!(memory.wants(), 0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| memory.take(60, Duration::from_secs(10)).is_some());
            while memory.wants() == 0 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn a_message_larger_than_the_budget_goes_alone() {
        let memory = Memory::new(10);
        let large = memory.take(1000, Duration::ZERO).expect("nobody else holds any");
        assert!(memory.take(1, Duration::ZERO).is_none());
        drop(large);
        assert!(memory.take(1, Duration::ZERO).is_some());
    }
}
