use kilim_bson::{Value, array, doc};
use kilim_query::expression::{Scope, Variables};
use kilim_query::stage::{Context, Owner, Pipeline, Stage};

use super::super::Options;
use super::super::documents::Documents;
use super::*;

fn rows(bytes_max: usize, allow_disk_use: bool) -> Result<(Vec<Document>, u64)> {
    let spec = doc! {
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
    };
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
    group(spec, documents.collect(), bytes_max, allow_disk_use)
}

/// The groups that a stage makes of documents, and how often it went to disk.
fn group(
    spec: Document,
    documents: Vec<Document>,
    bytes_max: usize,
    allow_disk_use: bool,
) -> Result<(Vec<Document>, u64)> {
    let variables = Variables::default();
    let scope = Scope::new(&variables);
    let pipeline = array![doc! {"$group": spec}];
    let context = Context::new(&scope, "db", Owner::Collection);
    let pipeline = Pipeline::parse(pipeline.as_raw(), &context)?;
    let [Stage::Group(stage)] = &pipeline.stages[..] else { panic!("a group") };
    let options = Options { allow_disk_use, tell: |_, _, _| Ok(Vec::new()) };
    let budget = Budget::new("$group", options).with_max(bytes_max);
    let mut group = Group {
        input: Box::new(Documents::new(documents)),
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

#[test]
fn a_date_that_is_rounded_down_is_the_key_of_its_group() {
    let dates = (0..4_000i64).map(|n| {
        // Mostly in order, before and behind 1970, and some that are no dates.
        let millis = (n - 2_000) * 977_777 + n % 7 * 5_000_000;
        let mut document = doc! {"n": n};
        match n % 50 {
            0 => {}
            1 => document.push("t", Value::Null),
            2 => document
                .push("t", Value::Timestamp(kilim_bson::Timestamp { seconds: n as u32, increment: 1 })),
            _ => document.push("t", Value::DateTime(millis)),
        }
        document
    });
    let dates: Vec<Document> = dates.collect();
    for rounding in [
        doc! {"unit": "hour"},
        doc! {"unit": "minute", "binSize": 45},
        doc! {"unit": "second", "binSize": 7_777},
        doc! {"unit": "millisecond"},
        doc! {"unit": "hour", "binSize": 5, "timezone": "Asia/Kathmandu"},
        doc! {"unit": "day", "timezone": "Europe/Paris"},
        doc! {"unit": "week", "startOfWeek": "monday"},
    ] {
        let mut rounded = doc! {"date": "$t"};
        rounding.iter().for_each(|(name, value)| rounded.push(name, value));
        let groups = |key: Document| {
            let spec = doc! {"_id": key, "n": {"$sum": 1}, "all": {"$push": "$n"}};
            group(spec, dates.clone(), usize::MAX, false).expect("groups").0
        };
        let found = groups(doc! {"$dateTrunc": rounded.clone()});
        // A key of two fields is evaluated for each document.
        let naive = groups(doc! {"k": {"$dateTrunc": rounded}, "also": {"$literal": 1}});
        assert_eq!(found.len(), naive.len(), "{rounding:?}");
        for (found, naive) in found.iter().zip(&naive) {
            let key = naive.get("_id").and_then(RawValue::as_document).and_then(|key| key.get("k"));
            let same = |one: Option<RawValue<'_>>, other: Option<RawValue<'_>>| {
                format!("{one:?}") == format!("{other:?}")
            };
            assert!(same(found.get("_id"), key), "{rounding:?}: {found:?}, {naive:?}");
            assert!(same(found.get("all"), naive.get("all")), "{rounding:?}: {found:?}, {naive:?}");
        }
    }
}
