use proptest::prelude::*;

use super::*;
use crate::arbitrary::{number, value};
use crate::{Decimal128, Value, array, canonical_type, compare, doc, identical};

fn key(value: &Value, descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encode_value(&mut out, value.as_raw(), descending);
    out
}

fn check_order(left: &Value, right: &Value) -> Result<(), TestCaseError> {
    let order = compare(left.as_raw(), right.as_raw());
    prop_assert_eq!(key(left, false).cmp(&key(right, false)), order);
    prop_assert_eq!(key(left, true).cmp(&key(right, true)), order.reverse());
    if order.is_ne() {
        prop_assert!(!key(left, false).starts_with(&key(right, false)), "no key begins another");
    }
    Ok(())
}

fn check_round_trip(values: &[(Value, bool)]) -> Result<(), TestCaseError> {
    let mut encoder = KeyEncoder::new();
    let directions: Vec<bool> = values.iter().map(|(_, descending)| *descending).collect();
    values.iter().for_each(|(value, descending)| encoder.push(value.as_raw(), *descending));
    let mut out = Vec::new();
    decode_key(encoder.key(), encoder.type_bits(), &directions, &mut out).expect("our own key");
    prop_assert_eq!(out.len(), values.len());
    let mut rest = encoder.key();
    for ((value, descending), decoded) in values.iter().zip(&out) {
        prop_assert!(identical(value.as_raw(), decoded.as_raw()), "{:?} {:?}", value, decoded);
        let length = component_length(rest, *descending).expect("our own key");
        prop_assert_eq!(&rest[..length], &key(value, *descending)[..]);
        rest = &rest[length..];
    }
    prop_assert!(rest.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn byte_order_is_comparison_order(left in value(), right in value()) {
        check_order(&left, &right)?;
    }

    #[test]
    fn byte_order_is_comparison_order_among_numbers(left in number(), right in number()) {
        check_order(&left, &right)?;
        // A double next to a decimal is where they are hardest to tell apart.
        if let Value::Decimal128(decimal) = left {
            let near = decimal.to_f64();
            for double in [near, near.next_up(), near.next_down()] {
                check_order(&left, &Value::Double(double))?;
            }
            check_order(&left, &Value::Decimal128(Decimal128::from_f64(near)))?;
        }
    }

    #[test]
    fn keys_give_their_values_back(values in prop::collection::vec((value(), any::<bool>()), 1..4)) {
        check_round_trip(&values)?;
    }

    #[test]
    fn compound_keys_order_by_component_and_direction(
        left in (value(), number()), right in (value(), number()), directions in any::<[bool; 2]>(),
    ) {
        let bytes = |pair: &(Value, Value)| [key(&pair.0, directions[0]), key(&pair.1, directions[1])].concat();
        let directed = |order: std::cmp::Ordering, descending| if descending { order.reverse() } else { order };
        let expected = directed(compare(left.0.as_raw(), right.0.as_raw()), directions[0])
            .then(directed(compare(left.1.as_raw(), right.1.as_raw()), directions[1]));
        prop_assert_eq!(bytes(&left).cmp(&bytes(&right)), expected);
    }

    #[test]
    fn brackets_hold_their_types_and_no_others(value in value(), other in 0u8..128, descending: bool) {
        let first = key(&value, descending)[0];
        prop_assert!(first != 0x00 && first != 0xFF);
        let own = canonical_type(value.element_type());
        prop_assert!(bracket(own, descending).contains(&first));
        const ALL: [u8; 17] = [0, 1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 47, 50, 55, 60, 65, 127];
        if ALL.contains(&other) && other != own {
            prop_assert!(!bracket(other, descending).contains(&first));
        }
    }

    #[test]
    fn damaged_keys_are_refused_or_read_but_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..40), bits in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let _ = decode_key(&bytes, &bits, &[false, true], &mut Vec::new());
        let _ = component_length(&bytes, true);
    }
}

#[test]
fn common_values_are_short_and_need_no_type_bits() {
    let cases: [(Value, usize); 9] = [
        (0.into(), 1),
        (100.into(), 2),
        (1000.into(), 3),
        (Value::ObjectId(crate::ObjectId::from_bytes([1; 12])), 13),
        ("hello".into(), 7),
        (true.into(), 1),
        (Value::Null, 1),
        (Value::DateTime(0), 9),
        (19.99.into(), 9),
    ];
    for (value, length) in cases {
        let mut encoder = KeyEncoder::new();
        encoder.push(value.as_raw(), false);
        assert_eq!(encoder.key().len(), length, "{value:?}");
        assert!(encoder.type_bits().is_empty(), "{value:?}");
    }
}

#[test]
fn bytes_on_disk_stay_as_they_are() {
    let cases: [(Value, &[u8]); 10] = [
        (0.into(), &[0x38]),
        (1.into(), &[0x3A, 2]),
        ((-1).into(), &[0x36, 0xFD]),
        (1.5.into(), &[0x3A, 3, 0x80, 0, 0, 0, 0, 0, 0]),
        (0.5.into(), &[0x39, 0x7F, 0xC0, 0, 0, 0, 0, 0, 0]),
        (1e19.into(), &[0x42, 0x87, 0xC2, 0xB1, 0xC8, 0xC1, 0x22, 0x7A, 0x00]),
        ("a\0b\x01".into(), &[0x50, b'a', 1, 1, b'b', 1, 2, 0]),
        (Value::Document(doc! {"a": 1}), &[0x58, 11, b'a', 0, 0x3A, 2, 0]),
        (Value::Array(array![1, "x"]), &[0x60, 0x3A, 2, 0x50, b'x', 0, 0]),
        (Value::DateTime(-1), &[0x80, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]),
    ];
    for (value, bytes) in cases {
        assert_eq!(key(&value, false), bytes, "{value:?}");
    }
}
