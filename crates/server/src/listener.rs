//! The listening socket and the threads behind it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kilim_tls::ServerTls;
use parking_lot::{Condvar, Mutex};
use tracing::{debug, info, warn};

use crate::connection::{Connection, Errand};
use crate::crew::Crew;
use crate::limits::{BACKLOG, DESCRIPTORS_RESERVED, INTERRUPT, Limits, STALLED, TICK, WATCH};
use crate::memory::Memory;
use crate::peer::Peer;
use crate::room::{self, Room, Visitor};
use crate::service::Service;
use crate::shared::{Registered, Shared};
use crate::stream::Stream;

/// A bound address. Clients may connect at once, and are answered once [`Listener::serve`] is called.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<ServerTls>>,
}

/// What keeps strangers out. An address that other machines reach needs all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Protection {
    /// Users log in.
    pub users: bool,
    /// Everything is encrypted.
    pub encrypted: bool,
    /// Whoever starts the server says that it need not be so.
    pub insecure: bool,
}

#[derive(Debug)]
pub enum BindError {
    /// Others could reach the address, and this protection is not enough.
    Unprotected(IpAddr, Protection),
    Io(SocketAddr, io::Error),
}

impl Listener {
    /// Port 0 picks a free one. An address beyond this machine is refused unless it is protected.
    pub fn bind(address: SocketAddr, protection: Protection) -> Result<Listener, BindError> {
        let Protection { users, encrypted, insecure } = protection;
        let is_safe = address.ip().to_canonical().is_loopback() || (users && encrypted);
        if !is_safe && !insecure {
            return Err(BindError::Unprotected(address.ip(), protection));
        }
        let bind = || {
            let socket = TcpListener::bind(address)?;
            // SAFETY: the descriptor is open; listening again only lengthens the queue.
            if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let address = socket.local_addr()?;
            Ok(Listener { socket, address, tls: None })
        };
        bind().map_err(|error| BindError::Io(address, error))
    }

    /// Has clients encrypt, or lets them.
    pub fn with_tls(self, tls: Option<Arc<ServerTls>>) -> Listener {
        Listener { tls, ..self }
    }

    /// Where clients of this machine connect: the bound address, or loopback if it is every address.
    pub fn address(&self) -> SocketAddr {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, self.address.port())
    }

    pub fn serve<S: Service>(self, service: S, limits: Limits) -> io::Result<Server<S>> {
        let limits = limits.within_reach();
        let message_bytes_max = limits.message_bytes_max;
        let address = self.address();
        let crew = Crew::new();
        let (room, keeper) = match Room::open(crew.clone()) {
            Ok((room, keeper)) => (Some(room), Some(keeper)),
            Err(error) => {
                warn!(%error, "change streams wait on threads of their own");
                (None, None)
            }
        };
        let shared = Arc::new(Shared {
            guarded: service.has_logins() || self.tls.is_some(),
            tls: self.tls,
            service,
            limits,
            stopping: AtomicBool::new(false),
            peers: Mutex::default(),
            ended: Condvar::new(),
            memory: Memory::new(message_bytes_max),
        });
        let spawn =
            |name: &str, work: Box<dyn FnOnce() + Send>| thread::Builder::new().name(name.into()).spawn(work);
        let acceptor = spawn("accept", {
            let (shared, crew, room) = (shared.clone(), crew.clone(), room.clone());
            Box::new(move || accept(&self.socket, &shared, &crew, room.as_ref()))
        })?;
        let ticker = spawn("tick", {
            let shared = shared.clone();
            Box::new(move || tick(&shared))
        })?;
        let watcher = spawn("watch", {
            let shared = shared.clone();
            Box::new(move || watch(&shared))
        })?;
        let keeper = match keeper {
            Some(keeper) => Some(spawn("room", Box::new(move || keeper.keep()))?),
            None => None,
        };
        let (acceptor, helpers) = (Some(acceptor), vec![ticker, watcher]);
        Ok(Server { address, shared, acceptor, helpers, crew, room, keeper })
    }
}

/// A running server; dropping it stops it.
pub struct Server<S: Service> {
    address: SocketAddr,
    shared: Arc<Shared<S>>,
    acceptor: Option<JoinHandle<()>>,
    /// Those that run now and then.
    helpers: Vec<JoinHandle<()>>,
    /// The threads that serve connections.
    crew: Arc<Crew>,
    /// Where requests wait for news; None if the system has no means for one.
    room: Option<Arc<Room<S>>>,
    /// The thread of the room, which outlives its guests.
    keeper: Option<JoinHandle<()>>,
}

impl<S: Service> Server<S> {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn service(&self) -> &S {
        &self.shared.service
    }

    pub fn connections(&self) -> usize {
        self.shared.peers.lock().len()
    }

    /// Bytes that large messages and replies hold together, of [`Limits::message_bytes_max`].
    pub fn message_bytes(&self) -> usize {
        self.shared.memory.used()
    }

    /// Accepts no more, lets running operations finish within the grace, then ends every connection.
    /// Returns when no thread of the server runs any more, or will not be waited for any longer.
    pub fn stop(&mut self) {
        let shared = &self.shared;
        if shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        shared.service.end_waiting();
        shared.ended.notify_all();
        // A blocked accept sees the flag when it has something to accept. Where even this machine
        // cannot reach the address, the acceptor is left to the end of the process.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        let acceptor = self.acceptor.take().filter(|_| woken);
        for thread in acceptor.into_iter().chain(self.helpers.drain(..)) {
            let _ = thread.join();
        }

        // Idle connections end now; running ones may still write their reply.
        let end = |peers: &HashMap<u64, Arc<Peer>>, how| {
            for peer in peers.values() {
                let _ = peer.stream.shutdown(how);
            }
        };
        end(&shared.peers.lock(), std::net::Shutdown::Read);
        let running = |peers: &HashMap<u64, Arc<Peer>>| peers.values().any(|peer| peer.is_running());
        if !shared.wait_while(shared.limits.stop_grace, running) {
            warn!("operations are still running; they are interrupted");
        }
        shared.service.interrupt();
        if !shared.wait_while(INTERRUPT, running) {
            warn!("operations did not end when interrupted; their connections are cut");
        }
        end(&shared.peers.lock(), std::net::Shutdown::Both);
        if !shared.wait_while(INTERRUPT, |peers| !peers.is_empty()) {
            warn!(connections = shared.peers.lock().len(), "connections are left behind");
        }
        if let Some(room) = &self.room {
            room.close();
        }
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
        self.crew.close();
    }
}

impl<S: Service> Drop for Server<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept<S: Service>(
    socket: &TcpListener,
    shared: &Arc<Shared<S>>,
    crew: &Arc<Crew>,
    room: Option<&Arc<Room<S>>>,
) {
    let mut next_id = 1;
    let mut refused = 0u64;
    loop {
        let accepted = socket.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: it passes when connections end.
                warn!(%error, "cannot accept a connection");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if !makes_room(shared) {
            refused += 1;
            // The log shall not grow with every attempt of a client that keeps trying.
            if refused.is_power_of_two() {
                let connections_max = shared.limits.connections_max;
                warn!(connections_max, refused, %address, "too many connections, refused; see --max-connections");
            }
            continue;
        }
        if let Err(error) = start(shared, crew, room.cloned(), next_id, stream, address) {
            warn!(%error, %address, "cannot serve a connection");
        }
        next_id += 1;
    }
}

/// Whether one more connection may begin. Every connection begins as a stranger's where clients log in, so strangers that only
/// hold their places would keep everybody out: the one that has been silent longest goes for the new one.
fn makes_room<S: Service>(shared: &Shared<S>) -> bool {
    let Limits { connections_max, strangers_max, .. } = shared.limits;
    let peers = shared.peers.lock();
    // Counted only where there may be too many.
    if peers.len() < strangers_max.min(connections_max) {
        return true;
    }
    let staying = || peers.values().filter(|peer| !peer.is_dismissed());
    let strangers = || staying().filter(|peer| peer.is_stranger());
    if staying().count() < connections_max && strangers().count() < strangers_max {
        return true;
    }
    // Connections that were cut hold their threads until these notice.
    let crowded = peers.len() >= connections_max + strangers_max;
    let Some(silent) = strangers().max_by_key(|peer| peer.silent_for()).filter(|_| !crowded) else {
        return false;
    };
    debug!(peer = %silent.address, "not logged in, cut to make room for another connection");
    silent.dismiss();
    true
}

/// Gives a connection its thread.
fn start<S: Service>(
    shared: &Arc<Shared<S>>,
    crew: &Arc<Crew>,
    room: Option<Arc<Room<S>>>,
    id: u64,
    stream: TcpStream,
    address: SocketAddr,
) -> io::Result<()> {
    let stream = Stream::new(stream, shared.limits.write_timeout)?;
    let peer = Arc::new(Peer::new(stream, address, shared.guarded));
    shared.peers.lock().insert(id, peer.clone());
    let place = Registered { shared: shared.clone(), id };
    let serve = move || {
        debug!(connection = id, peer = %address, "connected");
        let shared = place.shared.clone();
        if let Some(tls) = &shared.tls
            && let Err(error) = peer.stream.secure(tls, Instant::now() + shared.limits.handshake)
        {
            // Looking whether somebody listens is no fault.
            match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    debug!(connection = id, peer = %address, %error, "no handshake")
                }
                _ => info!(connection = id, peer = %address, %error, "no encrypted connection comes about"),
            }
            return;
        }
        let connection = Connection::new(id, peer, shared, room.is_some());
        room::serve(Visitor { connection, place }, Errand::Serve, room.as_ref());
    };
    // If no thread can be had, dropping the closure strikes the connection off the list.
    crew.serve(id, serve)
}

fn tick<S: Service>(shared: &Shared<S>) {
    while shared.sleep(TICK) {
        shared.service.tick();
    }
}

/// Tells the service of clients that have gone while their request runs, and cuts those that hold memory which others
/// wait for and do nothing with it.
fn watch<S: Service>(shared: &Shared<S>) {
    let mut busy: Vec<(u64, Arc<Peer>)> = Vec::new();
    while shared.sleep(WATCH) {
        {
            let peers = shared.peers.lock();
            let running = peers.iter().filter(|(_, peer)| peer.is_busy());
            busy.extend(running.map(|(id, peer)| (*id, peer.clone())));
        }
        for (id, peer) in busy.drain(..) {
            if peer.is_gone() {
                shared.service.client_is_gone(id);
            }
        }
        let wanted = shared.memory.wants().max(kilim_memory::shortage_bytes());
        if wanted > 0 {
            cut_stalled(&shared.peers.lock(), wanted);
        }
    }
}

/// Cuts connections that hold memory and have not moved a byte for a while, the largest first, until so much is free.
fn cut_stalled(peers: &HashMap<u64, Arc<Peer>>, wanted: usize) {
    let stalled = peers.values().filter_map(|peer| Some((peer.is_stalled(STALLED)?, peer)));
    let mut stalled: Vec<(usize, &Arc<Peer>)> = stalled.collect();
    stalled.sort_by_key(|(held, _)| std::cmp::Reverse(*held));
    let mut freed = 0;
    for (held, peer) in stalled {
        if freed >= wanted {
            return;
        }
        warn!(peer = %peer.address, held, "a client neither sends nor reads while memory is short, cut off");
        let _ = peer.stream.shutdown(std::net::Shutdown::Both);
        freed += held;
    }
}

impl Limits {
    /// With no more connections than the system has file descriptors for.
    pub fn within_reach(self) -> Limits {
        let connections_max = self.connections_max.min(connections_possible());
        Limits { connections_max, strangers_max: self.strangers_max.min(connections_max.div_ceil(2)), ..self }
    }
}

/// Raises the limit of file descriptors as far as allowed, and says how many connections fit below it.
fn connections_possible() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the struct that they are given, which outlives them.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return usize::MAX;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 {
            limit = raised;
        }
    }
    let descriptors = usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX);
    // Where descriptors are very few, half of them must do.
    descriptors.saturating_sub(DESCRIPTORS_RESERVED).max(descriptors / 2)
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Unprotected(ip, protection) => {
                write!(f, "{ip} can be reached from other machines")?;
                if !protection.users {
                    write!(f, "; without --auth anyone could read and change everything")?;
                }
                if !protection.encrypted {
                    write!(f, "; without --tls require whoever listens on the way reads what is sent")?;
                }
                write!(
                    f,
                    ". Add what is missing (docs/security.md has it in five commands), bind to 127.0.0.1, or pass \
                     --insecure if the network itself is safe"
                )
            }
            BindError::Io(address, error) if error.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "port {port} on {ip} is already in use by another program, perhaps another database. Stop \
                 it, choose another port with --port, or let a free one be picked with --port 0",
                port = address.port(),
                ip = address.ip(),
            ),
            BindError::Io(address, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "not allowed to listen on {address}: ports below 1024 need special rights")
            }
            BindError::Io(address, error) => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl std::error::Error for BindError {}
