//! OP_MSG: flags, one body, any number of document sequences, perhaps a checksum.
//!
//! Sequences spare the client from wrapping thousands of documents into one array; commands see
//! them as array fields of the body.

use kilim_bson::RawDocument;
use kilim_error::{Error, ErrorCode};

use crate::header::{Header, Opcode, finish_frame};
use crate::{Refusal, parse_document};

/// The flag bits of a message. The upper sixteen may be ignored, the lower must be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u32);

impl Flags {
    pub const NONE: Flags = Flags(0);
    /// The last four bytes are a CRC-32C of all before them.
    pub const CHECKSUM_PRESENT: Flags = Flags(1);
    /// The sender will send another message without waiting: a request wants no reply, a reply is
    /// followed by another.
    pub const MORE_TO_COME: Flags = Flags(1 << 1);
    /// The client takes several replies to this request.
    pub const EXHAUST_ALLOWED: Flags = Flags(1 << 16);

    const REQUIRED: u32 = 0xFFFF;

    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OpMsg<'a> {
    pub flags: Flags,
    pub body: RawDocument<'a>,
    pub sequences: Vec<Sequence<'a>>,
}

/// A document sequence: `documents` of an insert, `updates` of an update.
#[derive(Debug, Clone, PartialEq)]
pub struct Sequence<'a> {
    pub name: &'a str,
    pub documents: Vec<RawDocument<'a>>,
}

const KIND_BODY: u8 = 0;
const KIND_SEQUENCE: u8 = 1;
/// Present in MongoDB 6.0 for its own multitenancy; refused there without the feature.
const KIND_SECURITY_TOKEN: u8 = 2;
const CHECKSUM_BYTES: usize = 4;

impl<'a> OpMsg<'a> {
    /// The flags of a frame, if they can be trusted. They are asked for apart from the rest because
    /// they say whether, and how, a fault in the rest is answered.
    pub fn parse_flags(frame: &[u8]) -> Result<Flags, Refusal> {
        let flags = frame.get(Header::BYTES..).and_then(|body| body.first_chunk());
        let flags = Flags(u32::from_le_bytes(*flags.ok_or(Refusal::Close("OP_MSG without flags"))?));
        let known = Flags::CHECKSUM_PRESENT.with(Flags::MORE_TO_COME);
        if flags.0 & Flags::REQUIRED & !known.0 != 0 {
            return Err(Refusal::Close("OP_MSG with unknown required flags"));
        }
        Ok(flags)
    }

    /// Takes the whole frame, because a checksum covers the header too.
    pub(crate) fn parse(frame: &'a [u8]) -> Result<OpMsg<'a>, Refusal> {
        let flags = OpMsg::parse_flags(frame)?;
        let mut rest = &frame[Header::BYTES + 4..];
        if flags.contains(Flags::CHECKSUM_PRESENT) {
            let (sections, checksum) =
                rest.split_last_chunk().filter(|(sections, _)| !sections.is_empty()).ok_or_else(|| {
                    Error::location(51252, "Invalid message size for an OpMsg containing a checksum")
                })?;
            let covered = &frame[..frame.len() - CHECKSUM_BYTES];
            if crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
                return Err(Refusal::Close("OP_MSG checksum does not match"));
            }
            rest = sections;
        }

        let mut body = None;
        let mut sequences: Vec<Sequence<'a>> = Vec::new();
        while let Some((&kind, after)) = rest.split_first() {
            match kind {
                KIND_BODY => {
                    if body.is_some() {
                        return Err(Error::location(40430, "Multiple body sections in message").into());
                    }
                    let (document, after) = parse_document(after)?;
                    body = Some(document);
                    rest = after;
                }
                KIND_SEQUENCE => {
                    let (sequence, after) = Sequence::parse(after)?;
                    if sequences.iter().any(|other| other.name == sequence.name) {
                        let message = format!("Duplicate document sequence: {}", sequence.name);
                        return Err(Error::location(40431, message).into());
                    }
                    sequences.push(sequence);
                    rest = after;
                }
                KIND_SECURITY_TOKEN => {
                    let message = "Unsupported Security Token provided";
                    return Err(Error::user(ErrorCode::Unauthorized, message).into());
                }
                kind => return Err(Error::location(40432, format!("Unknown section kind {kind}")).into()),
            }
        }

        let body = body.ok_or_else(|| Error::location(40587, "OP_MSG messages must have a body"))?;
        for sequence in &sequences {
            if body.get(sequence.name).is_some() {
                let message = format!("Duplicate field between body and document sequence {}", sequence.name);
                return Err(Error::location(40433, message).into());
            }
        }
        Ok(OpMsg { flags, body, sequences })
    }
}

impl<'a> Sequence<'a> {
    /// A section behind its kind byte: a size that counts itself, a name, documents to the end.
    fn parse(bytes: &'a [u8]) -> Result<(Sequence<'a>, &'a [u8]), Error> {
        let overflow = |message: String| Error::user(ErrorCode::Overflow, message);
        let Some((size, after)) = bytes.split_first_chunk::<4>() else {
            return Err(overflow(format!(
                "buffer size too small to read (4) bytes out of buffer[{}] at offset: 0",
                bytes.len()
            )));
        };
        let inner = u32::from_le_bytes(*size).wrapping_sub(4);
        let Some((mut section, rest)) = after.split_at_checked(inner as usize) else {
            return Err(overflow(format!(
                "Invalid advance ({inner}) past end of buffer[{}] at offset: 0",
                after.len()
            )));
        };
        let Some(end) = section.iter().position(|&byte| byte == 0) else {
            return Err(overflow(format!(
                "couldn't locate terminal char (\\u0000) in buffer[{}] at offset: 0",
                section.len()
            )));
        };
        let name = std::str::from_utf8(&section[..end]).map_err(|_| {
            // No command has such a field, so this is the unknown field that it would be.
            let name = String::from_utf8_lossy(&section[..end]);
            Error::location(40415, format!("BSON field '{name}' is an unknown field."))
        })?;
        section = &section[end + 1..];
        let mut documents = Vec::new();
        while !section.is_empty() {
            let (document, after) = parse_document(section)?;
            documents.push(document);
            section = after;
        }
        Ok((Sequence { name, documents }, rest))
    }
}

/// Appends a message to `out`; [`Flags::CHECKSUM_PRESENT`] appends the checksum too.
pub fn write_op_msg(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: Flags,
    body: RawDocument<'_>,
    sequences: &[Sequence<'_>],
) {
    let start = Header::begin_frame(out, request_id, response_to, Opcode::Msg);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.push(KIND_BODY);
    out.extend_from_slice(body.as_bytes());
    for sequence in sequences {
        out.push(KIND_SEQUENCE);
        let size_at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(sequence.name.as_bytes());
        out.push(0);
        for document in &sequence.documents {
            out.extend_from_slice(document.as_bytes());
        }
        let size = (out.len() - size_at) as i32;
        out[size_at..size_at + 4].copy_from_slice(&size.to_le_bytes());
    }
    if flags.contains(Flags::CHECKSUM_PRESENT) {
        finish_frame(out, start, CHECKSUM_BYTES);
        let checksum = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    } else {
        finish_frame(out, start, 0);
    }
}

/// Appends to `out` what comes before the body of a message that has nothing else, and gives what comes behind it: the
/// checksum, if [`Flags::CHECKSUM_PRESENT`] asks for one. So a large body need not be copied.
pub fn write_op_msg_head(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: Flags,
    body: RawDocument<'_>,
) -> Option<[u8; CHECKSUM_BYTES]> {
    let start = Header::begin_frame(out, request_id, response_to, Opcode::Msg);
    out.extend_from_slice(&flags.0.to_le_bytes());
    out.push(KIND_BODY);
    let has_checksum = flags.contains(Flags::CHECKSUM_PRESENT);
    finish_frame(out, start, body.as_bytes().len() + if has_checksum { CHECKSUM_BYTES } else { 0 });
    let checksum = || crc32c::crc32c_append(crc32c::crc32c(&out[start..]), body.as_bytes());
    has_checksum.then(|| checksum().to_le_bytes())
}
