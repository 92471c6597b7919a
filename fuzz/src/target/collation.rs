//! Collations: refused or obeyed; keys compare, byte by byte, as the collation does.

use std::cmp::Ordering;

use kilim_bson::{RawValue, compare_with, encode_value_with};
use kilim_collation::Collation;

/// Takes `{"c": collation, …}`, values to be compared behind it, whatever the names.
pub fn check(input: &[u8]) {
    let Some(document) = crate::document(input) else { return };
    let mut fields = document.iter().map(|(_, value)| value);
    let Some(RawValue::Document(written)) = fields.next() else { return };
    let Ok(Some(collation)) = Collation::parse(written) else { return };
    let again = Collation::parse(collation.to_document().as_raw()).expect("what is shown can be read");
    assert_eq!(again.as_ref(), Some(&collation));
    let collator = Some(collation.as_collator());
    let values: Vec<RawValue<'_>> = fields.take(6).collect();
    let key = |value: &RawValue<'_>, descending: bool| {
        let mut key = Vec::new();
        encode_value_with(&mut key, *value, descending, collator);
        key
    };
    for left in &values {
        for right in &values {
            let order = compare_with(*left, *right, collator);
            assert_eq!(order, compare_with(*right, *left, collator).reverse(), "{left:?} {right:?}");
            assert_eq!(key(left, false).cmp(&key(right, false)), order, "{left:?} {right:?}");
            assert_eq!(
                key(left, true).cmp(&key(right, true)),
                order.reverse(),
                "{left:?} {right:?} descending"
            );
            if order != Ordering::Equal {
                assert!(!key(left, false).starts_with(&key(right, false)), "{left:?} {right:?}");
            }
        }
    }
}
