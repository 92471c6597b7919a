//! OP_COMPRESSED: another message, squeezed.
//!
//! The sender declares how long the message is when unpacked. That number is checked against the
//! message limit first, and bounds the unpacking; what comes out must be exactly that long. So a
//! few bytes cannot fill the memory, whatever they claim or contain.

use std::io::{self, Read};

use crate::header::{Header, Opcode, finish_frame};
use crate::{MESSAGE_BYTES_MAX, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressor {
    Noop,
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    pub fn from_id(id: u8) -> Option<Compressor> {
        Some(match id {
            0 => Compressor::Noop,
            1 => Compressor::Snappy,
            2 => Compressor::Zlib,
            3 => Compressor::Zstd,
            _ => return None,
        })
    }

    pub fn id(self) -> u8 {
        match self {
            Compressor::Noop => 0,
            Compressor::Snappy => 1,
            Compressor::Zlib => 2,
            Compressor::Zstd => 3,
        }
    }
}

/// MongoDB's own levels: what it costs to answer matters more than the last few percent of bytes.
const ZLIB_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;

/// The first step of unpacking; far less than [`MESSAGE_BYTES_MAX`], so a false claim costs little.
const UNPACK_STEP_BYTES: usize = 64 * 1024;

/// How long a compressed message says that it is when unpacked, if it is one and does not lie beyond measure.
pub fn unpacked_bytes(frame: &[u8]) -> Option<usize> {
    let (header, body) = Header::split(frame).ok()?;
    let size = body.get(4..8)?.try_into().map(i32::from_le_bytes).ok()?;
    let size = usize::try_from(size).ok().filter(|size| *size <= MESSAGE_BYTES_MAX)?;
    (header.opcode == Opcode::Compressed).then_some(Header::BYTES + size)
}

/// Unpacks a frame into `out`, replacing what it holds, as the frame that was sent uncompressed.
pub fn decompress(frame: &[u8], out: &mut Vec<u8>) -> Result<Compressor, Refusal> {
    let (header, body) = Header::split(frame)?;
    let (Opcode::Compressed, Some((preface, packed))) = (header.opcode, body.split_first_chunk::<9>()) else {
        return Err(Refusal::Close("OP_COMPRESSED is cut short"));
    };
    let [o0, o1, o2, o3, s0, s1, s2, s3, compressor] = *preface;
    let opcode = Opcode::from_number(i32::from_le_bytes([o0, o1, o2, o3]))
        .ok_or(Refusal::Close("OP_COMPRESSED holds an unknown opcode"))?;
    let compressor =
        Compressor::from_id(compressor).ok_or(Refusal::Close("OP_COMPRESSED by an unknown compressor"))?;
    let size = usize::try_from(i32::from_le_bytes([s0, s1, s2, s3]))
        .ok()
        .filter(|size| *size <= MESSAGE_BYTES_MAX - Header::BYTES)
        .ok_or(Refusal::Close("OP_COMPRESSED declares a size out of bounds"))?;

    out.clear();
    let start = Header::begin_frame(out, header.request_id, header.response_to, opcode);
    match unpack(compressor, packed, size, out) {
        Ok(()) if out.len() == Header::BYTES + size => finish_frame(out, start, 0),
        Ok(()) => return Err(Refusal::Close("OP_COMPRESSED declares another size than it holds")),
        Err(_) => return Err(Refusal::Close("OP_COMPRESSED cannot be unpacked")),
    }
    Ok(compressor)
}

/// Appends at most `size` bytes and one more, by which too much is seen.
fn unpack(compressor: Compressor, packed: &[u8], size: usize, out: &mut Vec<u8>) -> io::Result<()> {
    match compressor {
        Compressor::Noop => out.extend_from_slice(&packed[..packed.len().min(size + 1)]),
        Compressor::Snappy => {
            // Snappy says its own length; it must agree before anything is allocated.
            if snap::raw::decompress_len(packed)? != size {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // It packs at most 64 bytes into 3, so a longer claim is false without looking further.
            if size > packed.len().saturating_mul(64) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let start = out.len();
            out.resize(start + size, 0);
            snap::raw::Decoder::new().decompress(packed, &mut out[start..])?;
        }
        Compressor::Zlib => {
            out.reserve(size.min(UNPACK_STEP_BYTES));
            // What follows the end of the stream is not looked at, as on MongoDB.
            flate2::read::ZlibDecoder::new(packed).take(size as u64 + 1).read_to_end(out)?;
        }
        Compressor::Zstd => {
            out.reserve(size.min(UNPACK_STEP_BYTES));
            let mut decoder = zstd::Decoder::with_buffer(packed)?;
            // The frame names the window it wants in memory: no more than the message needs, but
            // always the 8 MiB that the format asks every reader to grant.
            decoder.window_log_max(size.max(1).ilog2().saturating_add(1).max(23))?;
            decoder.take(size as u64 + 1).read_to_end(out)?;
        }
    }
    Ok(())
}

/// Appends `frame`, a whole uncompressed message, to `out` as OP_COMPRESSED.
pub fn compress(frame: &[u8], compressor: Compressor, out: &mut Vec<u8>) -> io::Result<()> {
    let (header, body) = Header::split(frame)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not one whole message"))?;
    let start = Header::begin_frame(out, header.request_id, header.response_to, Opcode::Compressed);
    out.extend_from_slice(&(header.opcode as i32).to_le_bytes());
    out.extend_from_slice(&(body.len() as i32).to_le_bytes());
    out.push(compressor.id());
    match compressor {
        Compressor::Noop => out.extend_from_slice(body),
        Compressor::Snappy => {
            let at = out.len();
            out.resize(at + snap::raw::max_compress_len(body.len()), 0);
            let written = snap::raw::Encoder::new().compress(body, &mut out[at..])?;
            out.truncate(at + written);
        }
        Compressor::Zlib => {
            let level = flate2::Compression::new(ZLIB_LEVEL);
            flate2::read::ZlibEncoder::new(body, level).read_to_end(out)?;
        }
        Compressor::Zstd => zstd::stream::copy_encode(body, &mut *out, ZSTD_LEVEL)?,
    }
    finish_frame(out, start, 0);
    Ok(())
}
