//! What mongod 6.0.5 answers to malformed messages, asked with a raw socket, and so do we.
//!
//! `Close` is a connection that ends, `Answer` an error reply with the connection going on, `Ignore`
//! silence with the connection going on.

use kilim_bson::{Document, doc};
use kilim_wire::{Compressor, Flags, Header, Message, Opcode, Refusal, compress, decompress, write_op_msg};

#[derive(Debug, PartialEq)]
enum Outcome {
    Parsed,
    Close,
    Ignore,
    Answer(i32),
    QueryFailure(i32),
}
use Outcome::*;

fn outcome<T>(parsed: Result<T, Refusal>) -> Outcome {
    match parsed {
        Ok(_) => Parsed,
        Err(Refusal::Close(_)) => Close,
        Err(Refusal::Ignore) => Ignore,
        Err(Refusal::Answer(error)) => Answer(error.code().0),
        Err(Refusal::AnswerQueryFailure(error)) => QueryFailure(error.code().0),
    }
}

fn frame(opcode: i32, parts: &[&[u8]]) -> Vec<u8> {
    let length = 16 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut frame = Vec::new();
    for number in [length as i32, 7, 0, opcode] {
        frame.extend_from_slice(&number.to_le_bytes());
    }
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    frame
}

fn check_msg(name: &str, flags: u32, sections: &[&[u8]], expected: Outcome) {
    let flags = flags.to_le_bytes();
    let parts: Vec<&[u8]> = std::iter::once(&flags[..]).chain(sections.iter().copied()).collect();
    assert_eq!(outcome(Message::parse(&frame(2013, &parts))), expected, "{name}");
}

fn body(document: &Document) -> Vec<u8> {
    [&[0], document.as_bytes()].concat()
}

fn sequence(size: Option<i32>, name: &[u8], documents: &[u8]) -> Vec<u8> {
    let size = size.unwrap_or((4 + name.len() + documents.len()) as i32);
    [&[1], &size.to_le_bytes()[..], name, documents].concat()
}

#[test]
fn frames_that_are_not_messages() {
    for (name, bytes, expected) in [
        ("shorter than a header", vec![16, 0, 0, 0], Close),
        ("header only", frame(2013, &[]), Close),
        ("one byte", frame(2013, &[b"x"]), Close),
        ("opcode 0", frame(0, &[b"anything"]), Ignore),
        ("OP_INSERT", frame(2002, &[b"anything"]), Close),
        ("OP_GET_MORE", frame(2005, &[b"anything"]), QueryFailure(5739101)),
        ("OP_KILL_CURSORS", frame(2007, &[b"anything"]), Close),
        ("unknown opcode", frame(9999, &[b"anything"]), Close),
        ("OP_COMPRESSED inside OP_COMPRESSED", frame(2012, &[b"anything"]), Ignore),
    ] {
        assert_eq!(outcome(Message::parse(&bytes)), expected, "{name}");
    }
}

#[test]
fn op_msg() {
    let ping = body(&doc! {"ping": 1, "$db": "admin"});
    let insert = body(&doc! {"insert": "c", "$db": "t"});
    let one = doc! {"a": 1};
    let documents = sequence(None, b"documents\0", one.as_bytes());

    check_msg("a ping", 0, &[&ping], Parsed);
    check_msg("no sections", 0, &[], Answer(40587));
    for bit in 2..16 {
        check_msg("an unknown required flag", 1 << bit, &[&ping], Close);
    }
    for bit in 16..32 {
        check_msg("an optional flag", 1 << bit, &[&ping], Parsed);
    }
    check_msg("a wrong checksum", 1, &[&ping, &[1, 2, 3, 4]], Close);
    check_msg("a checksum and no bytes", 1, &[], Answer(51252));
    check_msg("a checksum and one byte", 1, &[&[0]], Answer(51252));
    check_msg("a checksum of nothing", 1, &[&[0; 4]], Answer(51252));
    check_msg("two bodies", 0, &[&ping, &ping], Answer(40430));
    check_msg("a zero byte after the body", 0, &[&ping, &[0]], Answer(40430));
    check_msg("no body", 0, &[&documents], Answer(40587));
    check_msg("a security token", 0, &[&[2], &ping[1..]], Answer(13));
    check_msg("an unknown kind", 0, &[&ping, &[255]], Answer(40432));
    check_msg("a sequence before the body", 0, &[&documents, &insert], Parsed);
    check_msg("a sequence after the body", 0, &[&insert, &documents], Parsed);
    check_msg("a sequence twice", 0, &[&insert, &documents, &documents], Answer(40431));
    let both = body(&doc! {"insert": "c", "documents": [{"a": 1}], "$db": "t"});
    check_msg("a sequence that is also a field", 0, &[&both, &documents], Answer(40433));
    check_msg("an empty sequence", 0, &[&insert, &sequence(None, b"documents\0", b"")], Parsed);
}

#[test]
fn op_msg_sequences_that_lie() {
    let insert = body(&doc! {"insert": "c", "$db": "t"});
    let one = doc! {"a": 1};
    let one = one.as_bytes();
    for (name, section, expected) in [
        ("size cut short", vec![1, 0, 0], Answer(15)),
        ("size below itself", sequence(Some(3), b"documents\0", one), Answer(15)),
        ("size of itself alone", sequence(Some(4), b"", b""), Answer(15)),
        ("size past the end", sequence(Some(1000), b"documents\0", one), Answer(15)),
        ("negative size", sequence(Some(-1), b"documents\0", one), Answer(15)),
        ("name without end", sequence(None, b"abc", b""), Answer(15)),
        ("name that is not UTF-8", sequence(None, b"\xFF\xFE\0", one), Answer(40415)),
        ("document cut short", sequence(None, b"documents\0", &one[..8]), Answer(22)),
        ("three bytes for a document", sequence(None, b"documents\0", b"abc"), Answer(22)),
    ] {
        check_msg(name, 0, &[&insert, &section], expected);
    }
}

#[test]
fn op_msg_documents_that_lie() {
    let ping = doc! {"ping": 1, "$db": "admin"};
    let ping = ping.as_bytes();
    let with_length = |length: i32| [&[0], &length.to_le_bytes()[..], &ping[4..]].concat();
    let mut unknown_type = [&[0], ping].concat();
    unknown_type[5] = 0x20;
    let mut unfinished = [&[0], ping].concat();
    *unfinished.last_mut().unwrap() = 1;
    for (name, section, expected) in [
        ("length past the end", with_length(1000), Answer(22)),
        ("length of four", with_length(4), Answer(22)),
        ("negative length", with_length(-5), Answer(22)),
        ("length cut short", vec![0, 5, 0], Answer(22)),
        ("unknown type", unknown_type, Answer(22)),
        ("no final zero", unfinished, Answer(22)),
    ] {
        check_msg(name, 0, &[&section], expected);
    }
}

#[test]
fn documents_may_be_sixteen_mebibytes_and_sixteen_kibibytes() {
    let of_bytes = |bytes: usize| {
        let text = "x".repeat(bytes - doc! {"ping": ""}.as_bytes().len());
        body(&doc! {"ping": text.as_str()})
    };
    check_msg("the longest", 0, &[&of_bytes(16_793_600)], Parsed);
    check_msg("one too many", 0, &[&of_bytes(16_793_601)], Answer(10334));
}

#[test]
fn op_query() {
    let hello = doc! {"isMaster": 1};
    let number = |number: i32| number.to_le_bytes();
    let query = |flags: i32, namespace: &[u8], count: i32, document: &[u8], more: &[u8]| {
        frame(2004, &[&number(flags), namespace, &number(0), &number(count), document, more])
    };
    let admin = b"admin.$cmd\0";
    let plain = |document: &Document| query(0, admin, -1, document.as_bytes(), b"");
    let mut bad_type = hello.as_bytes().to_vec();
    bad_type[4] = 0x20;

    for (name, bytes, expected) in [
        ("isMaster", plain(&hello), Parsed),
        ("hello", plain(&doc! {"hello": 1}), Parsed),
        ("buildInfo", plain(&doc! {"buildInfo": 1}), Parsed),
        ("saslStart", plain(&doc! {"saslStart": 1}), Parsed),
        ("wrapped", plain(&doc! {"$query": {"isMaster": 1}}), Parsed),
        ("wrapped without the sign", plain(&doc! {"query": {"isMaster": 1}}), Parsed),
        ("returning one", query(0, admin, 1, hello.as_bytes(), b""), Parsed),
        ("another database", query(0, b"test.$cmd\0", -1, hello.as_bytes(), b""), Parsed),
        ("a projection", query(0, admin, -1, hello.as_bytes(), doc! {}.as_bytes()), Parsed),
        ("ping", plain(&doc! {"ping": 1}), Answer(352)),
        ("getnonce", plain(&doc! {"getnonce": 1}), Answer(352)),
        ("an unknown command", plain(&doc! {"nope": 1}), Answer(352)),
        ("an empty command", plain(&doc! {}), Answer(352)),
        ("a $db", plain(&doc! {"isMaster": 1, "$db": "x"}), Answer(40621)),
        ("returning none", query(0, admin, 0, hello.as_bytes(), b""), Answer(16979)),
        ("returning two", query(0, admin, 2, hello.as_bytes(), b""), Answer(16979)),
        ("exhaust", query(64, admin, -1, hello.as_bytes(), b""), Answer(18527)),
        ("bytes after it", query(0, admin, -1, hello.as_bytes(), b"abc"), Answer(22)),
        ("a document cut short", query(0, admin, -1, &hello.as_bytes()[..12], b""), Answer(22)),
        ("an unknown type", query(0, admin, -1, &bad_type, b""), Answer(22)),
        ("no document", query(0, admin, -1, b"", b""), Answer(22)),
        ("no count", frame(2004, &[&number(0), admin, &number(0)]), Answer(18634)),
        ("no database", query(0, b".$cmd\0", -1, hello.as_bytes(), b""), Answer(73)),
        ("a find", query(0, b"test.c\0", -1, hello.as_bytes(), b""), QueryFailure(5739101)),
        ("no namespace", query(0, b"\0", -1, hello.as_bytes(), b""), QueryFailure(5739101)),
        ("currentOp", query(0, b"admin.$cmd.sys.inprog\0", -1, hello.as_bytes(), b""), QueryFailure(5739101)),
        ("a namespace without end", frame(2004, &[&number(0), b"admin"]), Close),
        ("flags alone", frame(2004, &[&number(0)]), Close),
    ] {
        assert_eq!(outcome(Message::parse(&bytes)), expected, "{name}");
    }
}

/// A frame of `compressor` that declares `size`, or the true size, and holds `packed`.
fn compressed(compressor: u8, opcode: i32, size: i32, packed: &[u8]) -> Vec<u8> {
    frame(2012, &[&opcode.to_le_bytes(), &size.to_le_bytes(), &[compressor], packed])
}

#[test]
fn op_compressed() {
    let mut plain = Vec::new();
    write_op_msg(&mut plain, 7, 0, Flags::NONE, doc! {"ping": 1, "$db": "admin"}.as_raw(), &[]);
    let size = (plain.len() - Header::BYTES) as i32;
    let mut out = Vec::new();
    let mut check = |name: &str, bytes: &[u8], expected: Outcome| {
        assert_eq!(outcome(decompress(bytes, &mut out)), expected, "{name}");
        // The buffer grew by what was there, not by what was claimed.
        assert!(out.capacity() < 1 << 20, "{name}: {} bytes allocated", out.capacity());
    };
    check("an unknown compressor", &compressed(4, 2013, size, b"x"), Close);
    check("the last compressor", &compressed(255, 2013, size, b"x"), Close);
    check("a preface cut short", &frame(2012, &[b"abc"]), Close);
    check("an unknown opcode", &compressed(1, 9999, size, b"x"), Close);

    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut whole = Vec::new();
        compress(&plain, compressor, &mut whole).unwrap();
        let packed = &whole[Header::BYTES + 9..];
        let id = compressor.id();
        check("as it should be", &compressed(id, 2013, size, packed), Parsed);
        for wrong in [size + 1, size - 1, 0, -5, i32::MIN, 47_999_984, 47_999_985, 48_000_001, i32::MAX] {
            check(&format!("{compressor:?} declares {wrong}"), &compressed(id, 2013, wrong, packed), Close);
        }
        check("garbage", &compressed(id, 2013, size, b"garbagegarbage"), Close);
        check("nothing", &compressed(id, 2013, size, b""), Close);
        let after_the_end = if compressor == Compressor::Zlib { Parsed } else { Close };
        check("bytes after it", &compressed(id, 2013, size, &[packed, b"xyz"].concat()), after_the_end);
        check("cut short", &compressed(id, 2013, size, &packed[..packed.len() - 3]), Close);
    }
}

#[test]
fn a_small_message_that_unpacks_to_much_stops_at_what_it_declared() {
    let text = "x".repeat(15_000_000);
    let mut plain = Vec::new();
    write_op_msg(&mut plain, 7, 0, Flags::NONE, doc! {"ping": text.as_str()}.as_raw(), &[]);
    for compressor in [Compressor::Zlib, Compressor::Zstd, Compressor::Snappy] {
        let mut bomb = Vec::new();
        compress(&plain, compressor, &mut bomb).unwrap();
        bomb[20..24].copy_from_slice(&100i32.to_le_bytes());
        let mut out = Vec::new();
        assert_eq!(outcome(decompress(&bomb, &mut out)), Close, "{compressor:?}");
        assert!(out.capacity() < 1 << 20, "{compressor:?}: {} bytes allocated", out.capacity());
    }
}

#[test]
fn a_compressed_message_within_another_is_not_unpacked_twice() {
    let mut plain = Vec::new();
    write_op_msg(&mut plain, 7, 0, Flags::NONE, doc! {"ping": 1}.as_raw(), &[]);
    let (mut inner, mut outer, mut out) = (Vec::new(), Vec::new(), Vec::new());
    compress(&plain, Compressor::Snappy, &mut inner).unwrap();
    compress(&inner, Compressor::Snappy, &mut outer).unwrap();
    decompress(&outer, &mut out).unwrap();
    assert_eq!(Header::parse(out[..16].try_into().unwrap()).unwrap().opcode, Opcode::Compressed);
    assert_eq!(outcome(Message::parse(&out)), Ignore);
}
