//! What clients can make the server hold: unfinished messages, unread replies, work for nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kilim_bson::doc;
use kilim_engine::{Durability, Engine, EngineOptions};
use kilim_server::{Limits, MetricsEndpoint};
use kilim_wire::Flags;

use kilim_testkit::eventually;

use crate::fake::{Peer, limits, message, start};

const MEGABYTE: usize = 1 << 20;

fn large(megabytes: usize) -> Vec<u8> {
    let text = "x".repeat(megabytes * MEGABYTE);
    message(1, Flags::NONE, doc! {"insert": text.as_str()}.as_raw())
}

#[test]
fn unfinished_messages_share_a_bound_and_make_way_for_whole_ones() {
    let (server, fake) = start(Limits { message_bytes_max: 8 * MEGABYTE, ..limits() });
    let frame = large(3);
    let mut stalled: Vec<Peer> = (0..5).map(|_| Peer::connect(&server)).collect();
    for peer in &mut stalled {
        // The server reads no more of it than there is room for, and the rest stays in the kernel.
        let _ = peer.0.write(&frame[..100_000]);
    }
    let mut whole = Peer::connect(&server);
    whole.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let sent = Instant::now();
    whole.send(&frame);
    assert!(whole.receive().unwrap().is_ok());
    assert!(sent.elapsed() < Duration::from_secs(15), "{:?}", sent.elapsed());
    // Small messages ask nobody.
    assert!(Peer::connect(&server).is_alive());
    assert!(fake.ran.load(Ordering::SeqCst) >= 2);
}

#[test]
fn unread_replies_share_a_bound_and_readers_are_served() {
    let (server, fake) = start(Limits { message_bytes_max: 40 * MEGABYTE, ..limits() });
    let ask = message(1, Flags::NONE, doc! {"large": 15_000_000}.as_raw());
    let mut deaf: Vec<Peer> = (0..6).map(|_| Peer::connect(&server)).collect();
    for peer in &mut deaf {
        peer.send(&ask);
    }
    eventually("all of them being answered", || fake.ran.load(Ordering::SeqCst) >= 6);
    let mut reader = Peer::connect(&server);
    reader.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    reader.send(&ask);
    assert!(reader.receive().unwrap().is_ok());
}

#[test]
fn a_slow_message_is_not_cut_while_it_moves() {
    let (server, _) = start(Limits { message_bytes_max: 4 * MEGABYTE, ..limits() });
    let frame = large(3);
    let mut slow = Peer::connect(&server);
    let mut waiting = Peer::connect(&server);
    slow.send(&frame[..100_000]);
    std::thread::sleep(Duration::from_millis(50));
    waiting.send(&frame[..200_000]);
    for piece in frame[100_000..].chunks(frame.len() / 8) {
        slow.send(piece);
        std::thread::sleep(Duration::from_millis(400));
    }
    assert!(slow.receive().unwrap().is_ok());
    waiting.send(&frame[200_000..]);
    assert!(waiting.receive().unwrap().is_ok());
}

#[test]
fn work_for_a_client_that_is_gone_is_ended() {
    let (server, fake) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(1, Flags::NONE, doc! {"sleep": 60_000}.as_raw()));
    eventually("the request", || fake.ran.load(Ordering::SeqCst) == 1);
    assert_eq!(fake.gone.load(Ordering::SeqCst), 0);
    drop(peer);
    eventually("the end of the connection", || server.connections() == 0);
    assert!(fake.gone.load(Ordering::SeqCst) >= 1);
}

#[test]
fn a_slow_reader_of_metrics_holds_up_neither_others_nor_the_end() {
    let options = EngineOptions {
        data: None,
        durability: Durability::Relaxed,
        storage: kilim_engine::StorageOptions { cache_bytes: 16 << 20, ..Default::default() },
        test_commands: false,
    };
    let engine = Engine::open(options).unwrap();
    let endpoint = MetricsEndpoint::start("127.0.0.1:0".parse().unwrap(), engine.clone()).unwrap();
    let mut slow = TcpStream::connect(endpoint.address()).unwrap();
    slow.write_all(b"GET /met").unwrap();
    let began = Instant::now();
    let mut other = TcpStream::connect(endpoint.address()).unwrap();
    other.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    other.read_to_string(&mut text).unwrap();
    assert!(text.contains("kilim_uptime_seconds"));
    drop(endpoint);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    engine.close().unwrap();
}
