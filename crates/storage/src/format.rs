//! The keys that the storage crate keeps for itself in `Meta`, and the format version.
//!
//! All of them begin with byte 0; the engine's keys begin with another byte, and its scans of `Meta` never see
//! these. Everything here is on disk.

use crate::space::Bytes;
use kilim_error::{Error, Result, StorageError};

/// The version of the whole layout: keyspaces, the keys below, and the engine's encodings.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// What the version value begins with, so that a foreign fjall directory is told from ours.
const MAGIC: &[u8; 8] = b"kilim\0db";

/// The first byte of every key here.
pub(crate) const OWN: u8 = 0;

pub(crate) const VERSION_KEY: [u8; 2] = [OWN, b'v'];
/// The commit time of the newest batch, 8 bytes little-endian.
pub(crate) const COMMIT_TIME_KEY: [u8; 2] = [OWN, b't'];
/// Followed by the engine's key for the counter.
const COUNTER_PREFIX: [u8; 2] = [OWN, b'c'];
/// Followed by the space's number and the dead prefix.
pub(crate) const DEAD_PREFIX: [u8; 2] = [OWN, b'd'];

pub(crate) fn counter_key(key: &[u8]) -> Bytes {
    let mut own = Vec::with_capacity(2 + key.len());
    own.extend_from_slice(&COUNTER_PREFIX);
    own.extend_from_slice(key);
    Bytes::from(own)
}

pub(crate) fn encode_version() -> Bytes {
    let mut value = MAGIC.to_vec();
    value.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    Bytes::from(value)
}

/// Refuses a format that this program does not know, by name.
pub(crate) fn check_version(stored: &[u8]) -> Result<()> {
    let version = stored
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.try_into().ok())
        .map(u32::from_le_bytes)
        .ok_or_else(|| corrupt("the format version is not one that Kilim writes"))?;
    match version {
        FORMAT_VERSION => Ok(()),
        newer if newer > FORMAT_VERSION => Err(corrupt(format!(
            "the data has format version {newer}, written by a newer Kilim; this one reads version {FORMAT_VERSION}"
        ))),
        unknown => Err(corrupt(format!(
            "the data has the unknown format version {unknown}; this Kilim reads version {FORMAT_VERSION}"
        ))),
    }
}

pub(crate) fn decode_commit_time(stored: &[u8]) -> Result<u64> {
    let bytes = stored.try_into().map_err(|_| corrupt("the last commit time is not 8 bytes"))?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) fn corrupt(what: impl Into<String>) -> Error {
    StorageError::Corrupt(what.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_that_is_written_is_read() {
        assert!(check_version(&encode_version()).is_ok());
        let with = |version: u32| [MAGIC.as_slice(), &version.to_le_bytes()].concat();
        for (stored, said) in [
            (with(2), "newer Kilim"),
            (with(0), "unknown format version 0"),
            (b"other".to_vec(), "not one that Kilim writes"),
        ] {
            let error = check_version(&stored).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
