//! Intersections of two indexes: what they return, and where they are chosen.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_collation::Collation;
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::sort::Sort;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::fixture::{Fixture, index_spec};
use super::property::{check_candidates, collation, scalar, sort, wildcard, with_collation};
use crate::index::IndexSpec;
use crate::operator::ExecContext;
use crate::plan::{Hint, Keys, Node, Purpose, ReadRequest, StatsTree};
use crate::planner::execute;

fn request(filter: &Document) -> ReadRequest {
    ReadRequest::new(Arc::new(Filter::parse(filter.as_raw()).expect("a filter")))
}

fn indexes_on(keys: &[Document]) -> Vec<IndexSpec> {
    keys.iter().map(|key| index_spec(key, RawDocument::empty())).collect()
}

fn intersects(node: &Node) -> bool {
    node.any(&|node| matches!(node, Node::Intersection { .. }))
}

/// What the plan that is chosen does, from its first row to its last.
fn run(fixture: &Fixture, request: ReadRequest) -> (Arc<Node>, StatsTree, usize) {
    let plan = fixture.plan(request).expect("a plan");
    let node = plan.root.clone();
    let mut executor = execute(plan, fixture.snapshot());
    let mut context = ExecContext::new(&|| Ok(()));
    let mut rows = 0;
    while executor.next_document(&mut context).expect("a row").is_some() {
        rows += 1;
    }
    (node, executor.stats(), rows)
}

fn field(random: &mut SmallRng) -> &'static str {
    ["a", "b", "c", "a.b", "b.c"].choose(random).copied().expect("a path")
}

/// Of few values, so that many records share one, and a few that are rare.
fn few(random: &mut SmallRng) -> Value {
    match random.random_range(0..40) {
        0..32 => Value::Int32(random.random_range(0..2)),
        32..34 => Value::Int32(7),
        _ => scalar(random),
    }
}

fn some(random: &mut SmallRng) -> Value {
    match random.random_range(0..10) {
        0 => Value::Array((0..random.random_range(0..3)).map(|_| few(random)).collect()),
        1 => Value::Array(
            (0..random.random_range(0..3))
                .map(|_| Value::Document(doc! {"b": few(random), "c": few(random)}))
                .collect(),
        ),
        2..4 => Value::Document(doc! {"b": few(random), "c": few(random)}),
        _ => few(random),
    }
}

fn equalities(random: &mut SmallRng) -> Document {
    let mut filter = Document::new();
    for _ in 0..random.random_range(2..4) {
        let path = field(random);
        if filter.get(path).is_some() {
            continue;
        }
        let predicate = match random.random_range(0..8) {
            0 => doc! {"$all": [few(random), few(random)]},
            1 => {
                let element =
                    |random: &mut SmallRng| doc! {"$elemMatch": {"b": few(random), "c": few(random)}};
                doc! {"$all": [element(random), element(random)]}
            }
            2 => doc! {"$gte": few(random)},
            3 => doc! {"$in": [few(random)]},
            _ => doc! {"$eq": few(random)},
        };
        filter.push(path, predicate);
    }
    filter
}

fn kinds(random: &mut SmallRng, arrays: bool) -> Vec<IndexSpec> {
    let mut specs: Vec<IndexSpec> = Vec::new();
    for _ in 0..random.random_range(2..5) {
        let options = match random.random_range(0..8) {
            0 => doc! {"sparse": true},
            1 => doc! {"partialFilterExpression": {(field(random)): {"$gte": 0}}},
            _ => Document::new(),
        };
        let options = with_collation(options, random);
        let spec = match random.random_range(0..10) {
            0 => wildcard(random),
            1 if !arrays => index_spec(&doc! {(field(random)): "hashed"}, options.as_raw()),
            2 => index_spec(&doc! {"a.b": 1, "a.c": -1}, options.as_raw()),
            _ => {
                let direction = if random.random() { 1 } else { -1 };
                index_spec(&doc! {(field(random)): direction}, options.as_raw())
            }
        };
        if specs.iter().all(|known| known.name != spec.name) {
            specs.push(spec);
        }
    }
    specs
}

#[test]
fn every_intersection_returns_what_a_collection_scan_returns() {
    let rounds =
        std::env::var("KILIM_PLANNER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(40);
    let (mut intersections, mut seeks) = (0, 0);
    for seed in 0..rounds {
        let random = &mut SmallRng::seed_from_u64(seed);
        let arrays = random.random_range(0..3) > 0;
        let documents: Vec<Document> = (0..random.random_range(50..400))
            .map(|id| {
                let value = |random: &mut SmallRng| if arrays { some(random) } else { few(random) };
                doc! {"_id": id, "a": value(random), "b": value(random), "c": value(random)}
            })
            .collect();
        let fixture = Fixture::new(&documents, kinds(random, arrays));
        for _ in 0..12 {
            let document = equalities(random);
            let collation_document = collation(random);
            let parsed = collation_document.as_ref().map(|it| Collation::parse(it.as_raw()).expect("one"));
            let variables = Variables::default().under(parsed.clone().flatten());
            let scope = Scope::new(&variables);
            let filter = Filter::parse_in(document.as_raw(), &scope).expect("a filter");
            let mut request = ReadRequest::new(Arc::new(filter));
            request.collation = parsed.flatten();
            request.sort = sort(random)
                .map(|sort| Sort::parse_in(sort.as_raw(), &scope).expect("a sort"))
                .filter(|sort| !sort.is_empty());
            let mut natural = request.clone();
            natural.hint = Some(Hint::Natural { backward: false });
            let Ok(expected) = fixture.read(natural) else { continue };
            let what = || format!("seed {seed}: {document:?} under {collation_document:?}");
            check_candidates(&fixture, &request, &expected, &what);
            for plan in fixture.candidates(&request).expect("plans") {
                if intersects(&plan.root) {
                    intersections += 1;
                    let mut executor = execute(plan, fixture.snapshot());
                    let mut context = ExecContext::new(&|| Ok(()));
                    while executor.next_document(&mut context).expect("a row").is_some() {}
                    seeks += context.seeks;
                }
            }
        }
    }
    // Otherwise the rounds above prove nothing.
    assert!(intersections > rounds && seeks > rounds / 4, "{intersections} intersections, {seeks} seeks");
}

/// `a` and `b` have ten values each, independent of each other; `r` is rare.
fn tenths(count: i32) -> Vec<Document> {
    (0..count)
        .map(|id| {
            doc! {
                "_id": id,
                "a": id % 10,
                "b": id / 10 % 10,
                "r": if id % 1000 == 0 { 1 } else { 0 },
                "t": [id % 10, 10 + id / 10 % 10],
                "o": {"x": id % 10, "y": id / 10 % 10},
            }
        })
        .collect()
}

#[test]
fn two_indexes_that_together_leave_little_are_intersected() {
    let fixture = Fixture::new(&tenths(10_000), indexes_on(&[doc! {"a": 1}, doc! {"b": 1}]));
    let (node, stats, rows) = run(&fixture, request(&doc! {"a": 1, "b": 2}));
    assert!(intersects(&node), "{node:?}");
    assert_eq!(rows, 100);
    assert_eq!(stats.total_docs_examined(), 100, "records that only one index finds stay unread");
    assert!(stats.total_keys_examined() <= 2000);
    // It is remembered, and used without a trial.
    let again = fixture.plan(request(&doc! {"a": 3, "b": 4})).expect("a plan");
    assert!(intersects(&again.root) && again.trials.is_empty());
    // Sorted and limited, it is what is sorted.
    let mut sorted = request(&doc! {"a": 1, "b": 2});
    sorted.sort = Some(Sort::parse(doc! {"_id": -1}.as_raw()).expect("a sort"));
    sorted.limit = Some(3);
    let found = fixture.read(sorted).expect("rows");
    let ids: Vec<Option<i32>> = found
        .iter()
        .map(|(_, document)| match document.get("_id") {
            Some(RawValue::Int32(id)) => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [Some(9921), Some(9821), Some(9721)]);
}

#[test]
fn a_count_by_two_indexes_reads_no_record() {
    let fixture = Fixture::new(&tenths(10_000), indexes_on(&[doc! {"a": 1}, doc! {"b": 1}]));
    let mut counted = request(&doc! {"a": 1, "b": 2});
    counted.purpose = Purpose::Count;
    let (node, stats, _) = run(&fixture, counted);
    assert!(intersects(&node), "{node:?}");
    assert_eq!((stats.stats.counted, stats.total_docs_examined()), (100, 0));
}

#[test]
fn one_index_that_leaves_little_is_read_alone() {
    let fixture = Fixture::new(&tenths(10_000), indexes_on(&[doc! {"a": 1}, doc! {"b": 1}, doc! {"r": 1}]));
    for filter in [
        // Ten keys against a thousand.
        doc! {"r": 1, "b": 0},
        // Nine of ten of one index are in the other: the second scan saves no record.
        doc! {"r": 0, "a": 1},
        // Nothing at all.
        doc! {"r": 2, "b": 0},
    ] {
        let plan = fixture.plan(request(&filter)).expect("a plan");
        assert!(plan.rejected.iter().any(|node| intersects(node)), "{filter:?} has no such candidate");
        assert!(!intersects(&plan.root), "{filter:?}");
    }
}

fn no_intersection(fixture: &Fixture, request: &ReadRequest) {
    let plans = fixture.candidates(request).expect("plans");
    assert!(!plans.iter().any(|plan| intersects(&plan.root)), "{:?}", request.filter);
}

#[test]
fn an_index_that_has_both_predicates_needs_no_other() {
    let keys = [doc! {"a": 1}, doc! {"b": 1}, doc! {"a": 1, "b": 1}];
    let fixture = Fixture::new(&tenths(200), indexes_on(&keys));
    no_intersection(&fixture, &request(&doc! {"a": 1, "b": 2}));
    no_intersection(&fixture, &request(&doc! {"a": 1, "b": 2, "o.x": 1}));
}

#[test]
fn scans_without_the_order_of_records_are_not_intersected() {
    let fixture = Fixture::new(&tenths(200), indexes_on(&[doc! {"a": 1}, doc! {"b": 1, "r": 1}]));
    no_intersection(&fixture, &request(&doc! {"a": {"$gt": 1}, "b": 2, "r": 0}));
    no_intersection(&fixture, &request(&doc! {"a": {"$in": [1, 2]}, "b": 2, "r": 0}));
    no_intersection(&fixture, &request(&doc! {"a": 1, "b": 2}));
    let unique = index_spec(&doc! {"_id": 1, "a": 1}, doc! {"unique": true}.as_raw());
    let fixture = Fixture::new(&tenths(200), vec![unique, index_spec(&doc! {"b": 1}, RawDocument::empty())]);
    no_intersection(&fixture, &request(&doc! {"_id": 1, "a": 1, "b": 0}));
}

#[test]
fn what_asks_for_one_index_gets_one() {
    let fixture = Fixture::new(&tenths(200), indexes_on(&[doc! {"a": 1}, doc! {"b": 1}]));
    let mut hinted = request(&doc! {"a": 1, "b": 2});
    hinted.hint = Some(Hint::Name("a_1".into()));
    no_intersection(&fixture, &hinted);
    let mut keys = request(&doc! {"a": 1, "b": 2});
    keys.keys = Keys::Returned { sort_keys: Vec::new() };
    no_intersection(&fixture, &keys);
}

#[test]
fn one_index_twice_is_an_intersection_too() {
    let fixture = Fixture::new(&tenths(10_000), indexes_on(&[doc! {"t": 1}]));
    let (node, stats, rows) = run(&fixture, request(&doc! {"t": {"$all": [1, 12]}}));
    assert!(intersects(&node), "{node:?}");
    assert_eq!((rows, stats.total_docs_examined()), (100, 100));
    let fixture = Fixture::new(&tenths(10_000), indexes_on(&[doc! {"$**": 1}]));
    let (node, stats, rows) = run(&fixture, request(&doc! {"o.x": 1, "o.y": 2}));
    assert!(intersects(&node), "{node:?}");
    assert_eq!((rows, stats.total_docs_examined()), (100, 100));
}

#[test]
fn a_rare_value_is_not_looked_for_among_all_of_a_frequent_one() {
    let documents: Vec<Document> =
        (0..10_000).map(|id| doc! {"_id": id, "a": 1, "r": if id % 1000 == 999 { 1 } else { 0 }}).collect();
    let fixture = Fixture::new(&documents, indexes_on(&[doc! {"a": 1}, doc! {"r": 1}]));
    let plans = fixture.candidates(&request(&doc! {"a": 1, "r": 1})).expect("plans");
    let plan = plans.into_iter().find(|plan| intersects(&plan.root)).expect("an intersection");
    let mut executor = execute(plan, fixture.snapshot());
    let mut context = ExecContext::new(&|| Ok(()));
    let mut rows = 0;
    while executor.next_document(&mut context).expect("a row").is_some() {
        rows += 1;
    }
    assert_eq!((rows, context.seeks), (10, 10));
    assert!(context.figures.keys_examined < 250, "{} keys", context.figures.keys_examined);
}

#[test]
fn explain_shows_both_scans() {
    let fixture = Fixture::new(&tenths(10_000), indexes_on(&[doc! {"a": 1}, doc! {"b": 1}]));
    let request = request(&doc! {"a": 1, "b": 2});
    let explained = fixture.explain(&request, None, crate::planner::explain::Verbosity::ExecutionStats);
    let at = |path: &str| {
        let mut value = RawValue::Document(explained.as_raw());
        for name in path.split('.') {
            value = match value {
                RawValue::Document(document) => document.get(name),
                RawValue::Array(array) => array.iter().nth(name.parse().expect("a number")),
                _ => None,
            }
            .unwrap_or_else(|| panic!("no {path} in {explained:?}"));
        }
        doc! {"is": value.to_value()}
    };
    let both = "executionStats.executionStages.inputStage";
    assert_eq!(at(&format!("{both}.stage")), doc! {"is": "AND_SORTED"});
    assert_eq!(at(&format!("{both}.inputStages.0.indexName")), doc! {"is": "a_1"});
    assert_eq!(at(&format!("{both}.inputStages.1.indexName")), doc! {"is": "b_1"});
    // As mongod counts them.
    assert_eq!(at(&format!("{both}.failedAnd_0")), doc! {"is": 100});
    assert_eq!(at(&format!("{both}.failedAnd_1")), doc! {"is": 100});
    assert_eq!(at("executionStats.totalDocsExamined"), doc! {"is": 100});
    assert_eq!(at("executionStats.nReturned"), doc! {"is": 100});
}
