//! The waiting room: connections whose request waits for news, kept by one thread for all of them.
//!
//! A change stream waits most of its life. With a thread for each, an event to a thousand of them would change threads two
//! thousand times: once to send it, once to read the next `getMore`. The keeper of the room sends and reads for all its
//! guests in turn, and no guest keeps a thread. A connection goes home, to a thread of the crew, as soon as the client asks
//! for anything else, takes its reply too slowly, or asks for what takes long: nothing in here waits for one guest.
//!
//! Invariant: a connection is owned by a thread of the crew or by the keeper, never by both. Who drops a guest ends its
//! connection.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::connection::{Connection, Errand, Served, Turn};
use crate::crew::{Crew, note_served};
use crate::limits::LONG_ROUND;
use crate::service::Service;
use crate::shared::Registered;

/// A connection with its place among the peers, which it gives up after its end.
pub(crate) struct Visitor<S: Service> {
    pub(crate) connection: Connection<S>,
    pub(crate) place: Registered<S>,
}

/// Serves a connection on a thread of the crew until it ends. Where a request waits for news, the connection goes to the room,
/// and the thread is free.
pub(crate) fn serve<S: Service>(mut visitor: Visitor<S>, errand: Errand, room: Option<&Arc<Room<S>>>) {
    let (connection, peer) = (visitor.connection.id, visitor.connection.peer.clone());
    let ended = match (visitor.connection.serve(errand), room) {
        // The room ends the connection if it has closed.
        (Ok(Served::Waits), Some(room)) => return room.host(visitor),
        (served, _) => served,
    };
    drop(visitor.connection);
    peer.stream.close();
    match ended {
        Ok(_) => debug!(connection, peer = %peer.address, "disconnected"),
        Err(error) => debug!(connection, peer = %peer.address, %error, "connection broke"),
    }
    // Whoever waits for its end hears of it last.
    drop(visitor.place);
}

/// What threads see of the room.
pub(crate) struct Room<S: Service> {
    /// None once the keeper has gone.
    arrivals: Mutex<Option<Vec<Visitor<S>>>>,
    bell: Arc<Bell>,
    closing: AtomicBool,
    /// Those who serve guests that go home.
    crew: Arc<Crew>,
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
    pub(crate) fn open(crew: Arc<Crew>) -> io::Result<(Arc<Room<S>>, Keeper<S>)> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), BELL)?;
        let bell = Arc::new(Bell { waker, called: Mutex::default() });
        let arrivals = Mutex::new(Some(Vec::new()));
        let room = Arc::new(Room { arrivals, bell, closing: AtomicBool::new(false), crew });
        let keeper = Keeper {
            poll,
            room: room.clone(),
            guests: HashMap::new(),
            deadlines: BTreeSet::new(),
            line: VecDeque::new(),
        };
        Ok((room, keeper))
    }

    /// Has the keeper serve a connection whose request waits.
    fn host(&self, visitor: Visitor<S>) {
        let mut arrivals = self.arrivals.lock();
        let Some(waiting) = arrivals.as_mut() else {
            drop(arrivals);
            // With no lock held: its end may wake others.
            return drop(visitor);
        };
        waiting.push(visitor);
        let is_first = waiting.len() == 1;
        drop(arrivals);
        // The keeper takes all that it finds.
        if is_first {
            self.bell.ring();
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
    visitor: Visitor<S>,
    waker: Waker,
    /// While its request waits.
    until: Option<Instant>,
}

impl<S: Service> Drop for Keeper<S> {
    /// However it ends, nobody waits for it.
    fn drop(&mut self) {
        // Those that are left end with no lock held.
        let left = self.room.arrivals.lock().take();
        drop(left);
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
                    guest.visitor.connection.note_input();
                    self.line.push_back(id);
                }
            }
            let called = std::mem::take(&mut *self.room.bell.called.lock());
            self.line.extend(called);
            let now = Instant::now();
            self.line.extend(self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id));
            let arrivals = self.room.arrivals.lock().as_mut().map(std::mem::take);
            arrivals.into_iter().flatten().for_each(|visitor| self.welcome(visitor));
            // Those who stand in line again have their turn behind whatever has come meanwhile.
            let begun = Instant::now();
            for _ in 0..self.line.len() {
                if let Some(id) = self.line.pop_front() {
                    note_served(Some(id));
                    self.serve(id, begun);
                }
            }
            note_served(None);
        }
    }

    fn welcome(&mut self, visitor: Visitor<S>) {
        let id = visitor.connection.id;
        let descriptor = visitor.connection.peer.stream.as_raw_fd();
        let token = Token(id as usize);
        if let Err(error) =
            self.poll.registry().register(&mut SourceFd(&descriptor), token, Interest::READABLE)
        {
            warn!(connection = id, %error, "the waiting room takes no more connections");
            return;
        }
        let waker = Waker::from(Arc::new(Call { guest: id, bell: self.room.bell.clone() }));
        let guest = Guest { visitor, waker, until: None };
        self.guests.insert(id, guest);
        self.seat(id);
    }

    /// A guest's request waits. It is called when that may be over, at once if it is over already.
    fn seat(&mut self, id: u64) {
        let Some(guest) = self.guests.get_mut(&id) else { return };
        let Some(suspended) = guest.visitor.connection.suspended() else { return };
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
        let turn = match guest.visitor.connection.suspended() {
            // Called for nothing, or for bytes that have to wait. A waker is called once.
            Some(suspended) if !suspended.is_over(now) => return self.seat(id),
            Some(_) if is_crowded => guest.visitor.connection.leave(),
            Some(_) => guest.visitor.connection.resume(),
            None if !guest.visitor.connection.may_have_more() => return,
            None if is_crowded => guest.visitor.connection.leave(),
            None => guest.visitor.connection.read_on(),
        };
        if let Some(until) = guest.until.take() {
            self.deadlines.remove(&(until, id));
        }
        match turn {
            Turn::Idle => {}
            Turn::Waits => self.seat(id),
            Turn::Answered if guest.visitor.connection.may_have_more() => self.line.push_back(id),
            Turn::Answered => {}
            Turn::GoHome(errand) => self.send_home(id, errand),
        }
    }

    fn send_home(&mut self, id: u64, errand: Errand) {
        let Some(guest) = self.guests.remove(&id) else { return };
        let descriptor = guest.visitor.connection.peer.stream.as_raw_fd();
        if let Err(error) = self.poll.registry().deregister(&mut SourceFd(&descriptor)) {
            warn!(connection = id, %error, "a connection that leaves the waiting room is not let go");
        }
        let (room, visitor) = (self.room.clone(), guest.visitor);
        if let Err(error) = self.room.crew.serve(id, move || serve(visitor, errand, Some(&room))) {
            warn!(connection = id, %error, "no thread for a connection that leaves the waiting room, connection ended");
        }
    }
}
