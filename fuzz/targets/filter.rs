//! Filters: refused or answered, the same each time.
#![no_main]

use std::sync::LazyLock;

use kilim_bson::Document;
use kilim_query::filter::Filter;
use libfuzzer_sys::fuzz_target;

static SUBJECTS: LazyLock<Vec<Document>> = LazyLock::new(kilim_fuzz::subjects);

fuzz_target!(|input: &[u8]| {
    let Some(filter) = kilim_fuzz::document(input) else { return };
    let Ok(filter) = Filter::parse(filter.as_raw()) else { return };
    for subject in SUBJECTS.iter() {
        let first = filter.matches(subject.as_raw()).map_err(|error| error.to_string());
        let second = filter.matches(subject.as_raw()).map_err(|error| error.to_string());
        assert_eq!(first, second);
    }
});
