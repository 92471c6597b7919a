//! The keys that the storage crate keeps for itself in `Meta`, and the format version.
//!
//! All of them begin with byte 0; the engine's keys begin with another byte, and its scans of `Meta` never see
//! these. Everything here is on disk.

use crate::space::Bytes;
use kilim_error::{Error, Result, StorageError};

/// The version of the whole layout: files, pages, journal, the keys below, and the engine's encodings.
/// Version 1 lay in an LSM tree's directory; `kilim migrate` converts it.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// Version 2 with a change log. A store becomes one when it is first opened with a log. In version 3 every event was one row.
pub(crate) const FORMAT_VERSION_WITH_LOG: u32 = 4;

/// The first byte of every key here.
pub(crate) const OWN: u8 = 0;

/// Followed by the engine's key for the counter.
const COUNTER_PREFIX: [u8; 2] = [OWN, b'c'];
/// Followed by the space's number and the dead prefix.
pub(crate) const DEAD_PREFIX: [u8; 2] = [OWN, b'd'];

/// Followed by a segment's number.
pub(crate) const LOG_PREFIX: [u8; 2] = [OWN, b'l'];

/// The key of a segment of the change log.
pub(crate) fn log_key(segment: u32) -> Bytes {
    let mut key = [0; 6];
    key[..2].copy_from_slice(&LOG_PREFIX);
    key[2..].copy_from_slice(&segment.to_be_bytes());
    Bytes::from(key)
}

pub(crate) fn counter_key(key: &[u8]) -> Bytes {
    Bytes::fused(&COUNTER_PREFIX, key)
}

/// Refuses a format that this program does not know, by name.
pub(crate) fn check_version(version: u32) -> Result<()> {
    match version {
        FORMAT_VERSION..=FORMAT_VERSION_WITH_LOG => Ok(()),
        newer if newer > FORMAT_VERSION_WITH_LOG => Err(corrupt(format!(
            "the data has format version {newer}, written by a newer Kilim; this one reads versions up to {FORMAT_VERSION_WITH_LOG}"
        ))),
        unknown => Err(corrupt(format!(
            "the data has the unknown format version {unknown}; this Kilim reads versions {FORMAT_VERSION} to {FORMAT_VERSION_WITH_LOG}"
        ))),
    }
}

pub(crate) fn corrupt(what: impl Into<String>) -> Error {
    StorageError::Corrupt(what.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_2_on_are_read_and_no_newer_one() {
        assert!((FORMAT_VERSION..=FORMAT_VERSION_WITH_LOG).all(|version| check_version(version).is_ok()));
        assert!(check_version(FORMAT_VERSION_WITH_LOG + 1).unwrap_err().to_string().contains("newer Kilim"));
        assert!(check_version(1).is_err());
    }
}
