//! Projections of a find: refused or applied, and what they make is valid.

use kilim_bson::{RawDocument, Writer};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;

pub fn check(input: &[u8]) {
    let Some(projection) = crate::document(input) else { return };
    crate::patient(|| {
        let Ok(projection) = Projection::parse(projection.as_raw()) else { return };
        let mut folded = projection.clone();
        let folded = folded.optimise().is_ok().then_some(folded);
        for subject in crate::subjects() {
            let Ok(position) = projection.position(&Filter::True, subject.as_raw()) else { continue };
            for projection in [Some(&projection), folded.as_ref()].into_iter().flatten() {
                let mut out = Writer::new();
                if projection.apply(subject.as_raw(), position, &mut out).is_ok() {
                    let made = out.finish();
                    RawDocument::parse(made.as_bytes()).expect("a projection makes valid documents");
                }
            }
        }
        RawDocument::parse(projection.to_document().as_bytes()).expect("what explain prints is a document");
    });
}
