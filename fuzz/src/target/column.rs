//! Compressed columns: refused or decoded, to a valid document that is no larger than was asked for.

use kilim_bson::{Document, decode_column};

const BYTES_MAX: usize = 1 << 16;

pub fn check(input: &[u8]) {
    if let Ok(values) = decode_column(input, BYTES_MAX) {
        let bytes = values.into_bytes();
        // The document's final zero comes on top.
        assert!(bytes.len() <= BYTES_MAX + 1, "{}", bytes.len());
        Document::parse(bytes).expect("what is decoded is valid");
    }
}
