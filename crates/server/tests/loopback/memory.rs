//! What clients can make the server hold: unfinished messages, unread replies, work for nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kilim_bson::doc;
use kilim_engine::{Durability, Engine, EngineOptions};
use kilim_server::{Limits, MetricsEndpoint};
use kilim_wire::{Compressor, Flags, compress};

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

/// A message whose unpacked form is a thousand times larger.
fn bomb(command: &str, number: i32, megabytes: usize) -> Vec<u8> {
    let text = "x".repeat(megabytes * MEGABYTE);
    let plain = message(1, Flags::NONE, doc! {command: number, "text": text.as_str()}.as_raw());
    let mut packed = Vec::new();
    compress(&plain, Compressor::Zlib, &mut packed).unwrap();
    assert!(packed.len() < plain.len() / 500);
    packed
}

#[test]
fn what_a_compressed_message_unpacks_to_is_counted() {
    let (server, fake) = start(Limits { message_bytes_max: 8 * MEGABYTE, ..limits() });
    let bomb = bomb("sleep", 60_000, 6);
    let mut peers: Vec<Peer> = (0..5).map(|_| Peer::connect(&server)).collect();
    for peer in &mut peers {
        peer.send(&bomb);
    }
    eventually("the first being run", || fake.ran.load(Ordering::SeqCst) == 1);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(fake.ran.load(Ordering::SeqCst), 1, "the others wait for room");
    assert!(server.message_bytes() >= 6 * MEGABYTE);
    fake.interrupted.store(true, Ordering::SeqCst);
    for peer in &mut peers {
        assert!(peer.receive().unwrap().is_ok());
    }
}

#[test]
fn a_large_reply_that_is_small_when_compressed_is_counted_and_given_back() {
    let (server, _) = start(limits());
    let mut ask = Vec::new();
    compress(&message(1, Flags::NONE, doc! {"large": 15_000_000}.as_raw()), Compressor::Zlib, &mut ask)
        .unwrap();
    let mut peer = Peer::connect(&server);
    peer.send(&ask);
    assert!(peer.receive().unwrap().is_ok());
    assert!(server.message_bytes() >= 15_000_000, "{}", server.message_bytes());
    // Nothing larger follows, so there is nothing to keep a large buffer for.
    assert!(peer.is_alive());
    eventually("the buffers being given back", || server.message_bytes() == 0);
}

#[test]
fn buffers_are_given_back_although_the_next_message_has_begun() {
    let (server, _) = start(limits());
    let asks = [message(1, Flags::NONE, doc! {"large": 15_000_000}.as_raw()), bomb("ping", 1, 6), large(3)];
    let mut peers: Vec<Peer> = asks.iter().map(|_| Peer::connect(&server)).collect();
    for (peer, ask) in peers.iter_mut().zip(&asks) {
        peer.send(ask);
        assert!(peer.receive().unwrap().is_ok());
    }
    assert!(server.message_bytes() > 0);
    let next = message(2, Flags::NONE, doc! {"ping": 1}.as_raw());
    for byte in &next[..8] {
        for peer in &mut peers {
            peer.send(&[*byte]);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    eventually("the buffers being given back", || server.message_bytes() == 0);
    for peer in &mut peers {
        peer.send(&next[8..]);
        assert!(peer.receive().unwrap().is_ok(), "the message is not lost with the buffer");
    }
}

#[test]
fn a_byte_now_and_then_does_not_hold_the_memory_that_others_wait_for() {
    let (server, _) = start(Limits { message_bytes_max: 4 * MEGABYTE, ..limits() });
    let frame = large(3);
    let mut drip = Peer::connect(&server);
    drip.send(&frame[..100_000]);
    eventually("the message being read", || server.message_bytes() > 0);
    let mut whole = Peer::connect(&server);
    whole.send(&frame);
    whole.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while whole.0.peek(&mut [0]).is_err() {
        let _ = drip.0.write(&frame[..1]);
        assert!(Instant::now() < deadline, "the others wait for ever");
    }
    whole.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(whole.receive().unwrap().is_ok());
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
    let endpoint = MetricsEndpoint::start("127.0.0.1:0".parse().unwrap(), engine.clone(), None).unwrap();
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
