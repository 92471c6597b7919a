//! Filters against documents. Every expectation is what mongod answers.

mod errors;
mod explain;
mod matching;

use kilim_bson::{Decimal128, Document, Value, doc};

use super::Filter;

fn regex(pattern: &str, options: &str) -> Value {
    Value::Regex { pattern: pattern.into(), options: options.into() }
}

fn binary(bytes: &[u8]) -> Value {
    Value::Binary { subtype: 0, bytes: bytes.to_vec() }
}

fn decimal(text: &str) -> Decimal128 {
    Decimal128::parse(text).expect("a decimal")
}

/// Each filter with the documents that it matches and those that it does not.
fn check(cases: &[(Document, Vec<Document>, Vec<Document>)]) {
    for (filter, matching, others) in cases {
        let parsed = Filter::parse(filter.as_raw()).expect("a filter");
        for document in matching {
            assert!(parsed.matches(document.as_raw()).expect("no expression"), "{filter:?} on {document:?}");
        }
        for document in others {
            assert!(
                !parsed.matches(document.as_raw()).expect("no expression"),
                "{filter:?} not on {document:?}"
            );
        }
    }
}
