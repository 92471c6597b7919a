//! What is written is read back, by every opcode; random bytes are refused and never panic.

use kilim_bson::{Document, RawDocument, doc};
use kilim_wire::{
    Compressor, Flags, Header, Message, OpMsg, OpQuery, OpReply, Opcode, ReplyFlags, Sequence, compress,
    decompress, write_op_msg, write_op_query, write_op_reply,
};
use proptest::prelude::*;

const COMPRESSORS: [Compressor; 4] =
    [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

fn insert(documents: &[Document]) -> (Document, Vec<Sequence<'_>>) {
    let documents = documents.iter().map(Document::as_raw).collect();
    (doc! {"insert": "c", "$db": "test"}, vec![Sequence { name: "documents", documents }])
}

#[test]
fn a_message_is_read_back_with_its_sequences_and_checksum() {
    let documents = [doc! {"_id": 1}, doc! {"_id": 2, "nested": {"list": [1, 2]}}];
    let (body, sequences) = insert(&documents);
    for flags in [Flags::NONE, Flags::CHECKSUM_PRESENT, Flags::MORE_TO_COME, Flags::EXHAUST_ALLOWED] {
        let mut frame = Vec::new();
        write_op_msg(&mut frame, 5, 6, flags, body.as_raw(), &sequences);
        let (header, message) = Message::parse(&frame).unwrap();
        let expected = Header { length: frame.len(), request_id: 5, response_to: 6, opcode: Opcode::Msg };
        assert_eq!(header, expected);
        let expected = OpMsg { flags, body: body.as_raw(), sequences: sequences.clone() };
        assert_eq!(message, Message::Msg(expected));
    }
}

#[test]
fn messages_are_appended_one_behind_the_other() {
    let mut out = Vec::new();
    write_op_msg(&mut out, 1, 0, Flags::CHECKSUM_PRESENT, doc! {"a": 1}.as_raw(), &[]);
    let first = out.len();
    write_op_msg(&mut out, 2, 0, Flags::CHECKSUM_PRESENT, doc! {"b": 1}.as_raw(), &[]);
    assert_eq!(Message::parse(&out[..first]).unwrap().0.request_id, 1);
    assert_eq!(Message::parse(&out[first..]).unwrap().0.request_id, 2);
}

#[test]
fn a_changed_byte_is_seen_by_the_checksum() {
    let mut frame = Vec::new();
    write_op_msg(&mut frame, 1, 0, Flags::CHECKSUM_PRESENT, doc! {"text": "abc"}.as_raw(), &[]);
    let at = frame.windows(3).position(|window| window == b"abc").unwrap();
    frame[at] = b'x';
    assert!(Message::parse(&frame).is_err());
}

#[test]
fn a_legacy_hello_and_its_reply_are_read_back() {
    let (hello, answer) = (doc! {"isMaster": 1}, doc! {"ok": 1.0});
    let mut frame = Vec::new();
    write_op_query(&mut frame, 9, "admin", hello.as_raw());
    let query = OpQuery { flags: 0, database: "admin", command: hello.as_raw() };
    assert_eq!(Message::parse(&frame).unwrap().1, Message::Query(query));

    frame.clear();
    write_op_reply(&mut frame, 10, 9, ReplyFlags::AWAIT_CAPABLE, answer.as_raw());
    let (header, message) = Message::parse(&frame).unwrap();
    assert_eq!((header.request_id, header.response_to), (10, 9));
    let flags = ReplyFlags::AWAIT_CAPABLE;
    let reply = OpReply { flags, cursor_id: 0, starting_from: 0, documents: vec![answer.as_raw()] };
    assert_eq!(message, Message::Reply(reply));
}

#[test]
fn compressors_are_known_by_number() {
    for compressor in COMPRESSORS {
        assert_eq!(Compressor::from_id(compressor.id()), Some(compressor));
    }
    assert_eq!(Compressor::from_id(9), None);
}

proptest! {
    #[test]
    fn a_compressed_message_is_unpacked_to_the_same_bytes(
        text in "[a-c]{0,2000}",
        request_id in any::<i32>(),
        checksum in any::<bool>(),
    ) {
        let flags = if checksum { Flags::CHECKSUM_PRESENT } else { Flags::NONE };
        let mut plain = Vec::new();
        write_op_msg(&mut plain, request_id, 3, flags, doc! {"text": text.as_str()}.as_raw(), &[]);
        for compressor in COMPRESSORS {
            let (mut packed, mut unpacked) = (Vec::new(), b"of the message before".to_vec());
            compress(&plain, compressor, &mut packed).unwrap();
            prop_assert_eq!(decompress(&packed, &mut unpacked).unwrap(), compressor);
            prop_assert_eq!(&unpacked, &plain);
        }
    }

    #[test]
    fn random_bytes_never_panic(
        opcode in prop::sample::select(vec![0, 1, 2004, 2005, 2012, 2013, 77]),
        flags in prop::sample::select(vec![0u32, 1, 2, 1 << 16, u32::MAX]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut frame = Vec::new();
        for number in [rest.len() as i32 + 20, 1, 0, opcode] {
            frame.extend_from_slice(&number.to_le_bytes());
        }
        frame.extend_from_slice(&flags.to_le_bytes());
        frame.extend_from_slice(&rest);
        let _ = Message::parse(&frame);
        let _ = decompress(&frame, &mut Vec::new());
        let _ = Message::parse(&rest);
    }

    /// Bytes flipped in good messages get further into the parser than random ones.
    #[test]
    fn damaged_messages_never_panic_and_what_parses_can_be_walked(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        compressor in prop::sample::select(COMPRESSORS.to_vec()),
    ) {
        let documents = [doc! {"_id": 1, "list": [1, "two", {"three": 3.0}]}, doc! {"_id": 2}];
        let (body, sequences) = insert(&documents);
        let (mut message, mut query, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        write_op_msg(&mut message, 1, 0, Flags::NONE, body.as_raw(), &sequences);
        write_op_query(&mut query, 1, "admin", doc! {"isMaster": 1}.as_raw());
        compress(&message, compressor, &mut packed).unwrap();
        for frame in [&mut message, &mut query, &mut packed] {
            for (at, byte) in &flips {
                let at = at.index(frame.len());
                frame[at] = *byte;
            }
            // The length is mostly true, else nothing behind it would be looked at.
            frame.truncate(16 + cut.index(frame.len() - 15));
            let length = frame.len() as i32;
            frame[..4].copy_from_slice(&length.to_le_bytes());
            let mut unpacked = Vec::new();
            if decompress(frame, &mut unpacked).is_ok() {
                walk(&unpacked);
            }
            walk(frame);
        }
    }
}

fn walk(frame: &[u8]) {
    fn visit(document: RawDocument<'_>) {
        let _ = format!("{document:?}");
    }
    match Message::parse(frame) {
        Ok((_, Message::Msg(message))) => {
            visit(message.body);
            message.sequences.iter().flat_map(|sequence| &sequence.documents).for_each(|&it| visit(it));
        }
        Ok((_, Message::Query(query))) => visit(query.command),
        Ok((_, Message::Reply(reply))) => reply.documents.iter().for_each(|&it| visit(it)),
        Err(_) => {}
    }
}
