//! Validators, `$jsonSchema` above all: refused or asked, and a document that does not pass is told why.

use kilim_bson::{Document, RawDocument, RawValue, Timestamp};
use kilim_query::validator::{Now, Validator};

pub fn check(input: &[u8]) {
    let Some(written) = crate::document(input) else { return };
    check_one(&written);
    // Whatever it is, it may be meant as a schema.
    let mut schema = Document::new();
    schema.push("$jsonSchema", RawValue::Document(written.as_raw()).to_value());
    check_one(&schema);
}

fn check_one(written: &Document) {
    let now = Now { millis: 0, cluster_time: Timestamp::from_bits(1) };
    crate::patient(|| {
        let Ok(validator) = Validator::parse(written.as_raw(), &None) else { return };
        for subject in crate::subjects() {
            if let Ok(false) = validator.passes(subject.as_raw(), || now) {
                let explanation = validator.explain(subject.as_raw(), now);
                RawDocument::parse(explanation.details.as_bytes()).expect("an explanation is a document");
            }
        }
    });
}
