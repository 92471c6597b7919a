//! Clients that have not logged in: little time, little room, and no more of them than leave room for others.

use std::time::Duration;

use kilim_bson::doc;
use kilim_server::{Limits, Server};
use kilim_testkit::eventually;

use crate::fake::{Fake, Peer, limits, start_as};

fn guarded(limits: Limits) -> Server<Fake> {
    start_as(Fake { has_logins: true, ..Fake::default() }, limits, None).0
}

#[test]
fn a_client_that_says_nothing_is_cut_and_one_that_logged_in_is_not() {
    let server = guarded(Limits { first_message: Duration::from_millis(300), ..limits() });
    let mut silent = Peer::connect(&server);
    let mut known = Peer::connect(&server);
    assert!(known.run(&doc! {"login": 1}).unwrap().is_ok());
    // Half a message is none.
    let mut slow = Peer::connect(&server);
    slow.send(&[0x30, 0, 0, 0, 1]);
    assert!(silent.receive().is_none());
    assert!(slow.receive().is_none());
    assert!(known.is_alive());
    eventually("only one is left", || server.connections() == 1);
}

#[test]
fn a_large_message_is_for_those_who_logged_in() {
    let server = guarded(limits());
    let large = doc! {"insert": "x", "text": ("x".repeat(1 << 20))};
    let mut stranger = Peer::connect(&server);
    assert!(stranger.is_alive());
    // The server reads no more of it, so that the rest of it may not be sendable.
    use std::io::Write;
    let _ = stranger.0.write_all(&crate::fake::message(1, kilim_wire::Flags::NONE, large.as_raw()));
    assert!(stranger.receive().is_none());
    let mut known = Peer::connect(&server);
    assert!(known.run(&doc! {"login": 1}).unwrap().is_ok());
    assert!(known.run(&large).unwrap().is_ok());
}

#[test]
fn strangers_leave_room_for_those_who_logged_in() {
    let server = guarded(Limits { connections_max: 8, strangers_max: 4, ..limits() });
    let mut known: Vec<Peer> = (0..2).map(|_| Peer::connect(&server)).collect();
    for peer in &mut known {
        assert!(peer.run(&doc! {"login": 1}).unwrap().is_ok());
    }
    let mut strangers: Vec<Peer> = (0..4).map(|_| Peer::connect(&server)).collect();
    assert!(strangers.iter_mut().all(Peer::is_alive));
    let mut another = Peer::connect(&server);
    assert!(another.run(&doc! {"login": 1}).unwrap().is_ok(), "strangers keep nobody out who logs in");
    assert!(strangers[0].receive().is_none(), "the one that was silent longest is gone");
    assert!(strangers[1..].iter_mut().all(Peer::is_alive));
    assert!(known.iter_mut().all(Peer::is_alive));
}

#[test]
fn strangers_make_room_for_those_who_log_in_and_nobody_else_does() {
    let server = guarded(Limits { connections_max: 4, strangers_max: 2, ..limits() });
    let mut known = Vec::new();
    for _ in 0..4 {
        // Two that say nothing stand before everybody who logs in.
        let silent = [Peer::connect(&server), Peer::connect(&server)];
        let mut peer = Peer::connect(&server);
        assert!(peer.run(&doc! {"login": 1}).unwrap().is_ok());
        known.push(peer);
        drop(silent);
        eventually("the silent ones are gone", || server.connections() == known.len());
    }
    assert!(known.iter_mut().all(Peer::is_alive));
    assert!(Peer::connect(&server).receive().is_none(), "there is no room among those who logged in");
}
