//! Beginning and end of connections and of the server.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kilim_bson::doc;
use kilim_server::{BindError, Limits, Listener, Protection};
use kilim_wire::Flags;

use kilim_testkit::eventually;

use crate::fake::{Peer, limits, message, start};

#[test]
fn connections_beyond_the_limit_are_refused_until_others_end() {
    let (server, _) = start(Limits { connections_max: 2, ..limits() });
    let mut first = Peer::connect(&server);
    let mut second = Peer::connect(&server);
    assert!(first.is_alive() && second.is_alive());
    let mut third = Peer::connect(&server);
    assert!(!third.is_alive());
    assert!(first.is_alive() && second.is_alive());
    drop(second);
    eventually("the second connection's end", || server.connections() == 1);
    assert!(Peer::connect(&server).is_alive());
}

#[test]
fn what_a_connection_holds_is_given_back_when_it_ends() {
    let (server, fake) = start(limits());
    let mut peers: Vec<Peer> = (0..20).map(|_| Peer::connect(&server)).collect();
    assert!(peers.iter_mut().all(Peer::is_alive));
    assert_eq!(fake.clients.load(Ordering::SeqCst), 20);
    // One of them in the middle of a message.
    peers[0].send(&message(1, Flags::NONE, doc! {"ping": 1}.as_raw())[..30]);
    drop(peers);
    eventually("the end of all clients", || fake.clients.load(Ordering::SeqCst) == 0);
    // A connection's place is given back behind what it held.
    eventually("the end of all connections", || server.connections() == 0);
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_others_are_served() {
    let (server, fake) = start(Limits { write_timeout: Duration::from_millis(200), ..limits() });
    let mut slow = Peer::connect(&server);
    let mut other = Peer::connect(&server);
    // More than the socket buffers of both sides hold.
    for id in 0..4 {
        slow.send(&message(id, Flags::NONE, doc! {"large": 15_000_000}.as_raw()));
    }
    assert!(other.is_alive());
    eventually("the slow client's end", || fake.clients.load(Ordering::SeqCst) == 1);
    assert!(other.is_alive());
}

#[test]
fn a_client_that_sends_slowly_holds_up_nobody() {
    let (server, _) = start(limits());
    let mut slow = Peer::connect(&server);
    let mut other = Peer::connect(&server);
    let frame = message(1, Flags::NONE, doc! {"ping": 1}.as_raw());
    for piece in frame.chunks(5) {
        slow.send(piece);
        std::thread::sleep(Duration::from_millis(10));
        assert!(other.is_alive());
    }
    assert!(slow.receive().unwrap().is_ok());
}

#[test]
fn stopping_while_idle_ends_connections_at_once() {
    let (mut server, fake) = start(limits());
    let address = server.address();
    let mut peers: Vec<Peer> = (0..10).map(|_| Peer::connect(&server)).collect();
    assert!(peers.iter_mut().all(Peer::is_alive));
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert!(peers.iter_mut().all(|peer| peer.receive().is_none()));
    assert_eq!(fake.clients.load(Ordering::SeqCst), 0);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn stopping_lets_a_running_operation_finish_and_answer() {
    let (mut server, fake) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(1, Flags::NONE, doc! {"sleep": 300}.as_raw()));
    eventually("the operation's start", || fake.ran.load(Ordering::SeqCst) == 1);
    server.stop();
    assert!(peer.receive().unwrap().is_ok());
    assert!(peer.receive().is_none());
    assert!(!peer.is_alive());
}

#[test]
fn stopping_interrupts_what_does_not_finish_in_time() {
    let (mut server, fake) = start(Limits { stop_grace: Duration::from_millis(100), ..limits() });
    let mut peer = Peer::connect(&server);
    peer.send(&message(1, Flags::NONE, doc! {"sleep": 60_000}.as_raw()));
    eventually("the operation's start", || fake.ran.load(Ordering::SeqCst) == 1);
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(fake.interrupted.load(Ordering::SeqCst));
}

#[test]
fn stopping_does_not_wait_for_a_stream_of_replies() {
    let (mut server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(1, Flags::EXHAUST_ALLOWED, doc! {"stream": (i32::MAX)}.as_raw()));
    assert!(peer.receive().is_some());
    // The client stops reading, so the server is stuck in a write.
    std::thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(server.connections(), 0);
}

#[test]
fn an_address_beyond_this_machine_needs_to_be_asked_for_twice() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = Listener::bind(address.parse().unwrap(), Protection::default());
        assert!(matches!(refused, Err(BindError::Unprotected(..))), "{address}");
    }
    let listener =
        Listener::bind("0.0.0.0:0".parse().unwrap(), Protection { insecure: true, ..Protection::default() })
            .unwrap();
    assert!(listener.address().ip().is_loopback(), "where to connect from here");
    for (users, encrypted) in [(false, false), (true, false), (false, true)] {
        let protection = Protection { users, encrypted, insecure: false };
        let refused = Listener::bind("0.0.0.0:0".parse().unwrap(), protection).unwrap_err().to_string();
        assert_eq!(refused.contains("--auth"), !users, "what is missing is named: {refused}");
        assert_eq!(refused.contains("--tls require"), !encrypted, "what is missing is named: {refused}");
        assert!(refused.contains("--insecure"), "{refused}");
    }
    let protection = Protection { users: true, encrypted: true, insecure: false };
    assert!(Listener::bind("0.0.0.0:0".parse().unwrap(), protection).is_ok());
}

#[test]
fn a_taken_port_is_named() {
    let (server, _) = start(limits());
    let refused = Listener::bind(server.address(), Protection::default()).unwrap_err();
    let message = refused.to_string();
    assert!(message.contains(&format!("port {}", server.address().port())), "{message}");
    assert!(message.contains("--port"), "{message}");
}

#[test]
fn clients_may_knock_before_the_service_is_there() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Protection::default()).unwrap();
    let mut early = TcpStream::connect(listener.address()).unwrap();
    early.write_all(&message(1, Flags::NONE, doc! {"ping": 1}.as_raw())).unwrap();
    early.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let server = listener.serve(crate::fake::Fake::default(), limits()).unwrap();
    assert!(Peer(early).receive().unwrap().is_ok());
    drop(server);
}

#[test]
fn many_clients_at_once_are_all_answered() {
    let (server, _) = start(limits());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut peers: Vec<Peer> = (0..25).map(|_| Peer::connect(&server)).collect();
                for _ in 0..4 {
                    assert!(peers.iter_mut().all(Peer::is_alive));
                }
            });
        }
    });
}
