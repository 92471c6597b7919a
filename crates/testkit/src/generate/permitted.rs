//! Differences that are none of Kilim's making, each with its reason. `docs/differences.md` tells them to users.

use kilim_bson::{Document, RawValue, Value};

use crate::spec::Answer;

/// mongod has two engines, and which one runs a pipeline depends on its stages, its expressions and the indexes
/// of the collection. Where they answer differently, Kilim answers as one of them.
pub(super) const ENGINES: &str = "mongod's two engines answer differently, and Kilim as one of them";

/// mongod looks at the fields of a projection in an order that differs from process to process, and at
/// documents in the order of its plan.
pub(super) const SEVERAL_FAULTS: &str = "of several faults of a command, either may be named";

/// Why two answers to the command may differ, if they may.
pub(super) fn permitted(
    command: &Document,
    mongod: &Answer,
    kilim: &Answer,
    ghosts: bool,
) -> Option<&'static str> {
    let mut operators = Vec::new();
    super::pipeline::operators(&Value::Document(command.clone()), &mut operators);
    let has = |name: &str| operators.iter().any(|operator| operator == name);
    let both_fail = matches!((mongod, kilim), (Answer::Failed(_), Answer::Failed(_)));
    if both_fail && has("$sample") {
        return Some("$sample's documents come in any order, so either of two errors may be met first");
    }
    let codes = [mongod, kilim].map(|answer| match answer {
        Answer::Failed(failure) => failure.code,
        _ => 0,
    });
    if has("$setIsSubset") && codes.iter().all(|code| [17046, 17310].contains(code)) {
        return Some("whether mongod prepared $setIsSubset's second list decides its code");
    }
    let only_mongod_fails =
        matches!(mongod, Answer::Failed(failure) if failure.message.contains("parallel arrays"));
    if only_mongod_fails && has("$sort") {
        return Some("a sort whose order nobody sees is not done, and does not fail");
    }
    if has("$group") && (has("$exists") || has("$type")) && has("$match") {
        return Some("mongod asks a group's documents for $exists and $type what it should ask of the group");
    }
    // Which condition is asked first decides whether an expression among them is asked at all.
    let one_fails = matches!(mongod, Answer::Failed(_) | Answer::Text(_))
        != matches!(kilim, Answer::Failed(_) | Answer::Text(_));
    if one_fails && has("$expr") && has_mixed_filter(RawValue::Document(command.as_raw())) {
        return Some("the conditions of a filter are asked in no certain order, until one fails to hold");
    }
    if (ghosts || assigns_twice(command)) && in_any_field_order(mongod) == in_any_field_order(kilim) {
        return Some(
            "mongod keeps a place for a field that a stage computed as missing and another one sets",
        );
    }
    None
}

/// The stages that set fields by name.
const ASSIGNING: [&str; 6] = ["$addFields", "$set", "$project", "$lookup", "$graphLookup", "$unwind"];

/// Whether an `$expr` stands beside another condition.
fn has_mixed_filter(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Document(document) => {
            let asks = ["$expr", "$and", "$or", "$nor"].iter().any(|name| document.get(name).is_some());
            let mixed = asks && document.iter().count() > 1;
            mixed
                || document.iter().any(|(name, value)| {
                    let clauses = value.as_array().filter(|_| matches!(name, "$and" | "$or" | "$nor"));
                    clauses.is_some_and(|clauses| clauses.len() > 1) || has_mixed_filter(value)
                })
        }
        RawValue::Array(array) => array.iter().any(has_mixed_filter),
        _ => false,
    }
}

/// Whether two stages of a pipeline may set the same field.
pub(super) fn assigns_twice(command: &Document) -> bool {
    let mut stages = Vec::new();
    collect_stages(RawValue::Document(command.as_raw()), &mut stages);
    stages.len() > 1
}

fn collect_stages(value: RawValue<'_>, stages: &mut Vec<String>) {
    match value {
        RawValue::Document(document) => {
            for (name, value) in document.iter() {
                if ASSIGNING.contains(&name) {
                    stages.push(name.to_owned());
                }
                collect_stages(value, stages);
            }
        }
        RawValue::Array(array) => array.iter().for_each(|value| collect_stages(value, stages)),
        _ => {}
    }
}

/// The lines of an answer with the fields of every document sorted by name; none of a failure.
fn in_any_field_order(answer: &Answer) -> Option<Vec<String>> {
    let lines =
        |values: &[Value]| -> Vec<String> { values.iter().map(|value| sorted(value.as_raw())).collect() };
    match answer {
        Answer::Rows(values) => Some(lines(values)),
        Answer::Set(values) => {
            let mut lines = lines(values);
            lines.sort();
            Some(lines)
        }
        Answer::Reply(reply) => Some(vec![sorted(RawValue::Document(reply.as_raw()))]),
        _ => None,
    }
}

fn sorted(value: RawValue<'_>) -> String {
    match value {
        RawValue::Document(document) => {
            let mut fields: Vec<String> =
                document.iter().map(|(name, value)| format!("{name}: {}", sorted(value))).collect();
            fields.sort();
            format!("{{{}}}", fields.join(", "))
        }
        RawValue::Array(array) => {
            format!("[{}]", array.iter().map(sorted).collect::<Vec<_>>().join(", "))
        }
        other => crate::shell::print(other),
    }
}
