//! Whole messages out of a stream of bytes.
//!
//! One read usually brings one message; it may bring half of one or several. The buffer doubles as
//! it fills, up to the length that the header claims, so a header that lies costs no memory.

use std::io::{self, Read};

use kilim_wire::{Header, Refusal};

use crate::limits::{BUFFER_BYTES, BUFFER_BYTES_KEPT, MESSAGE_BYTES_FREE};

pub(crate) struct Frames {
    /// All of it initialised; `start..end` is what was read and not yet taken.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How long a message may be that is read to its end.
    allowed: usize,
}

pub(crate) enum Next {
    /// A whole message lies at the front: see [`Frames::front`].
    Frame(Header),
    /// A large message begins, and waits for [`Frames::allow`] before more of it is read.
    Large(Header),
    /// The peer has closed its side, perhaps in the middle of a message.
    End,
    Refused(Refusal),
}

impl Frames {
    pub(crate) fn new() -> Frames {
        Frames { buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, allowed: MESSAGE_BYTES_FREE }
    }

    /// Reads until a whole message is there.
    pub(crate) fn next(&mut self, stream: &mut impl Read) -> io::Result<Next> {
        loop {
            let mut wanted = Header::BYTES;
            if let Some(head) = self.received().first_chunk() {
                match Header::parse(head) {
                    Ok(header) if header.length <= self.received().len() => return Ok(Next::Frame(header)),
                    Ok(header) if header.length > self.allowed => return Ok(Next::Large(header)),
                    Ok(header) => wanted = header.length,
                    Err(refusal) => return Ok(Next::Refused(refusal)),
                }
            }
            self.make_room(wanted);
            match stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(Next::End),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the next message be so long.
    pub(crate) fn allow(&mut self, length: usize) {
        self.allowed = length;
    }

    /// The message that [`Frames::next`] found.
    pub(crate) fn front(&self, header: &Header) -> &[u8] {
        &self.received()[..header.length]
    }

    /// Takes the message away.
    pub(crate) fn consume(&mut self, header: &Header) {
        self.start += header.length;
        self.allowed = MESSAGE_BYTES_FREE;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    pub(crate) fn received(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// What the buffer takes.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn is_large(&self) -> bool {
        self.buffer.len() > BUFFER_BYTES_KEPT
    }

    /// Whether a message is being read that was allowed to be large.
    pub(crate) fn is_in_large(&self) -> bool {
        self.allowed > MESSAGE_BYTES_FREE
    }

    /// Gives a large buffer back, unless much is in it. The beginning of a message moves into a new one.
    pub(crate) fn shrink(&mut self) {
        if self.is_large() && self.received().len() < BUFFER_BYTES_KEPT {
            let mut buffer = self.received().to_vec();
            let end = buffer.len();
            buffer.resize(end.max(BUFFER_BYTES), 0);
            *self = Frames { buffer, start: 0, end, allowed: self.allowed };
        }
    }

    /// Makes the buffer end behind `self.end`, and not beyond what `wanted` needs.
    fn make_room(&mut self, wanted: usize) {
        if self.buffer.len() - self.start < wanted && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            let doubled = self.buffer.len() * 2;
            self.buffer.resize(doubled.min(wanted.max(self.buffer.len() + 1)), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;
    use kilim_wire::{Flags, Message, write_op_msg};

    use super::*;

    /// Hands out its bytes in pieces.
    struct Pieces<'a> {
        bytes: &'a [u8],
        piece: usize,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            assert!(!out.is_empty(), "a read without room would look like the end");
            let count = self.piece.min(self.bytes.len()).min(out.len());
            out[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes = &self.bytes[count..];
            Ok(count)
        }
    }

    #[test]
    fn messages_arrive_whole_however_they_are_cut() {
        let mut bytes = Vec::new();
        for (id, length) in [(1, 10), (2, 30_000), (3, 0), (4, 4_000), (5, 100)] {
            let text = "x".repeat(length);
            write_op_msg(&mut bytes, id, 0, Flags::NONE, doc! {"text": text.as_str()}.as_raw(), &[]);
        }
        for piece in [1, 7, 16, 100, 4096, 1 << 20] {
            let mut stream = Pieces { bytes: &bytes, piece };
            let mut frames = Frames::new();
            let mut ids = Vec::new();
            while let Next::Frame(header) = frames.next(&mut stream).unwrap() {
                ids.push(Message::parse(frames.front(&header)).unwrap().0.request_id);
                frames.consume(&header);
            }
            assert_eq!(ids, [1, 2, 3, 4, 5], "in pieces of {piece}");
        }
    }

    #[test]
    fn a_length_that_lies_allocates_no_more_than_twice_what_arrived() {
        let mut bytes = Vec::new();
        for number in [48_000_000i32, 1, 0, 2013] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(10_000, 0);
        let mut frames = Frames::new();
        let stream = &mut Pieces { bytes: &bytes, piece: 999 };
        assert!(matches!(frames.next(stream).unwrap(), Next::Large(_)), "its header alone is read");
        frames.allow(48_000_000);
        assert!(matches!(frames.next(stream).unwrap(), Next::End));
        assert!(frames.buffer.len() <= 20_000, "{}", frames.buffer.len());
    }

    #[test]
    fn a_large_buffer_is_given_back_when_nothing_is_in_it() {
        let mut bytes = Vec::new();
        let text = "x".repeat(1 << 20);
        write_op_msg(&mut bytes, 1, 0, Flags::NONE, doc! {"text": text.as_str()}.as_raw(), &[]);
        let mut frames = Frames::new();
        frames.allow(bytes.len());
        let Next::Frame(header) = frames.next(&mut &bytes[..]).unwrap() else { panic!("a whole message") };
        frames.shrink();
        assert!(frames.is_large(), "not while a message is in it");
        frames.consume(&header);
        frames.shrink();
        assert_eq!(frames.buffer.len(), BUFFER_BYTES);
    }

    #[test]
    fn a_large_buffer_is_given_back_when_the_next_message_has_only_begun() {
        let mut bytes = Vec::new();
        for (id, length) in [(1, 1 << 20), (2, 100)] {
            let text = "x".repeat(length);
            write_op_msg(&mut bytes, id, 0, Flags::NONE, doc! {"text": text.as_str()}.as_raw(), &[]);
        }
        let (begun, rest) = bytes.split_at(bytes.len() - 50);
        let mut frames = Frames::new();
        frames.allow(begun.len());
        let Next::Frame(header) = frames.next(&mut &begun[..]).unwrap() else { panic!("a whole message") };
        frames.consume(&header);
        assert!(matches!(frames.next(&mut &begun[header.length..]).unwrap(), Next::End));
        assert!(frames.is_large());
        frames.shrink();
        assert_eq!(frames.buffer.len(), BUFFER_BYTES);
        let Next::Frame(header) = frames.next(&mut &rest[..]).unwrap() else { panic!("the second message") };
        assert_eq!(Message::parse(frames.front(&header)).unwrap().0.request_id, 2);
    }
}
