//! The sixteen bytes that every message begins with.

use crate::{MESSAGE_BYTES_MAX, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the whole message, these sixteen bytes included.
    pub length: usize,
    pub request_id: i32,
    /// The `request_id` that a reply answers; zero in a request.
    pub response_to: i32,
    pub opcode: Opcode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Opcode {
    Invalid = 0,
    Reply = 1,
    Query = 2004,
    GetMore = 2005,
    Compressed = 2012,
    Msg = 2013,
}

impl Opcode {
    pub fn from_number(number: i32) -> Option<Opcode> {
        Some(match number {
            0 => Opcode::Invalid,
            1 => Opcode::Reply,
            2004 => Opcode::Query,
            2005 => Opcode::GetMore,
            2012 => Opcode::Compressed,
            2013 => Opcode::Msg,
            _ => return None,
        })
    }
}

impl Header {
    pub const BYTES: usize = 16;

    /// Says how much to read before [`crate::Message::parse`]. A length or opcode that cannot be
    /// leaves no way to find the next message, so the connection ends.
    pub fn parse(bytes: &[u8; Header::BYTES]) -> Result<Header, Refusal> {
        let number = |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let length = usize::try_from(number(0)).unwrap_or(0);
        if !(Header::BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Refusal::Close("message length out of bounds"));
        }
        let opcode = Opcode::from_number(number(12)).ok_or(Refusal::Close("unknown opcode"))?;
        Ok(Header { length, request_id: number(4), response_to: number(8), opcode })
    }

    /// The header of a whole frame, and the bytes behind it.
    pub(crate) fn split(frame: &[u8]) -> Result<(Header, &[u8]), Refusal> {
        let (head, body) =
            frame.split_first_chunk().ok_or(Refusal::Close("message shorter than its header"))?;
        let header = Header::parse(head)?;
        if header.length != frame.len() {
            return Err(Refusal::Close("message length differs from the bytes received"));
        }
        Ok((header, body))
    }

    /// Appends a header whose length [`finish_frame`] fills in; gives the frame's start.
    pub(crate) fn begin_frame(out: &mut Vec<u8>, request_id: i32, response_to: i32, opcode: Opcode) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for number in [request_id, response_to, opcode as i32] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        start
    }
}

/// Writes the length of the frame that began at `start` and ends here.
pub(crate) fn finish_frame(out: &mut [u8], start: usize, bytes_to_come: usize) {
    let length = (out.len() - start + bytes_to_come) as i32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: [i32; 4]) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_header_is_four_little_endian_numbers() {
        let header = Header::parse(&bytes([48_000_000, -7, 3, 2013])).unwrap();
        let expected = Header { length: 48_000_000, request_id: -7, response_to: 3, opcode: Opcode::Msg };
        assert_eq!(header, expected);
    }

    #[test]
    fn a_length_or_opcode_that_cannot_be_ends_the_connection() {
        for (length, opcode) in [
            (0, 2013),
            (15, 2013),
            (-1, 2013),
            (i32::MIN, 2013),
            (48_000_001, 2013),
            (i32::MAX, 2013),
            (16, 9999),
            (16, 2001),
            (16, 2002),
            (16, 2006),
            (16, 2007),
            (16, 2010),
            (16, -2013),
        ] {
            let parsed = Header::parse(&bytes([length, 1, 0, opcode]));
            assert!(matches!(parsed, Err(Refusal::Close(_))), "{length} {opcode}: {parsed:?}");
        }
    }
}
