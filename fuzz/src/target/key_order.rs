//! Index keys: their order is the values' order, both ways, and they give their values back.

use std::cmp::Ordering;

use kilim_bson::{KeyEncoder, RawValue, compare, decode_key, encode_value, identical};

/// Takes a document of values to be compared with each other.
pub fn check(input: &[u8]) {
    let Some(document) = crate::document(input) else { return };
    let values: Vec<RawValue<'_>> = document.iter().map(|(_, value)| value).take(8).collect();
    let key = |value: &RawValue<'_>, descending: bool| {
        let mut key = Vec::new();
        encode_value(&mut key, *value, descending);
        key
    };
    let keys: Vec<[Vec<u8>; 2]> = values.iter().map(|value| [key(value, false), key(value, true)]).collect();
    for (left, left_key) in values.iter().zip(&keys) {
        for (right, right_key) in values.iter().zip(&keys) {
            let order = compare(*left, *right);
            assert_eq!(left_key[0].cmp(&right_key[0]), order, "{left:?} {right:?}");
            assert_eq!(left_key[1].cmp(&right_key[1]), order.reverse(), "{left:?} {right:?} descending");
            if order == Ordering::Equal {
                continue;
            }
            // No key may begin another: compound keys are laid one behind the other.
            assert!(!left_key[0].starts_with(&right_key[0]), "{left:?} {right:?}");
        }
    }
    let mut encoder = KeyEncoder::new();
    let directions: Vec<bool> = (0..values.len()).map(|place| place % 2 == 1).collect();
    values.iter().zip(&directions).for_each(|(value, descending)| encoder.push(*value, *descending));
    let mut decoded = Vec::new();
    decode_key(encoder.key(), encoder.type_bits(), &directions, &mut decoded).expect("our own key");
    assert_eq!(decoded.len(), values.len());
    for (value, decoded) in values.iter().zip(&decoded) {
        assert!(identical(*value, decoded.as_raw()), "{value:?} {decoded:?}");
    }
}
