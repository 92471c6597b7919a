//! The waiting room: connections whose request waits for news, kept by one thread for all of them.
//!
//! A change stream waits most of its life. With a thread for each, an event to a thousand of them would change threads two
//! thousand times: once to send it, once to read the next `getMore`. The keeper of the room sends and reads for all its
//! guests in turn. Their own threads sleep meanwhile, and each gets its connection back as soon as the client asks for
//! anything else, takes its reply too slowly, or asks for what takes long: nothing in here waits for one guest.
//!
//! Invariant: a connection is owned by its thread or by the keeper, never by both. Who drops a guest ends its connection.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use parking_lot::Mutex;
use tracing::warn;

use crate::connection::{Connection, Errand, Served, Turn};
use crate::limits::{LONG_ROUND, REST_AFTER};
use crate::service::Service;

/// Serves a connection on its own thread until it ends. A request that waits for news does so in the room.
pub(crate) fn serve<S: Service>(mut connection: Connection<S>, room: Option<&Room<S>>) -> io::Result<()> {
    let mut errand = Errand::Serve;
    while let Served::Waits = connection.serve(errand)? {
        // None only where the room has closed.
        let Some(back) = room.and_then(|room| room.host(connection)) else { return Ok(()) };
        (connection, errand) = back;
    }
    Ok(())
}

type Home<S> = (Connection<S>, Errand);

/// What threads see of the room.
pub(crate) struct Room<S: Service> {
    /// None once the keeper has gone.
    arrivals: Mutex<Option<Vec<Arrival<S>>>>,
    bell: Arc<Bell>,
    closing: AtomicBool,
}

struct Arrival<S: Service> {
    connection: Connection<S>,
    home: Sender<Home<S>>,
}

/// Wakes the keeper.
struct Bell {
    waker: mio::Waker,
    /// Guests whose wait may be over.
    called: Mutex<Vec<u64>>,
}

impl Bell {
    fn ring(&self) {
        if let Err(error) = self.waker.wake() {
            warn!(%error, "the waiting room cannot be woken");
        }
    }
}

/// Calls one guest.
struct Call {
    guest: u64,
    bell: Arc<Bell>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let mut called = self.bell.called.lock();
        called.push(self.guest);
        // The keeper takes all that it finds.
        if called.len() == 1 {
            drop(called);
            self.bell.ring();
        }
    }
}

impl<S: Service> Room<S> {
    pub(crate) fn open() -> io::Result<(Arc<Room<S>>, Keeper<S>)> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), BELL)?;
        let bell = Arc::new(Bell { waker, called: Mutex::default() });
        let arrivals = Mutex::new(Some(Vec::new()));
        let room = Arc::new(Room { arrivals, bell, closing: AtomicBool::new(false) });
        let keeper = Keeper {
            poll,
            room: room.clone(),
            guests: HashMap::new(),
            deadlines: BTreeSet::new(),
            line: VecDeque::new(),
        };
        Ok((room, keeper))
    }

    /// Has the keeper serve a connection whose request waits, and sleeps until it comes back. None if it does not.
    fn host(&self, connection: Connection<S>) -> Option<Home<S>> {
        let (home, back): (_, Receiver<Home<S>>) = channel();
        self.arrivals.lock().as_mut()?.push(Arrival { connection, home });
        self.bell.ring();
        match back.recv_timeout(REST_AFTER) {
            Ok(returned) => Some(returned),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                // Nothing is done between these two: it would take the memory again.
                kilim_memory::rest();
                back.recv().ok()
            }
        }
    }

    /// Ends the keeper's thread, and whoever is left in the room.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

/// The bell's token; those of guests are their connections' numbers, which begin with 1.
const BELL: Token = Token(0);

/// The room's thread.
pub(crate) struct Keeper<S: Service> {
    poll: Poll,
    room: Arc<Room<S>>,
    guests: HashMap<u64, Guest<S>>,
    /// When waits are over at the latest.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Guests with something to do. Each does one thing and stands in line again.
    line: VecDeque<u64>,
}

struct Guest<S: Service> {
    connection: Connection<S>,
    home: Sender<Home<S>>,
    waker: Waker,
    /// While its request waits.
    until: Option<Instant>,
}

impl<S: Service> Drop for Keeper<S> {
    /// However it ends, nobody waits for it.
    fn drop(&mut self) {
        *self.room.arrivals.lock() = None;
    }
}

impl<S: Service> Keeper<S> {
    pub(crate) fn keep(mut self) {
        // All guests would wait with it.
        kilim_memory::never_wait();
        let mut events = Events::with_capacity(1024);
        while !self.room.closing.load(Ordering::SeqCst) {
            let patience = match self.line.is_empty() {
                true => self.deadlines.first().map(|(at, _)| at.saturating_duration_since(Instant::now())),
                false => Some(Duration::ZERO),
            };
            if let Err(error) = self.poll.poll(&mut events, patience)
                && error.kind() != io::ErrorKind::Interrupted
            {
                warn!(%error, "the waiting room ends");
                return;
            }
            for event in &events {
                let id = event.token().0 as u64;
                if let Some(guest) = self.guests.get_mut(&id) {
                    guest.connection.note_input();
                    self.line.push_back(id);
                }
            }
            let called = std::mem::take(&mut *self.room.bell.called.lock());
            self.line.extend(called);
            let now = Instant::now();
            self.line.extend(self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id));
            let arrivals = self.room.arrivals.lock().as_mut().map(std::mem::take);
            arrivals.into_iter().flatten().for_each(|arrival| self.welcome(arrival));
            // Those who stand in line again have their turn behind whatever has come meanwhile.
            let begun = Instant::now();
            for _ in 0..self.line.len() {
                if let Some(id) = self.line.pop_front() {
                    self.serve(id, begun);
                }
            }
        }
    }

    fn welcome(&mut self, Arrival { connection, home }: Arrival<S>) {
        let id = connection.id;
        let descriptor = connection.peer.stream.as_raw_fd();
        let token = Token(id as usize);
        if let Err(error) =
            self.poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)
        {
            warn!(connection = id, %error, "the waiting room takes no more connections");
            return;
        }
        let waker = Waker::from(Arc::new(Call { guest: id, bell: self.room.bell.clone() }));
        let guest = Guest { connection, home, waker, until: None };
        self.guests.insert(id, guest);
        self.seat(id);
    }

    /// A guest's request waits. It is called when that may be over, at once if it is over already.
    fn seat(&mut self, id: u64) {
        let Some(guest) = self.guests.get_mut(&id) else { return };
        let Some(suspended) = guest.connection.suspended() else { return };
        suspended.leave_waker(&guest.waker);
        let until = suspended.until();
        if guest.until != Some(until) {
            if let Some(before) = guest.until.replace(until) {
                self.deadlines.remove(&(before, id));
            }
            self.deadlines.insert((until, id));
        }
        if suspended.is_over(Instant::now()) {
            self.line.push_back(id);
        }
    }

    /// Does what a guest has to do next: go on with the request that waited, or run the next one. In a round that has taken
    /// long already guests are sent home instead, where each is served by its own thread.
    fn serve(&mut self, id: u64, round_begun: Instant) {
        let Some(guest) = self.guests.get_mut(&id) else { return };
        let now = Instant::now();
        let is_crowded = now - round_begun > LONG_ROUND;
        let turn = match guest.connection.suspended() {
            // Called for nothing, or for bytes that have to wait. A waker is called once.
            Some(suspended) if !suspended.is_over(now) => return self.seat(id),
            Some(_) if is_crowded => guest.connection.leave(),
            Some(_) => guest.connection.resume(),
            None if !guest.connection.may_have_more() => return,
            None if is_crowded => guest.connection.leave(),
            None => guest.connection.read_on(),
        };
        if let Some(until) = guest.until.take() {
            self.deadlines.remove(&(until, id));
        }
        match turn {
            Turn::Idle => {}
            Turn::Waits => self.seat(id),
            Turn::Answered if guest.connection.may_have_more() => self.line.push_back(id),
            Turn::Answered => {}
            Turn::GoHome(errand) => self.send_home(id, errand),
        }
    }

    fn send_home(&mut self, id: u64, errand: Errand) {
        let Some(guest) = self.guests.remove(&id) else { return };
        let descriptor = guest.connection.peer.stream.as_raw_fd();
        if let Err(error) = self.poll.registry().deregister(&mut SourceFd(&descriptor)) {
            warn!(connection = id, %error, "a connection that leaves the waiting room is not let go");
        }
        // Its thread waits for it until the guest is dropped.
        let _ = guest.home.send((guest.connection, errand));
    }
}
