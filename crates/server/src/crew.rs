//! The threads that serve connections. Each serves one connection at a time.
//!
//! A thread whose connection has ended, or waits in the room, stays for a moment and takes the next connection that needs
//! one. So a thousand streams that wait are a thousand small objects in the heaps of the few threads that began them. A
//! heap and a stack for each of them would take several times as much.
//!
//! Invariant: work that was accepted is run, also while the crew closes.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use parking_lot::Mutex;

use crate::limits::{FREE_FOR, STACK_BYTES};

type Work = Box<dyn FnOnce() + Send>;

pub(crate) struct Crew {
    /// Where to send work for the threads that have none. The last one has become free last, and is asked first: the others may
    /// end. None once the crew has closed.
    free: Mutex<Option<Vec<Free>>>,
}

struct Free {
    thread: u64,
    work: Sender<Work>,
}

thread_local! {
    static SERVED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The number of the connection that this thread serves.
pub fn served_connection() -> Option<u64> {
    SERVED.get()
}

/// Says which connection this thread serves from now on.
pub(crate) fn note_served(connection: Option<u64>) {
    SERVED.set(connection);
}

impl Crew {
    pub(crate) fn new() -> Arc<Crew> {
        Arc::new(Crew { free: Mutex::new(Some(Vec::new())) })
    }

    /// Serves connection `id` on a thread of the crew, a new one if none is free. If none can be had, `work` is dropped.
    pub(crate) fn serve(self: &Arc<Crew>, id: u64, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut work: Work = Box::new(move || {
            note_served(Some(id));
            work();
            note_served(None);
        });
        let free = self.free.lock().as_mut().and_then(Vec::pop);
        if let Some(free) = free {
            match free.work.send(work) {
                Ok(()) => return Ok(()),
                // A thread that is in the list waits for work, unless the process ends.
                Err(refused) => work = refused.0,
            }
        }
        let crew = self.clone();
        // Threads are numbered by the first connection that they serve.
        let run = move || crew.run(id, work);
        thread::Builder::new().name(format!("conn-{id}")).stack_size(STACK_BYTES).spawn(run)?;
        Ok(())
    }

    /// A thread's life.
    fn run(&self, thread: u64, first: Work) {
        first();
        loop {
            let (work, inbox) = channel();
            match &mut *self.free.lock() {
                Some(free) => free.push(Free { thread, work }),
                None => return,
            }
            match self.next(thread, &inbox) {
                Some(work) => work(),
                None => return,
            }
        }
    }

    /// The next work of a thread that is in the list. None if it shall end.
    fn next(&self, thread: u64, inbox: &Receiver<Work>) -> Option<Work> {
        if let Ok(work) = inbox.recv_timeout(FREE_FOR) {
            return Some(work);
        }
        if let Some(free) = &mut *self.free.lock() {
            free.retain(|free| free.thread != thread);
        }
        // Somebody may have taken it from the list and is about to send. If not, its sender is gone.
        inbox.recv().ok()
    }

    /// Has threads end that have no work.
    pub(crate) fn close(&self) {
        *self.free.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    /// Serves so many connections at once; the threads that did it.
    fn serve(crew: &Arc<Crew>, ids: std::ops::Range<u64>) -> HashSet<thread::ThreadId> {
        let (done, threads) = channel();
        let (gates, count): (Vec<_>, _) = (Vec::new(), ids.end - ids.start);
        let mut gates = gates;
        for id in ids {
            let (gate, closed) = channel::<()>();
            gates.push(gate);
            let done = done.clone();
            let work = move || {
                assert_eq!(served_connection(), Some(id));
                done.send(thread::current().id()).unwrap();
                let _ = closed.recv();
            };
            crew.serve(id, work).unwrap();
        }
        let found: HashSet<_> = (0..count).map(|_| threads.recv().unwrap()).collect();
        drop(gates);
        found
    }

    fn until_free(crew: &Crew, count: usize) {
        while crew.free.lock().as_ref().map_or(0, Vec::len) != count {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_that_is_free_serves_the_next_connection() {
        let crew = Crew::new();
        let first = serve(&crew, 1..4);
        assert_eq!(first.len(), 3, "each connection has a thread of its own");
        until_free(&crew, 3);
        let second = serve(&crew, 4..6);
        assert!(second.is_subset(&first) && second.len() == 2, "{second:?} of {first:?}");
        until_free(&crew, 3);
        assert_eq!(serve(&crew, 6..10).difference(&first).count(), 1);
        until_free(&crew, 4);
        // Nobody needs them: they end.
        until_free(&crew, 0);
        let last = serve(&crew, 10..11);
        assert!(last.is_disjoint(&first));
    }

    #[test]
    fn a_closed_crew_has_no_free_threads_and_still_serves() {
        let crew = Crew::new();
        serve(&crew, 1..3);
        until_free(&crew, 2);
        crew.close();
        assert_eq!(serve(&crew, 3..4).len(), 1);
        while Arc::strong_count(&crew) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
