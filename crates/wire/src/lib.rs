//! MongoDB's wire protocol as bytes: messages are parsed from a whole frame and appended to a buffer.
//!
//! There are no sockets here. A *frame* is a whole message, header included; whoever reads a stream
//! asks [`Header::parse`] how long the frame is. Then [`decompress`] if the header says so, and
//! [`Message::parse`]. The same functions serve the server and the clients of the test kit.
//!
//! Invariant: nothing borrowed from a parsed message is unvalidated BSON, and no allocation follows
//! a length that the sender merely claims.

mod header;
mod op_compressed;
mod op_msg;
mod op_query;
mod refusal;

pub use header::{Header, Opcode};
pub use op_compressed::{Compressor, compress, decompress, unpacked_bytes};
pub use op_msg::{Flags, OpMsg, Sequence, write_op_msg, write_op_msg_head};
pub use op_query::{OpQuery, OpReply, ReplyFlags, write_op_query, write_op_reply};
pub use refusal::Refusal;

use kilim_bson::RawDocument;
use kilim_error::{Error, ErrorCode};

/// The longest message, header included; `maxMessageSizeBytes` of hello.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;

/// The longest document in a message: 16 MiB for what users store, and 16 KiB for the command around it.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// A parsed message. Requests are `Msg` and `Query`; `Reply` answers a `Query`.
#[derive(Debug, Clone, PartialEq)]
pub enum Message<'a> {
    Msg(OpMsg<'a>),
    Query(OpQuery<'a>),
    Reply(OpReply<'a>),
}

impl<'a> Message<'a> {
    /// Parses a whole frame whose header says how long it is; a compressed one is refused, because
    /// its documents would have nowhere to live: see [`decompress`].
    pub fn parse(frame: &'a [u8]) -> Result<(Header, Message<'a>), Refusal> {
        let (header, body) = Header::split(frame)?;
        let message = match header.opcode {
            Opcode::Msg => Message::Msg(OpMsg::parse(frame)?),
            Opcode::Query => Message::Query(OpQuery::parse(body)?),
            Opcode::Reply => Message::Reply(OpReply::parse(body)?),
            // MongoDB drops these two without a word and goes on.
            Opcode::Compressed | Opcode::Invalid => return Err(Refusal::Ignore),
            Opcode::GetMore => return Err(op_query::no_longer_supported("OP_GET_MORE")),
        };
        Ok((header, message))
    }
}

/// The document at the head of `bytes`, validated, and what follows it.
fn parse_document(bytes: &[u8]) -> Result<(RawDocument<'_>, &[u8]), Error> {
    if let Some((length, _)) = bytes.split_first_chunk::<4>() {
        let length = i32::from_le_bytes(*length);
        // Only if the bytes are there: a length that lies is malformed, not too large.
        if length as usize > DOCUMENT_BYTES_MAX && (0..=bytes.len() as i64).contains(&i64::from(length)) {
            return Err(Error::user(
                ErrorCode::BSONObjectTooLarge,
                format!(
                    "BSONObj size: {length} (0x{length:X}) is invalid. \
                     Size must be between 0 and {DOCUMENT_BYTES_MAX}(16MB)"
                ),
            ));
        }
    }
    RawDocument::parse_prefix(bytes).map_err(Into::into)
}
