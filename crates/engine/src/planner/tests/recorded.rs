//! What mongod 6.0.5 answered, recorded: bounds of one predicate, and whole plans.

use std::sync::Arc;

use kilim_bson::{
    Document, JsonFormat, RawDocument, RawValue, array, doc, parse_extended_json, to_extended_json,
};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;

use super::fixture::{Fixture, index_spec};
use crate::plan::{Hint, Purpose, ReadRequest};
use crate::planner::explain::Verbosity;

fn json(document: RawDocument<'_>) -> String {
    to_extended_json(document, JsonFormat::Relaxed)
}

/// Each line: an index without or with arrays, a filter, and what explain shows for it.
#[test]
fn bounds_are_those_of_mongod() {
    let spec = || vec![index_spec(&doc! {"a": 1}, RawDocument::empty())];
    let plain: Vec<Document> = (0..3).map(|i| doc! {"_id": i, "a": i}).collect();
    let arrays: Vec<Document> = (0..3).map(|i| doc! {"_id": i, "a": array![i, i + 1]}).collect();
    let plain = Fixture::new(&plain, spec());
    let arrays = Fixture::new(&arrays, spec());
    let mut wrong = Vec::new();
    for line in include_str!("bounds.jsonl").lines() {
        let case = parse_extended_json(line).expect("a recorded case");
        let field = |name: &str| case.get(name).and_then(RawValue::as_document).expect("a document");
        let mut request = ReadRequest::new(Arc::new(Filter::parse(field("filter")).expect("a filter")));
        request.hint = Some(Hint::Key(doc! {"a": 1}));
        let multikey = case.get("index").and_then(RawValue::as_str) == Some("multikey");
        let fixture = if multikey { &arrays } else { &plain };
        // Each case is decided by its own values, not by those of an earlier one of the same shape.
        fixture.cache.clear();
        let explained = fixture.explain(&request, None, Verbosity::QueryPlanner);
        let plan = nested(explained.as_raw(), &["queryPlanner", "winningPlan"]);
        let scan = nested(plan, &["inputStage"]);
        let bounds = nested(scan, &["indexBounds"]).get("a").and_then(RawValue::as_array).expect("bounds");
        let found = doc! {
            "bounds": bounds.to_array(),
            "fetch": nested(plan, &["filter"]).to_document(),
            "key": nested(scan, &["filter"]).to_document(),
        };
        let expected = doc! {
            "bounds": case.get("bounds").and_then(RawValue::as_array).expect("bounds").to_array(),
            "fetch": field("fetch").to_document(),
            "key": field("key").to_document(),
        };
        if json(found.as_raw()) != json(expected.as_raw()) {
            wrong.push(format!(
                "{} {}\n  mongod {}\n  found  {}",
                if multikey { "multikey" } else { "plain" },
                json(field("filter")),
                json(expected.as_raw()),
                json(found.as_raw())
            ));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn nested<'a>(document: RawDocument<'a>, path: &[&str]) -> RawDocument<'a> {
    path.iter().fold(document, |document, name| {
        document.get(name).and_then(RawValue::as_document).unwrap_or(RawDocument::empty())
    })
}

/// Each line is a set of documents and indexes, or a request on the set before it with its winning plan.
#[test]
fn plans_are_those_of_mongod() {
    let mut fixture = None;
    let mut wrong = Vec::new();
    for line in include_str!("plans.jsonl").lines() {
        let case = parse_extended_json(line).expect("a recorded case");
        if let Some(documents) = case.get("documents").and_then(RawValue::as_array) {
            let documents: Vec<Document> =
                documents.iter().filter_map(RawValue::as_document).map(RawDocument::to_document).collect();
            let indexes = case.get("indexes").and_then(RawValue::as_array).expect("indexes");
            let specs = indexes
                .iter()
                .filter_map(RawValue::as_document)
                .map(|index| index_spec(&nested(index, &["key"]).to_document(), nested(index, &["options"])));
            fixture = Some(Fixture::new(&documents, specs.collect()));
            continue;
        }
        let fixture = fixture.as_ref().expect("documents come first");
        let filter = Filter::parse(nested(case.as_raw(), &["filter"])).expect("a filter");
        let mut request = ReadRequest::new(Arc::new(filter));
        let given = |name: &str| case.get(name).and_then(RawValue::as_document);
        let number = |name: &str| match case.get(name) {
            Some(RawValue::Int32(number)) => Some(number as u64),
            _ => None,
        };
        request.sort = given("sort").map(|sort| Sort::parse(sort).expect("a sort"));
        let projection = given("projection");
        request.projection =
            projection.map(|projection| Projection::parse(projection).expect("a projection"));
        request.skip = number("skip").unwrap_or(0);
        request.limit = number("limit");
        request.hint = case.get("hint").and_then(|hint| Hint::parse(hint).expect("a hint"));
        if case.get("count").is_some() {
            request.purpose = Purpose::Count;
        }
        let projection = projection.map(RawDocument::to_document);
        let explained = fixture.explain(&request, projection.as_ref(), Verbosity::ExecutionStats);
        let found = nested(explained.as_raw(), &["executionStats", "executionStages"]);
        let expected = nested(case.as_raw(), &["stages"]);
        let (found, expected) = (without_sizes(json(found)), without_sizes(json(expected)));
        if found != expected {
            let mut asked = case.to_owned();
            asked = asked
                .iter()
                .filter(|(name, _)| *name != "stages")
                .map(|(name, value)| (name, value.to_value()))
                .collect();
            wrong.push(format!("{}\n  mongod {expected}\n  found  {found}", json(asked.as_raw())));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// What a document costs in memory is each server's own affair.
fn without_sizes(text: String) -> String {
    let name = "\"totalDataSizeSorted\":";
    match text.split_once(name) {
        Some((before, after)) => {
            format!("{before}{name}{}", after.trim_start_matches(|char: char| char.is_ascii_digit()))
        }
        None => text,
    }
}
