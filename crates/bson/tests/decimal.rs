//! Decimal128 against results recorded from mongod, bit for bit.
//!
//! Each line of `decimal_recorded.txt` holds two operands and what mongod made of them: sum,
//! difference, product, quotient, remainder (stored bytes in hex, `-` where mongod refuses), their
//! order, and the first as text, double and long (`None` where it does not convert).

use std::cmp::Ordering;

use kilim_bson::{Decimal128, RawValue, Rounding, compare};

fn decimal(hex: &str) -> Decimal128 {
    let byte = |at: usize| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap();
    Decimal128::from_bytes(std::array::from_fn(byte))
}

#[test]
fn arithmetic_equals_mongods_bit_for_bit() {
    let recorded = std::env::var("DECIMAL_RECORDED").map_or_else(
        |_| include_str!("decimal_recorded.txt").to_owned(),
        |path| std::fs::read_to_string(path).unwrap(),
    );
    let mut wrong = Vec::new();
    for line in recorded.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (left, right) = (decimal(fields[0]), decimal(fields[1]));
        let mut check = |what: &str, ours: String, theirs: &str| {
            if theirs != ours {
                wrong.push(format!("{left} {what} {right} is {ours}, not {theirs}"));
            }
        };
        let results = [
            ("+", left.add(right)),
            ("-", left.subtract(right)),
            ("*", left.multiply(right)),
            ("/", left.divide(right)),
            ("%", left.remainder(right)),
        ];
        for ((what, ours), theirs) in results.into_iter().zip(&fields[2..7]) {
            if *theirs != "-" {
                check(what, ours.to_string(), &decimal(theirs).to_string());
                check(what, format!("{:?}", ours.to_bytes()), &format!("{:?}", decimal(theirs).to_bytes()));
            }
        }
        let order = match left.compare(right) {
            Ordering::Less => "-1",
            Ordering::Equal => "0",
            Ordering::Greater => "1",
        };
        check("<=>", order.to_owned(), fields[7]);
        check("text", left.to_string(), fields[8]);
        if !left.is_nan() {
            check(
                "parsed",
                format!("{:?}", Decimal128::parse(fields[8])),
                &format!("{:?}", Ok::<_, ()>(left)),
            );
        }
        if let Ok(double) = fields[9].parse::<f64>() {
            check("double", format!("{:?}", left.to_f64()), &format!("{double:?}"));
        }
        if left.is_finite() {
            check("long", format!("{:?}", left.to_i64()).replace("Some(", "").replace(')', ""), fields[10]);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

/// Each line of `decimal_from_double_recorded.txt` holds a double's bits, the decimal that mongod makes
/// of it, a number of places, the decimal rounded and truncated to those, its floor and ceiling, and
/// the order of double and decimal.
#[test]
fn conversion_and_rounding_equal_mongods_bit_for_bit() {
    let recorded = std::env::var("DECIMAL_FROM_DOUBLE_RECORDED").map_or_else(
        |_| include_str!("decimal_from_double_recorded.txt").to_owned(),
        |path| std::fs::read_to_string(path).unwrap(),
    );
    let mut wrong = Vec::new();
    for line in recorded.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let double = f64::from_bits(u64::from_str_radix(fields[0], 16).unwrap());
        let places: i32 = fields[2].parse().unwrap();
        let ours = Decimal128::from_f64(double);
        let results = [
            ("decimal", ours, fields[1]),
            ("round", ours.round(places, Rounding::HalfEven), fields[3]),
            ("truncate", ours.round(places, Rounding::TowardZero), fields[4]),
            ("floor", ours.round_to_whole(Rounding::Floor), fields[5]),
            ("ceiling", ours.round_to_whole(Rounding::Ceiling), fields[6]),
        ];
        for (what, ours, theirs) in results {
            if ours != decimal(theirs) {
                wrong.push(format!("{double:?} {what} {places} is {ours}, not {}", decimal(theirs)));
            }
        }
        let order = compare(RawValue::Double(double), RawValue::Decimal128(ours));
        if (order as i8).to_string() != fields[7] {
            wrong.push(format!("{double:?} compares as {order:?} to {ours}, not {}", fields[7]));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}
