//! Index keys: their order is the values' order, both ways.
#![no_main]

use std::cmp::Ordering;

use kilim_bson::{RawValue, compare, encode_value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(document) = kilim_fuzz::document(input) else { return };
    let values: Vec<RawValue<'_>> = document.iter().map(|(_, value)| value).take(8).collect();
    let key = |value: &RawValue<'_>, descending: bool| {
        let mut key = Vec::new();
        encode_value(&mut key, *value, descending);
        key
    };
    for left in &values {
        for right in &values {
            let order = compare(*left, *right);
            assert_eq!(key(left, false).cmp(&key(right, false)), order, "{left:?} {right:?}");
            assert_eq!(key(left, true).cmp(&key(right, true)), order.reverse(), "{left:?} {right:?} descending");
            if order == Ordering::Equal {
                continue;
            }
            // No key may begin another: compound keys are laid one behind the other.
            assert!(!key(left, false).starts_with(&key(right, false)), "{left:?} {right:?}");
        }
    }
});
