//! Pipelines: refused or rearranged and printed; what is printed for explain are documents.

use kilim_bson::{RawDocument, RawValue, Timestamp};
use kilim_query::expression::{Dependencies, Scope, Variables};
use kilim_query::stage::{Context, Owner, Pipeline};

/// Takes `{"pipeline": [stages]}`, whatever the name.
pub fn check(input: &[u8]) {
    let Some(document) = crate::document(input) else { return };
    let Some(stages) = document.iter().next().and_then(|(_, value)| RawValue::as_array(value)) else {
        return;
    };
    crate::patient(|| {
        let variables = Variables::at(0, Timestamp::from_bits(1));
        let scope = Scope::new(&variables);
        for place in [Owner::Collection, Owner::Database, Owner::View, Owner::Update] {
            let Ok(mut pipeline) = Pipeline::parse(stages, &Context::new(&scope, "test", place)) else {
                continue;
            };
            show(&pipeline);
            if pipeline.fold().is_ok() {
                pipeline.optimise();
                show(&pipeline);
            }
            pipeline.dependencies(&mut Dependencies::default());
            pipeline.collections(&mut |_, _| {});
        }
    });
}

fn show(pipeline: &Pipeline) {
    for stage in pipeline.to_documents() {
        if let Err(fault) = RawDocument::parse(stage.as_bytes()) {
            assert!(fault.to_string().contains("depth"), "{fault}");
        }
    }
}
