//! What one connection sees.

use std::io::Read;
use std::time::Duration;

use kilim_bson::doc;
use kilim_error::ErrorCode;
use kilim_wire::{
    Compressor, Flags, ReplyFlags, Sequence, compress, write_op_msg, write_op_query, write_op_reply,
};

use crate::fake::{Peer, limits, message, start};

#[test]
fn a_reply_names_the_request_it_answers() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(-5, Flags::NONE, doc! {"ping": 1}.as_raw()));
    let reply = peer.receive().unwrap();
    assert!(reply.is_ok());
    assert_eq!(reply.response_to, -5);
    assert_eq!(reply.flags, Flags::NONE);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    let bytes: Vec<u8> =
        (1..=500).flat_map(|id| message(id, Flags::NONE, doc! {"large": (id * 7)}.as_raw())).collect();
    let mut writer = Peer(peer.0.try_clone().unwrap());
    let sender = std::thread::spawn(move || writer.send(&bytes));
    for id in 1..=500 {
        assert_eq!(peer.receive().unwrap().response_to, id);
    }
    sender.join().unwrap();
}

#[test]
fn a_message_in_many_packets_is_one_message() {
    let (server, fake) = start(limits());
    let mut peer = Peer::connect(&server);
    for byte in message(1, Flags::CHECKSUM_PRESENT, doc! {"ping": 1}.as_raw()) {
        peer.send(&[byte]);
    }
    let reply = peer.receive().unwrap();
    assert!(reply.is_ok());
    assert_eq!(fake.ran.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn a_message_of_forty_megabytes_arrives() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    let large = doc! {"text": ("x".repeat(10_000_000))};
    let documents = vec![large.as_raw(); 4];
    let mut frame = Vec::new();
    let sequences = [Sequence { name: "documents", documents }];
    write_op_msg(&mut frame, 1, 0, Flags::NONE, doc! {"insert": "c"}.as_raw(), &sequences);
    peer.send(&frame);
    assert_eq!(peer.receive().unwrap().int("n"), Some(4));
    assert!(peer.is_alive());
    // Idle for long enough that the buffers are given back; the connection is none the wiser.
    std::thread::sleep(Duration::from_millis(1200));
    assert!(peer.is_alive());
}

#[test]
fn a_checksummed_request_gets_a_checksummed_reply() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(1, Flags::CHECKSUM_PRESENT, doc! {"ping": 1}.as_raw()));
    assert_eq!(peer.receive().unwrap().flags, Flags::CHECKSUM_PRESENT);
}

#[test]
fn a_compressed_request_is_answered_by_the_same_compressor() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut packed = Vec::new();
        compress(&message(4, Flags::NONE, doc! {"large": 5000}.as_raw()), compressor, &mut packed).unwrap();
        peer.send(&packed);
        let reply = peer.receive().unwrap();
        assert_eq!((reply.response_to, reply.compressed), (4, Some(compressor)));
        assert!(reply.is_ok());
        // And an error too.
        let mut malformed = message(5, Flags::NONE, doc! {"ping": 1}.as_raw());
        malformed[20] = 255;
        packed.clear();
        compress(&malformed, compressor, &mut packed).unwrap();
        peer.send(&packed);
        let reply = peer.receive().unwrap();
        assert_eq!((reply.code(), reply.compressed), (ErrorCode(40432), Some(compressor)));
    }
    assert_eq!(peer.run(&doc! {"ping": 1}).unwrap().compressed, None);
}

#[test]
fn a_request_with_more_to_come_gets_no_reply() {
    let (server, fake) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(1, Flags::MORE_TO_COME, doc! {"ping": 1}.as_raw()));
    peer.send(&message(2, Flags::MORE_TO_COME, doc! {"panic": 1}.as_raw()));
    let exhaust = Flags::MORE_TO_COME.with(Flags::EXHAUST_ALLOWED);
    peer.send(&message(3, exhaust, doc! {"stream": 3}.as_raw()));
    let mut malformed = message(4, Flags::MORE_TO_COME, doc! {"ping": 1}.as_raw());
    malformed[20] = 255;
    peer.send(&malformed);
    assert!(peer.is_alive(), "the first reply is the ping's");
    assert_eq!(fake.ran.load(std::sync::atomic::Ordering::SeqCst), 4);
}

#[test]
fn an_exhaust_request_gets_replies_until_the_last() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(50, Flags::EXHAUST_ALLOWED, doc! {"stream": 3}.as_raw()));
    let mut response_to = 50;
    for left in [3, 2, 1, 0] {
        let reply = peer.receive().unwrap();
        assert_eq!((reply.int("left"), reply.response_to), (Some(left), response_to));
        assert_eq!(reply.flags.contains(Flags::MORE_TO_COME), left > 0);
        response_to = reply.request_id;
    }
    assert!(peer.is_alive());
    assert_eq!(peer.run(&doc! {"stream": 3}).unwrap().flags, Flags::NONE, "only if the client allows it");
    assert!(peer.is_alive());
}

#[test]
fn a_legacy_hello_gets_a_legacy_reply_and_others_a_legacy_error() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    let mut send = |database: &str, command: &kilim_bson::Document| {
        let mut frame = Vec::new();
        write_op_query(&mut frame, 8, database, command.as_raw());
        peer.send(&frame);
        peer.receive().unwrap()
    };
    let reply = send("admin", &doc! {"isMaster": 1});
    assert_eq!((reply.legacy, reply.response_to), (Some(ReplyFlags::AWAIT_CAPABLE), 8));
    assert_eq!(reply.document, doc! {"ok": 1.0, "legacy": true, "database": "admin"});
    let reply = send("admin", &doc! {"ping": 1});
    assert_eq!((reply.legacy, reply.code().0), (Some(ReplyFlags::AWAIT_CAPABLE), 352));

    let mut get_more = message(9, Flags::NONE, doc! {}.as_raw());
    get_more[12..16].copy_from_slice(&2005i32.to_le_bytes());
    peer.send(&get_more);
    let reply = peer.receive().unwrap();
    assert_eq!((reply.legacy, reply.code().0), (Some(ReplyFlags::QUERY_FAILURE), 5739101));
    assert!(reply.document.get("$err").is_some());
    assert!(peer.is_alive());
}

#[test]
fn a_panic_is_an_internal_error_and_the_connection_goes_on() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    assert_eq!(peer.run(&doc! {"panic": 1}).unwrap().code(), ErrorCode::InternalError);
    assert!(peer.is_alive());
}

#[test]
fn malformed_contents_are_answered_and_the_connection_goes_on() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    let ping = message(1, Flags::NONE, doc! {"ping": 1}.as_raw());
    for (at, byte, code) in [(20, 255, 40432), (25, 0x20, 22), (21, 200, 22), (20, 2, 13)] {
        let mut malformed = ping.clone();
        malformed[at] = byte;
        peer.send(&malformed);
        assert_eq!(peer.receive().unwrap().code().0, code, "byte {at} = {byte}");
    }
    let mut ignored = ping.clone();
    ignored[12..16].copy_from_slice(&0i32.to_le_bytes());
    peer.send(&ignored);
    assert!(peer.is_alive());
}

#[test]
fn what_cannot_be_a_message_ends_its_connection_and_no_other() {
    let (server, _) = start(limits());
    let mut bystander = Peer::connect(&server);
    let ping = message(1, Flags::NONE, doc! {"ping": 1}.as_raw());
    let changed = |at: usize, bytes: [u8; 4]| {
        let mut frame = ping.clone();
        frame[at..at + 4].copy_from_slice(&bytes);
        frame
    };
    let mut noop = Vec::new();
    compress(&ping, Compressor::Noop, &mut noop).unwrap();
    let mut reply = Vec::new();
    write_op_reply(&mut reply, 1, 0, ReplyFlags::default(), doc! {}.as_raw());
    for (name, bytes) in [
        ("a length of zero", changed(0, 0i32.to_le_bytes())),
        ("a negative length", changed(0, (-1i32).to_le_bytes())),
        ("a length over the limit", changed(0, 48_000_001i32.to_le_bytes())),
        ("an answer", changed(8, 3i32.to_le_bytes())),
        ("an unknown opcode", changed(12, 9999i32.to_le_bytes())),
        ("an unknown flag", changed(16, 4u32.to_le_bytes())),
        ("a reply", reply),
        ("a compressor not offered", noop),
        ("garbage", (0..1000).map(|byte| (byte * 31 % 251) as u8).collect()),
    ] {
        let mut peer = Peer::connect(&server);
        peer.send(&bytes);
        assert!(peer.receive().is_none(), "{name}");
    }
    assert!(bystander.is_alive());
}

#[test]
fn a_browser_is_told_what_this_is() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(b"GET / HTTP/1.1\r\n\r\n");
    let mut answer = Vec::new();
    let _ = peer.0.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.0 200 OK\r\n"), "{answer:?}");
}

#[test]
fn a_service_may_end_the_connection_without_a_reply() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    assert!(peer.run(&doc! {"close": 1}).is_none());
}

#[test]
fn a_client_that_has_said_all_still_gets_its_replies() {
    let (server, _) = start(limits());
    let mut peer = Peer::connect(&server);
    peer.send(&message(1, Flags::NONE, doc! {"sleep": 50}.as_raw()));
    peer.send(&message(2, Flags::NONE, doc! {"ping": 1}.as_raw()));
    peer.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(peer.receive().unwrap().response_to, 1);
    assert_eq!(peer.receive().unwrap().response_to, 2);
    assert!(peer.receive().is_none());
}
