use kilim_bson::{Value, array, doc};
use kilim_query::expression::{Scope, Variables};
use kilim_query::stage::{Context, Owner, Pipeline, Stage};

use super::super::Options;
use super::super::documents::Documents;
use super::*;

fn rows(bytes_max: usize, allow_disk_use: bool) -> Result<(Vec<Document>, u64)> {
    let variables = Variables::default();
    let scope = Scope::new(&variables);
    let pipeline = array![doc! {"$group": {
        "_id": "$k",
        "n": {"$sum": 1},
        "sum": {"$sum": "$n"},
        "avg": {"$avg": "$n"},
        "first": {"$first": "$text"},
        "last": {"$last": "$text"},
        "max": {"$max": "$text"},
        "all": {"$push": "$n"},
        "set": {"$addToSet": {"$mod": ["$n", 5]}},
        "top": {"$topN": {"n": 2, "output": "$n", "sortBy": {"text": -1}}},
        "few": {"$lastN": {"n": 3, "input": "$n"}},
    }}];
    let context = Context::new(&scope, "db", Owner::Collection);
    let pipeline = Pipeline::parse(pipeline.as_raw(), &context)?;
    let [Stage::Group(stage)] = &pipeline.stages[..] else { panic!("a group") };
    let documents = (0..3_000i32).map(|n| {
        // Missing, null and two spellings of one number are among the keys.
        let key = match n * 7 % 40 {
            0 => Value::Null,
            1 => Value::Double(2.0),
            key => Value::Int32(key),
        };
        let mut document = doc! {"n": n, "text": format!("text {}", n * 31 % 97)};
        if n % 40 != 5 {
            document.push("k", key);
        }
        document
    });
    let options = Options { allow_disk_use, tell: |_, _, _| Ok(Vec::new()) };
    let budget = Budget::new("$group", options).with_max(bytes_max);
    let mut group = Group {
        input: Box::new(Documents::new(documents.collect())),
        groups: Groups::new(stage, budget, &Bindings::default()),
        output: Output::None,
    };
    let mut context = ExecContext::new(&|| Ok(()));
    let mut rows = Vec::new();
    while let Some(row) = group.next(&mut context)? {
        rows.push(row.document().to_document());
    }
    Ok((rows, group.groups.budget.spills()))
}

#[test]
fn groups_that_went_to_disk_are_the_same_groups() {
    let (mut expected, none) = rows(usize::MAX, false).expect("groups");
    let (spilled, spills) = rows(20_000, true).expect("groups");
    assert_eq!(none, 0);
    assert!(spills > 2, "{spills} spills");
    let key = |document: &Document| {
        let mut key = Vec::new();
        kilim_bson::encode_value(&mut key, stage::id_of(document.as_raw()), false);
        key
    };
    expected.sort_by_key(key);
    assert_eq!(spilled, expected);
}

#[test]
fn groups_beyond_memory_need_leave_to_use_the_disk() {
    let error = rows(20_000, false).expect_err("too much");
    assert_eq!(error.code(), kilim_error::ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed);
}
