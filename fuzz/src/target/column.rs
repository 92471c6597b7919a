//! Compressed columns: refused or decoded, to a valid document that is no larger than was asked for. Those that are read in place
//! have the same values.

use kilim_bson::{Document, Scalars, Writer, decode_column};

const BYTES_MAX: usize = 1 << 16;
/// More than the values of any column that is read in place.
const IN_PLACE_BYTES_MAX: usize = 1 << 20;

pub fn check(input: &[u8]) {
    if let Ok(values) = decode_column(input, BYTES_MAX) {
        let bytes = values.into_bytes();
        // The document's final zero comes on top.
        assert!(bytes.len() <= BYTES_MAX + 1, "{}", bytes.len());
        Document::parse(bytes).expect("what is decoded is valid");
    }
    let Some(mut scalars) = Scalars::of(input) else { return };
    let mut values = Writer::new();
    for number in 0..scalars.count() {
        let value = scalars.next().expect("there are as many as it says");
        value.into_iter().for_each(|value| values.append_index(number, value));
    }
    assert!(scalars.next().is_none());
    let decoded = decode_column(input, IN_PLACE_BYTES_MAX).expect("what is read in place is sound");
    assert_eq!(values.finish().as_bytes(), decoded.as_bytes());
}
