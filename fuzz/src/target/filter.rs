//! Filters: refused or answered, the same each time.

use kilim_query::filter::Filter;

pub fn check(input: &[u8]) {
    let Some(filter) = crate::document(input) else { return };
    let by_chance =
        ["$rand", "$sampleRate"].iter().any(|name| input.windows(name.len()).any(|it| it == name.as_bytes()));
    crate::patient(|| {
        let Ok(filter) = Filter::parse(filter.as_raw()) else { return };
        for subject in crate::subjects() {
            let first = filter.matches(subject.as_raw());
            let second = filter.matches(subject.as_raw());
            if let (Ok(first), Ok(second)) = (first, second) {
                assert!(first == second || by_chance);
            }
        }
    });
}
