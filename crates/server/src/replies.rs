//! Where a connection's replies are written, and how a request wants them.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;
use std::time::Duration;

use kilim_bson::Document;
use kilim_wire::{
    Compressor, Flags, Header, Message, OpMsg, Opcode, Refusal, ReplyFlags, compress, decompress,
    write_op_msg, write_op_msg_head, write_op_reply,
};

use crate::limits::{BUFFER_BYTES_KEPT, MESSAGE_BYTES_FREE, REPLY_PATIENCE, WRITE_BYTES};
use crate::memory::{Memory, Share};
use crate::peer::Peer;
use crate::stream::Stream;

/// How to answer a request: in its own opcode, checksummed and compressed as it was.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) response_to: i32,
    pub(crate) legacy: bool,
    flags: Flags,
    compressor: Option<Compressor>,
}

impl Manner {
    pub(crate) fn of(header: &Header) -> Manner {
        let legacy = header.opcode != Opcode::Msg;
        Manner { response_to: header.request_id, legacy, flags: Flags::NONE, compressor: None }
    }

    /// Parses a message and notes on the way how to answer it, because one that cannot be parsed to
    /// the end may need an answer too.
    pub(crate) fn parse<'m>(
        &mut self,
        header: &Header,
        mut frame: &'m [u8],
        unpacked: &'m mut Vec<u8>,
    ) -> Result<Message<'m>, Refusal> {
        if header.response_to != 0 {
            return Err(Refusal::Close("a request that answers another message"));
        }
        let mut opcode = header.opcode;
        if opcode == Opcode::Compressed {
            let compressor = decompress(frame, unpacked)?;
            if compressor == Compressor::Noop {
                return Err(Refusal::Close("a compressor that was not offered"));
            }
            self.compressor = Some(compressor);
            frame = unpacked;
            let inner = frame.first_chunk().expect("an unpacked message begins with a header");
            opcode = Header::parse(inner)?.opcode;
            self.legacy = opcode != Opcode::Msg;
        }
        if opcode == Opcode::Msg {
            self.flags = OpMsg::parse_flags(frame)?;
        }
        Message::parse(frame).map(|(_, message)| message)
    }

    pub(crate) fn wants_reply(&self) -> bool {
        !self.flags.contains(Flags::MORE_TO_COME)
    }
}

/// Where replies are written, and how the request wants them.
#[derive(Default)]
pub(crate) struct Replies {
    pub(crate) out: Vec<u8>,
    packed: Vec<u8>,
    pub(crate) last_id: i32,
    /// The budget's bytes for the buffers.
    pub(crate) share: Option<Share>,
    /// Bytes written since they were last counted.
    pub(crate) sent: u64,
}

impl Replies {
    pub(crate) fn is_large(&self) -> bool {
        self.out.capacity() > BUFFER_BYTES_KEPT || self.packed.capacity() > BUFFER_BYTES_KEPT
    }

    pub(crate) fn give_back(&mut self) {
        (self.out, self.packed, self.share) = (Vec::new(), Vec::new(), None);
    }

    pub(crate) fn send(
        &mut self,
        peer: &Peer,
        shares: &mut Shares<'_>,
        manner: Manner,
        document: Document,
        more_to_come: bool,
    ) -> io::Result<()> {
        if manner.legacy {
            return self.send_legacy(peer, shares, manner, ReplyFlags::AWAIT_CAPABLE, document);
        }
        let mut flags = Flags(manner.flags.0 & Flags::CHECKSUM_PRESENT.0);
        if more_to_come {
            flags = flags.with(Flags::MORE_TO_COME);
        }
        let id = self.next_id();
        self.out.clear();
        let bytes = document.as_bytes().len();
        if bytes > MESSAGE_BYTES_FREE && !self.has_room_to_pack(shares, manner, bytes) {
            let behind = write_op_msg_head(&mut self.out, id, manner.response_to, flags, document.as_raw());
            return self.write_large(peer, shares, document, behind);
        }
        write_op_msg(&mut self.out, id, manner.response_to, flags, document.as_raw(), &[]);
        // Not held besides while the client takes its time.
        drop(document);
        self.write(peer, shares, manner)
    }

    /// Whether a large reply is to be compressed, and there is room for its copy and for what becomes of it. Where there
    /// is none it is sent as it is, which any reply may be.
    fn has_room_to_pack(&mut self, shares: &Shares<'_>, manner: Manner, bytes: usize) -> bool {
        if manner.compressor.is_none() {
            return false;
        }
        let bytes = 2 * bytes + MESSAGE_BYTES_FREE;
        if self.share.as_ref().is_none_or(|share| share.bytes() < bytes) {
            self.give_back();
            self.share = shares.memory.take(bytes, Duration::ZERO);
        }
        self.share.is_some()
    }

    /// Writes a large reply without another copy of it, its first part together with the head, which is in `out`: a
    /// client that is woken by the head alone has nothing to read yet.
    fn write_large(
        &mut self,
        peer: &Peer,
        shares: &mut Shares<'_>,
        document: Document,
        behind: Option<[u8; 4]>,
    ) -> io::Result<()> {
        let (head, body) = (&self.out[..], document.as_bytes());
        self.sent += (head.len() + body.len() + behind.map_or(0, |behind| behind.len())) as u64;
        let _share = shares.take(body.len());
        peer.holds(body.len());
        let first = &body[..body.len().min(WRITE_BYTES)];
        let written = write_some(&peer.stream, &[IoSlice::new(head), IoSlice::new(first)])?;
        peer.moved(written);
        let (head, body) = (&head[written.min(head.len())..], &body[written.saturating_sub(head.len())..]);
        let parts = std::iter::once(head).chain(body.chunks(WRITE_BYTES));
        for part in parts.chain(behind.as_ref().map(|behind| &behind[..])) {
            (&peer.stream).write_all(part)?;
            peer.moved(part.len());
        }
        peer.holds_nothing();
        Ok(())
    }

    pub(crate) fn send_legacy(
        &mut self,
        peer: &Peer,
        shares: &mut Shares<'_>,
        manner: Manner,
        flags: ReplyFlags,
        document: Document,
    ) -> io::Result<()> {
        let id = self.next_id();
        self.out.clear();
        write_op_reply(&mut self.out, id, manner.response_to, flags, document.as_raw());
        self.write(peer, shares, manner)
    }

    fn write(&mut self, peer: &Peer, shares: &mut Shares<'_>, manner: Manner) -> io::Result<()> {
        // Kept with the buffers, whose capacity it counts. A large reply may be small when it is compressed.
        let (length, capacity) = {
            let length = self.pack(manner)?.len();
            (length, self.out.capacity() + self.packed.capacity())
        };
        self.sent += length as u64;
        let bytes = if manner.compressor.is_some() { &self.packed } else { &self.out };
        if capacity <= 2 * MESSAGE_BYTES_FREE {
            return (&peer.stream).write_all(bytes);
        }
        if self.share.as_ref().is_none_or(|share| share.bytes() < capacity) {
            self.share = None;
            self.share = Some(shares.take(capacity));
        }
        peer.holds(capacity);
        for part in bytes.chunks(WRITE_BYTES) {
            (&peer.stream).write_all(part)?;
            peer.moved(part.len());
        }
        peer.holds_nothing();
        Ok(())
    }

    /// Sends a small reply as far as the client takes it at once. Gives the rest.
    pub(crate) fn send_now(
        &mut self,
        peer: &Peer,
        manner: Manner,
        document: Document,
    ) -> io::Result<Option<Vec<u8>>> {
        let flags = Flags(manner.flags.0 & Flags::CHECKSUM_PRESENT.0);
        let id = self.next_id();
        self.out.clear();
        write_op_msg(&mut self.out, id, manner.response_to, flags, document.as_raw(), &[]);
        let bytes = self.pack(manner)?;
        let (mut sent, all) = (0, bytes.len());
        while sent < all {
            match peer.stream.send_now(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let rest = (sent < all).then(|| bytes[sent..].to_vec());
        self.sent += all as u64;
        Ok(rest)
    }

    /// The bytes of the message in `out` as they go over the wire.
    fn pack(&mut self, manner: Manner) -> io::Result<&[u8]> {
        let Some(compressor) = manner.compressor else { return Ok(&self.out) };
        self.packed.clear();
        compress(&self.out, compressor, &mut self.packed)?;
        Ok(&self.packed)
    }

    fn next_id(&mut self) -> i32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }
}

/// Where a reply takes its share from.
pub(crate) struct Shares<'c> {
    pub(crate) memory: &'c Arc<Memory>,
    /// The share of the message that is answered.
    pub(crate) message: &'c mut Option<Share>,
}

impl Shares<'_> {
    /// Nobody waits for room while holding some: before a reply waits, its message gives its share back. The message is
    /// answered, and its buffer is used again or freed soon.
    fn take(&mut self, bytes: usize) -> Share {
        self.memory.take(bytes, Duration::ZERO).unwrap_or_else(|| {
            *self.message = None;
            self.memory.take_anyway(bytes, REPLY_PATIENCE)
        })
    }
}

/// Writes what the stream takes at once, and tells how much.
fn write_some(mut stream: &Stream, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match stream.write_vectored(parts) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}
