use kilim_bson::{Document, RawValue, Value, array, doc};

use super::{Accumulator, DEFINITIONS, State};
use crate::expression::{Bindings, Env, Scope, Variables};

fn accumulator(spec: Document) -> Accumulator {
    let variables = Variables::default();
    Accumulator::parse("r", Value::Document(spec).as_raw(), &Scope::new(&variables)).expect("an accumulator")
}

fn fold(accumulator: &Accumulator, documents: &[Document]) -> State {
    let mut state = accumulator.begin(RawValue::Null, Bindings::none()).expect("a state");
    for document in documents {
        let env = Env::new(document.as_raw(), Bindings::none());
        accumulator.accumulate(&mut state, &env).expect("taken");
    }
    state
}

fn every_kind() -> Vec<Document> {
    let simple =
        DEFINITIONS.iter().filter(|definition| matches!(definition.form, super::table::Form::Value(_)));
    let mut specs: Vec<Document> = simple
        .map(|definition| match definition.name {
            "$mergeObjects" => doc! {"$mergeObjects": {"k": "$v", "last": "$_id"}},
            name => [(name, Value::from("$v"))].into_iter().collect(),
        })
        .collect();
    for name in ["$firstN", "$lastN", "$minN", "$maxN"] {
        specs.push([(name, Value::Document(doc! {"input": "$v", "n": 3}))].into_iter().collect());
    }
    for name in ["$top", "$bottom"] {
        let operand = doc! {"output": "$_id", "sortBy": {"s": 1, "v": -1}};
        specs.push([(name, Value::Document(operand))].into_iter().collect());
    }
    for name in ["$topN", "$bottomN"] {
        let operand = doc! {"n": 3, "output": "$_id", "sortBy": {"s": 1}};
        specs.push([(name, Value::Document(operand))].into_iter().collect());
    }
    specs.push(doc! {"$count": {}});
    specs.push(doc! {"$median": {"input": "$v", "method": "approximate"}});
    specs.push(doc! {"$percentile": {"input": "$v", "p": [0.0, 0.3, 1.0], "method": "approximate"}});
    specs
}

fn documents() -> Vec<Document> {
    let values: Vec<Value> = vec![
        3.into(),
        0.5.into(),
        Value::Null,
        "text".into(),
        7i64.into(),
        array![1, 2].into(),
        3.0.into(),
        (-2).into(),
        "another".into(),
        8.25.into(),
    ];
    let made = values.into_iter().enumerate().map(|(id, value)| {
        let mut document = doc! {"_id": id as i32, "s": (id * 7 % 4) as i32};
        if id != 4 {
            document.push("v", value);
        }
        document
    });
    made.collect()
}

#[test]
fn parts_of_the_input_stored_and_merged_give_what_the_whole_gives() {
    let documents = documents();
    for spec in every_kind() {
        let accumulator = accumulator(spec.clone());
        let whole = accumulator.finish(fold(&accumulator, &documents));
        for at in 1..documents.len() {
            let stored =
                [&documents[..at], &documents[at..]].map(|part| fold(&accumulator, part).into_value());
            let [mut first, second] = stored.map(|stored| {
                accumulator.restore(RawValue::Null, Bindings::none(), stored.as_raw()).expect("restored")
            });
            accumulator.merge(&mut first, second).expect("merged");
            let merged = accumulator.finish(first);
            assert_eq!(format!("{merged:?}"), format!("{whole:?}"), "{spec:?} divided at {at}");
        }
    }
}

#[test]
fn accumulators_print_as_they_were_asked_for() {
    for (spec, shown) in [
        (doc! {"$sum": 1}, doc! {"$sum": {"$const": 1}}),
        (doc! {"$count": {}}, doc! {"$sum": {"$const": 1}}),
        (doc! {"$maxN": {"input": "$v", "n": 2}}, doc! {"$maxN": {"n": {"$const": 2}, "input": "$v"}}),
        (
            doc! {"$bottom": {"output": ["$x", "$y"], "sortBy": {"a.b": -1}}},
            doc! {"$bottom": {"output": ["$x", "$y"], "sortBy": {"a.b": -1}}},
        ),
    ] {
        let value = accumulator(spec).to_value();
        assert_eq!(format!("{value:?}"), format!("{:?}", Value::Document(shown)));
    }
}

#[test]
fn large_digests_stay_close() {
    let accumulator = accumulator(doc! {"$percentile": {
        "input": "$v", "p": [0.001, 0.25, 0.5, 0.9, 0.999], "method": "approximate"
    }});
    let numbers: Vec<Document> = (0..100_000i64).map(|n| doc! {"v": (n * 7919 % 100_000) as f64}).collect();
    let Value::Array(found) = accumulator.finish(fold(&accumulator, &numbers)) else { panic!("a list") };
    for (found, expected) in found.as_raw().iter().zip([99.0, 24_999.0, 49_999.0, 89_999.0, 99_899.0]) {
        let RawValue::Double(found) = found else { panic!("a double") };
        assert!((found - expected).abs() < 100.0, "{found} for {expected}");
    }
}

#[test]
fn the_table_is_in_order() {
    assert!(DEFINITIONS.is_sorted_by(|one, next| one.name < next.name));
}
