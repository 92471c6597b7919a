//! Differences that are none of Kilim's making, each with its reason. `docs/differences.md` tells them to users.

use kilim_bson::{Document, RawValue, Value, compare};
use kilim_client::Failure;

use super::pipeline::VIEW;
use crate::spec::Answer;

/// As mongod begins to tell of what always fails.
const OPTIMISING: &str = "Failed to optimize pipeline";

const REPLACED_NOTHING: &str = "mongod's $replaceAll of nothing puts the replacement into characters";

const CONDITIONS: &str = "conditions are asked in no certain order, until one fails to hold";

/// Why two answers to the command may differ, if they may. `view` is the definition of the view that it may read;
/// `ghosts` tells that data may lie in another order already.
pub(super) fn permitted(
    command: &Document,
    view: Option<&Document>,
    mongod: &Answer,
    kilim: &Answer,
    ghosts: bool,
) -> Option<&'static str> {
    let asked = with_view(command, view);
    let operators = operators(command, view);
    let has = |name: &str| operators.iter().any(|operator| operator == name);
    match (failure(mongod), failure(kilim)) {
        (Some(failure), _) if failure.code == 5_868_001 => {
            Some("mongod folds an $ifNull that is a new root to one operand, and then refuses that")
        }
        (Some(_), Some(_)) if has("$sample") => {
            Some("$sample's documents come in any order, so either of two errors may be met first")
        }
        (None, None) if has("$sample") && same_in_any_order(mongod, kilim) => {
            Some("$sample's documents come in any order, and a sort by a field that they lack keeps it")
        }
        (Some(one), Some(other))
            if has("$setIsSubset") && [&one, &other].iter().all(|it| [17046, 17310].contains(&it.code)) =>
        {
            Some("whether mongod prepared $setIsSubset's second list decides its code")
        }
        // Which of them is asked first decides, too, which document fails first.
        (Some(one), Some(other))
            if has("$expr")
                && conditions(asked.as_raw()) > 1
                && [&one, &other].iter().all(|it| it.message.starts_with("PlanExecutor error")) =>
        {
            Some(CONDITIONS)
        }
        (Some(_), Some(_)) => None,
        (Some(failure), None) if [40_095, 51_156].contains(&failure.code) && has("$replaceAll") => {
            Some(REPLACED_NOTHING)
        }
        (Some(failure), None) if failure.message.contains("parallel arrays") && has("$sort") => {
            Some("a sort whose order nobody sees is not done, and does not fail")
        }
        (Some(failure), None) if failure.message.contains("cannot nest $ under $in") && has_join(&has) => {
            Some("a join finds documents whose names begin with $; mongod refuses to look for several")
        }
        (Some(failure), None) if failure.message.contains("undefined") && has_join(&has) => {
            Some("a join finds nothing by an undefined value; mongod refuses to look for one")
        }
        // Which condition is asked first decides whether an expression among them is asked at all.
        (Some(_), None) | (None, Some(_)) if has("$expr") && conditions(asked.as_raw()) > 1 => {
            Some(CONDITIONS)
        }
        (Some(_), None) if binds_variables(asked.as_raw()) => {
            Some("mongod folds a $lookup's pipeline with its variables, and fails without a document")
        }
        (Some(failure), None)
            if failure.message.contains(OPTIMISING) && unites_view_in_lookup(asked.as_raw()) =>
        {
            Some("mongod folds a union with a view in a $lookup's pipeline, and fails without a document")
        }
        // `[{$project: {z: "$f"}}, {$match: {$expr: "$z"}}]` asks for `z` where only `f` is.
        (_, _) if has_bare_condition(asked.as_raw()) => {
            Some("mongod forgets that a field was renamed where it alone is an $expr")
        }
        // `[{$set: {"o.y": "$s"}}, {$match: {o: …}}]` asks for `o` as it was before.
        (_, _) if asks_for_parent_of_renamed(asked.as_raw()) => {
            Some("mongod asks for a document before a field that gets another's value is in it")
        }
        (_, _) if sorts_partitions_down(asked.as_raw()) => {
            Some("mongod takes documents for ascending that come by partitions in descending order")
        }
        // Groups that mongod does not make do not fail either.
        (None, _) if has("$group") && (has("$exists") || has("$type")) && has("$match") => {
            Some("mongod asks a group's documents for $exists and $type what it should ask of the group")
        }
        (None, Some(_)) if has("$group") && has("$expr") && has("$match") => {
            Some("mongod asks documents for an $expr about a group's key, where nothing is not null yet")
        }
        (Some(_), None) | (None, Some(_)) => None,
        (None, None) if has("$pow") && mongod.lines().iter().any(|line| line.contains("0E-6176")) => {
            Some("10 to the power of a decimal zero is 1, and 0 on mongod")
        }
        (None, None) if replaces_nothing(asked.as_raw()) => Some(REPLACED_NOTHING),
        (None, None) => {
            let assigned = ghosts || assignments(asked.as_raw()) > 1;
            let same = in_any_field_order(mongod).is_some_and(|it| Some(it) == in_any_field_order(kilim));
            (assigned && same).then_some(
                "mongod keeps a place for a field that a stage computed as missing and another one sets",
            )
        }
    }
}

/// The error of an answer: of the command, of its first write, or its code where only that is compared.
fn failure(answer: &Answer) -> Option<Failure> {
    let coded = |code: Option<i32>| Failure { code: code.unwrap_or_default(), ..Failure::default() };
    match answer {
        Answer::Failed(failure) => Some(failure.clone()),
        Answer::Text(lines) => {
            let code = lines.first().and_then(|line| line.split(' ').next());
            Some(coded(code.and_then(|code| code.parse().ok())))
        }
        Answer::Reply(reply) => {
            let errors = reply.get("writeErrors").and_then(RawValue::as_array)?;
            let code = errors.get(0).and_then(RawValue::as_document).and_then(|error| error.get("code"));
            Some(coded(match code {
                Some(RawValue::Int32(code)) => Some(code),
                _ => None,
            }))
        }
        _ => None,
    }
}

fn has_join(has: &impl Fn(&str) -> bool) -> bool {
    has("$lookup") || has("$graphLookup")
}

/// Every operator of what is asked in all.
pub(super) fn operators(command: &Document, view: Option<&Document>) -> Vec<String> {
    let mut operators = Vec::new();
    super::pipeline::operators(&with_view(command, view), &mut operators);
    operators
}

/// What is asked in all: the command, and the view if it is read.
fn with_view(command: &Document, view: Option<&Document>) -> Value {
    let view = view.filter(|_| names_view(command)).map(|view| Value::Document(view.clone()));
    Value::from([Some(Value::Document(command.clone())), view].into_iter().flatten().collect::<Vec<_>>())
}

fn names_view(command: &Document) -> bool {
    crate::shell::print_document(command.as_raw()).contains(&format!("{VIEW:?}"))
}

/// Whether a `$graphLookup` searches the view.
pub(super) fn searches_view(asked: RawValue<'_>) -> bool {
    let mut found = false;
    visit_operands(asked, &["$graphLookup"], &mut |stage| {
        let from = stage.as_document().and_then(|stage| stage.get("from"));
        found |= from.and_then(RawValue::as_str) == Some(VIEW);
    });
    found
}

/// Whether the pipeline of a `$lookup` has a union with the view.
fn unites_view_in_lookup(asked: RawValue<'_>) -> bool {
    let mut found = false;
    visit_operands(asked, &["$lookup"], &mut |lookup| {
        visit_operands(lookup, &["$unionWith"], &mut |union| {
            let united = union.as_document().map_or(Some(union), |union| union.get("coll"));
            found |= united.and_then(RawValue::as_str) == Some(VIEW);
        });
    });
    found
}

/// How many conditions stand in filters and joins.
fn conditions(value: RawValue<'_>) -> usize {
    match value {
        RawValue::Document(document) => document
            .iter()
            .map(|(name, value)| {
                let own = match (name, value) {
                    ("$match" | "filter" | "restrictSearchWithMatch" | "q", RawValue::Document(filter)) => {
                        filter.iter().count()
                    }
                    ("$and" | "$or" | "$nor", RawValue::Array(clauses)) => clauses.len() - 1,
                    ("localField" | "startWith", _) => 1,
                    _ => 0,
                };
                own + conditions(value)
            })
            .sum(),
        RawValue::Array(array) => array.iter().map(conditions).sum(),
        _ => 0,
    }
}

/// Whether a `$lookup` has variables.
fn binds_variables(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Document(document) => document.iter().any(|(name, value)| {
            let binds = value.as_document().is_some_and(|operand| operand.get("let").is_some());
            (name == "$lookup" && binds) || binds_variables(value)
        }),
        RawValue::Array(array) => array.iter().any(binds_variables),
        _ => false,
    }
}

/// Whether `$replaceAll` looks for an empty text.
fn replaces_nothing(asked: RawValue<'_>) -> bool {
    let mut found = false;
    visit_operands(asked, &["$replaceAll"], &mut |operand| {
        let sought = operand.as_document().and_then(|operand| operand.get("find"));
        found |= sought.and_then(RawValue::as_str) == Some("");
    });
    found
}

/// Whether an `$expr` is a field alone.
fn has_bare_condition(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Document(document) => document.iter().any(|(name, value)| {
            (name == "$expr" && matches!(value, RawValue::String(_))) || has_bare_condition(value)
        }),
        RawValue::Array(array) => array.iter().any(has_bare_condition),
        _ => false,
    }
}

/// Whether a field within a document gets another's value by `$addFields`, and a filter asks for that document.
fn asks_for_parent_of_renamed(asked: RawValue<'_>) -> bool {
    let mut parents = Vec::new();
    visit_operands(asked, &["$addFields", "$set"], &mut |fields| {
        renamed_within(fields, "", &mut parents);
    });
    let mut found = false;
    visit_operands(asked, &["$match", "filter", "query", "q"], &mut |filter| {
        found |= parents.iter().any(|parent| mentions(filter, parent));
    });
    found
}

/// Whether a `$setWindowFields` is partitioned by the field by which it sorts in descending order.
fn sorts_partitions_down(asked: RawValue<'_>) -> bool {
    let mut found = false;
    visit_operands(asked, &["$setWindowFields"], &mut |stage| {
        let part = |name| stage.as_document().and_then(|stage| stage.get(name));
        if let (Some(RawValue::String(partition)), Some(RawValue::Document(sort))) =
            (part("partitionBy"), part("sortBy"))
        {
            let direction = sort.get(partition.trim_start_matches('$'));
            found |= direction.is_some_and(|direction| compare(direction, RawValue::Int32(0)).is_lt());
        }
    });
    found
}

/// Visits what stands under these names.
fn visit_operands(value: RawValue<'_>, names: &[&str], visit: &mut dyn FnMut(RawValue<'_>)) {
    for (name, value) in value.as_container().into_iter().flatten() {
        if names.contains(&name) {
            visit(value);
        }
        visit_operands(value, names, visit);
    }
}

/// The paths of the documents in which a field gets a field's value.
fn renamed_within(fields: RawValue<'_>, above: &str, parents: &mut Vec<String>) {
    for (name, value) in fields.as_document().into_iter().flatten() {
        let path = format!("{above}{name}");
        match value {
            RawValue::String(text) if text.starts_with('$') => {
                let dots = path.match_indices('.');
                parents.extend(dots.map(|(at, _)| path[..at].to_owned()));
            }
            RawValue::Document(_) if !name.starts_with('$') => {
                renamed_within(value, &format!("{path}."), parents);
            }
            _ => {}
        }
    }
}

/// Whether a filter asks for a path.
fn mentions(filter: RawValue<'_>, path: &str) -> bool {
    match filter {
        RawValue::String(text) => text.strip_prefix('$') == Some(path),
        filter => {
            let mut fields = filter.as_container().into_iter().flatten();
            fields.any(|(name, value)| name == path || mentions(value, path))
        }
    }
}

/// What sets fields by name.
const ASSIGNING: [&str; 10] = [
    "$addFields",
    "$set",
    "$project",
    "$lookup",
    "$graphLookup",
    "$unwind",
    "$replaceRoot",
    "$replaceWith",
    "$setField",
    "$unset",
];

/// Whether two stages of a command may set the same field.
pub(super) fn assigns_twice(command: &Document) -> bool {
    assignments(RawValue::Document(command.as_raw())) > 1
}

fn assignments(value: RawValue<'_>) -> usize {
    match value {
        RawValue::Document(document) => document
            .iter()
            // What `$setField` is given may have been made by the same expression.
            .map(|(name, value)| {
                usize::from(ASSIGNING.contains(&name)) + usize::from(name == "$setField") + assignments(value)
            })
            .sum(),
        RawValue::Array(array) => array.iter().map(assignments).sum(),
        _ => 0,
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
            let mut elements: Vec<String> = array.iter().map(sorted).collect();
            // What `$objectToArray` made of a document has its order.
            if array.iter().all(is_pair) {
                elements.sort();
            }
            format!("[{}]", elements.join(", "))
        }
        other => crate::shell::print(other),
    }
}

/// A field and its value as `$objectToArray` shows them.
fn is_pair(element: RawValue<'_>) -> bool {
    let names = element.as_document().map(|pair| pair.iter().map(|(name, _)| name).collect::<Vec<_>>());
    names.is_some_and(|names| names == ["k", "v"])
}

fn same_in_any_order(one: &Answer, other: &Answer) -> bool {
    let sorted = |answer: &Answer| {
        let mut lines = answer.lines();
        lines.sort_unstable();
        lines
    };
    sorted(one) == sorted(other)
}
