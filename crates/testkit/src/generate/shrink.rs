//! Makes a history that differs as short as it can be while it still differs in the same way.
//!
//! Greedy: steps go first, then given documents, then fields and elements, until nothing more can go.

use std::time::{Duration, Instant};

use anyhow::Result;
use kilim_bson::{Document, RawValue, Value, doc};

use super::{Difference, Pair};
use crate::spec::{Action, Case, Step};

/// Shrinking further than this helps no reader.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Fields of a command, or of a statement in it, that may shrink; others would make another command.
const SHRINKABLE: [&str; 14] = [
    "filter",
    "query",
    "q",
    "u",
    "update",
    "documents",
    "arrayFilters",
    "projection",
    "sort",
    "key",
    "updates",
    "indexes",
    "pipeline",
    "let",
];
const OPTIONAL: [&str; 15] = [
    "projection",
    "sort",
    "skip",
    "limit",
    "batchSize",
    "upsert",
    "new",
    "multi",
    "unique",
    "sparse",
    "partialFilterExpression",
    "query",
    "let",
    "allowDiskUse",
    "fields",
];

pub(super) fn shrink(pair: &mut Pair, case: Case, difference: Difference) -> Result<(Case, Difference)> {
    let deadline = Instant::now() + TIME_MAX;
    let (mut case, mut difference) = (case, difference);
    let differs =
        |pair: &mut Pair, candidate: &Case, kind: &(String, String)| -> Result<Option<Difference>> {
            // What comes before may differ too; what is sought is the last.
            Ok(pair.compare(candidate, None)?.into_iter().rev().find(|found| found.kind == *kind))
        };
    // What comes after the difference matters not, and mostly neither do the questions before it.
    if difference.kind.1 != "broken" {
        case.steps.truncate(difference.step + 1);
        for candidate in [without_questions(&case, false), without_questions(&case, true)] {
            if let Some(found) = differs(pair, &candidate, &difference.kind)? {
                (case, difference) = (candidate, found);
            }
        }
    }
    // After a step forward the search goes on where it stands: what was tried before rarely helps then.
    let mut progress = true;
    while progress && Instant::now() < deadline {
        progress = false;
        let mut at = 0;
        let mut open = candidates(&case);
        while at < open.len() && Instant::now() < deadline {
            match differs(pair, &open[at], &difference.kind)? {
                Some(found) => {
                    (case, difference) = (open.swap_remove(at), found);
                    open = candidates(&case);
                    progress = true;
                }
                None => at += 1,
            }
        }
    }
    Ok((case, difference))
}

/// The case without the questions before the last one, or without the indexes and views as well.
fn without_questions(case: &Case, all: bool) -> Case {
    let last = case.steps.len().saturating_sub(1);
    let mut smaller = case.clone();
    let mut at = 0;
    smaller.steps.retain(|step| {
        at += 1;
        at > last
            || match &step.action {
                Action::Docs { .. } | Action::Error { .. } => false,
                Action::Run(command) => {
                    !all && (command.get("createIndexes").is_some() || command.get("create").is_some())
                }
                _ => true,
            }
    });
    smaller
}

/// Smaller cases, the boldest first.
fn candidates(case: &Case) -> Vec<Case> {
    let mut candidates = Vec::new();
    for at in (0..case.steps.len()).rev() {
        let mut smaller = case.clone();
        smaller.steps.remove(at);
        candidates.push(smaller);
    }
    for (at, step) in case.steps.iter().enumerate() {
        let mut put = |action: Action| {
            let mut smaller = case.clone();
            smaller.steps[at].action = action;
            candidates.push(smaller);
        };
        match &step.action {
            Action::Given { collection, documents } => {
                for number in 0..documents.len() {
                    let mut fewer = documents.clone();
                    fewer.remove(number);
                    put(Action::Given { collection: collection.clone(), documents: fewer });
                }
                for number in 0..documents.len() {
                    for smaller in smaller_documents(&documents[number]) {
                        let mut changed = documents.clone();
                        changed[number] = smaller;
                        put(Action::Given { collection: collection.clone(), documents: changed });
                    }
                }
            }
            Action::Run(command) => smaller_commands(command).into_iter().for_each(|it| put(Action::Run(it))),
            Action::Error { message, command } => {
                let smaller = smaller_commands(command).into_iter();
                smaller.for_each(|command| put(Action::Error { message: *message, command }));
            }
            Action::Docs { unordered, command } => {
                if !unordered {
                    put(Action::Docs { unordered: true, command: command.clone() });
                }
                for smaller in smaller_commands(command) {
                    // Without its sort, rows have no order any more.
                    let sorts = |command: &Document| {
                        let mut operators = Vec::new();
                        super::pipeline::operators(&Value::Document(command.clone()), &mut operators);
                        command.get("sort").is_some() || operators.iter().any(|name| name == "$sort")
                    };
                    let unordered = *unordered || !sorts(&smaller);
                    put(Action::Docs { unordered, command: smaller });
                }
            }
            _ => {}
        }
    }
    candidates
}

/// Parts of a command that are tried at most to find a fault in one.
const PARTS_MAX: usize = 400;

/// The case up to a question, and then the question with one thing less, or with one thing only, in each of its
/// lists and documents in turn.
pub(super) fn parts_of_question(case: &Case, step: usize) -> Case {
    let mut parts = case.clone();
    parts.steps.truncate(step + 1);
    parts = without_questions(&parts, false);
    let Some(question) = parts.steps.pop() else { return parts };
    let (Action::Run(command) | Action::Docs { command, .. } | Action::Error { command, .. }) =
        &question.action
    else {
        return parts;
    };
    // A view may have faults of its own.
    if matches!(question.action, Action::Docs { .. } | Action::Error { .. }) {
        for name in ["aggregate", "find"] {
            if command.get(name).is_some() {
                let viewed =
                    |pipeline: Vec<Document>| doc! {"aggregate": "view", "pipeline": pipeline, "cursor": {}};
                let elsewhere = with(command, name, &Value::from("t"));
                for command in [elsewhere, viewed(Vec::new())] {
                    let action = Action::Docs { unordered: true, command };
                    parts.steps.push(Step { action, ..question.clone() });
                }
            }
        }
    }
    if matches!(question.action, Action::Docs { .. } | Action::Error { .. }) {
        for pipeline in parts_of_view(case) {
            let command = doc! {"aggregate": "t", "pipeline": pipeline, "cursor": {}};
            let action = Action::Docs { unordered: true, command };
            parts.steps.push(Step { action, ..question.clone() });
        }
    }
    for (name, value) in command.iter().filter(|(name, _)| SHRINKABLE.contains(name)) {
        for part in parts_of(value).into_iter().take(PARTS_MAX) {
            let command = with(command, name, &part);
            let action = Action::Docs { unordered: true, command };
            // Writes are not repeated: what they find would change.
            if matches!(question.action, Action::Run(_)) {
                continue;
            }
            parts.steps.push(Step { action, ..question.clone() });
        }
    }
    parts
}

/// The question in a world in which one of the collections has one of its documents alone, for each of them.
pub(super) fn with_single_documents(case: &Case, step: usize) -> Vec<Case> {
    let mut asked = case.clone();
    asked.steps.truncate(step + 1);
    let asked = without_questions(&asked, false);
    let mut alone = Vec::new();
    for (at, step) in asked.steps.iter().enumerate() {
        let Action::Given { collection, documents } = &step.action else { continue };
        for document in documents.iter().filter(|_| documents.len() > 1) {
            let mut case = asked.clone();
            let (collection, documents) = (collection.clone(), vec![document.clone()]);
            case.steps[at].action = Action::Given { collection, documents };
            alone.push(case);
        }
    }
    alone
}

/// Parts of the pipeline by which the view is made.
fn parts_of_view(case: &Case) -> Vec<Value> {
    let definition = case.steps.iter().find_map(|step| match &step.action {
        Action::Run(command) => command.get("viewOn").and_then(|_| command.get("pipeline")),
        _ => None,
    });
    definition.map_or(Vec::new(), |pipeline| parts_of(pipeline).into_iter().take(PARTS_MAX).collect())
}

fn parts_of(value: RawValue<'_>) -> Vec<Value> {
    let mut parts = Vec::new();
    match value {
        RawValue::Document(document) => {
            let document = document.to_document();
            let names: Vec<&str> = document.iter().map(|(name, _)| name).collect();
            if names.len() > 1 {
                for name in &names {
                    parts.push(Value::Document(without(&document, name)));
                    parts.push(Value::Document(
                        document
                            .iter()
                            .filter(|(it, _)| it == name)
                            .map(|(it, value)| (it, value.to_value()))
                            .collect(),
                    ));
                }
            }
            for (name, value) in document.iter() {
                parts.extend(parts_of(value).iter().map(|part| Value::Document(with(&document, name, part))));
            }
        }
        RawValue::Array(array) => {
            let elements: Vec<Value> = array.iter().map(RawValue::to_value).collect();
            for at in 0..elements.len() {
                if elements.len() > 1 {
                    let mut fewer = elements.clone();
                    let one = fewer.remove(at);
                    parts.push(Value::from(fewer));
                    parts.push(Value::from(vec![one]));
                }
                for part in parts_of(elements[at].as_raw()) {
                    let mut changed = elements.clone();
                    changed[at] = part;
                    parts.push(Value::from(changed));
                }
            }
        }
        _ => {}
    }
    parts
}

/// A command with an option less, or with a smaller filter, update or document in it.
fn smaller_commands(command: &Document) -> Vec<Document> {
    let mut smaller = Vec::new();
    for (name, value) in command.iter() {
        if OPTIONAL.contains(&name) {
            smaller.push(without(command, name));
        }
        if !SHRINKABLE.contains(&name) {
            continue;
        }
        let candidates: Vec<Value> = match value.to_value() {
            // A list of statements keeps them, and each is a little command.
            Value::Array(list) if matches!(name, "updates" | "indexes") => {
                let statement =
                    list.as_raw().get(0).and_then(|it| it.as_document()).map(|it| it.to_document());
                let changed = statement.iter().flat_map(smaller_commands);
                changed.map(|it| Value::Array([Value::Document(it)].into_iter().collect())).collect()
            }
            other => smaller_values(&other),
        };
        smaller.extend(candidates.into_iter().map(|candidate| with(command, name, &candidate)));
    }
    smaller
}

fn smaller_documents(document: &Document) -> Vec<Document> {
    let mut smaller = Vec::new();
    for (name, _) in document.iter().filter(|(name, _)| *name != "_id") {
        smaller.push(without(document, name));
    }
    for (name, value) in document.iter() {
        for candidate in smaller_values(&value.to_value()) {
            smaller.push(with(document, name, &candidate));
        }
    }
    smaller
}

fn smaller_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Document(document) => {
            let inner = inner_values(document).into_iter();
            inner.chain(smaller_documents(document).into_iter().map(Value::Document)).collect()
        }
        Value::Array(array) => {
            let elements: Vec<Value> = array.as_raw().iter().map(|element| element.to_value()).collect();
            let mut smaller = Vec::new();
            for at in 0..elements.len() {
                let mut fewer = elements.clone();
                fewer.remove(at);
                smaller.push(Value::from(fewer));
            }
            for at in 0..elements.len() {
                for candidate in smaller_values(&elements[at]) {
                    let mut changed = elements.clone();
                    changed[at] = candidate;
                    smaller.push(Value::from(changed));
                }
            }
            smaller
        }
        _ => Vec::new(),
    }
}

/// What an expression is made of: an argument may show the same as the whole.
fn inner_values(document: &Document) -> Vec<Value> {
    let mut fields = document.iter();
    match (fields.next(), fields.next()) {
        (Some((name, argument)), None) if name.starts_with('$') => match argument {
            RawValue::Array(arguments) => arguments.iter().map(RawValue::to_value).collect(),
            RawValue::Document(named) => named.iter().map(|(_, value)| value.to_value()).collect(),
            other => vec![other.to_value()],
        },
        _ => Vec::new(),
    }
}

fn without(document: &Document, name: &str) -> Document {
    document
        .iter()
        .filter(|(field, _)| *field != name)
        .map(|(field, value)| (field, value.to_value()))
        .collect()
}

pub(super) fn with(document: &Document, name: &str, replacement: &Value) -> Document {
    let fields = document
        .iter()
        .map(|(field, value)| (field, if field == name { replacement.clone() } else { value.to_value() }));
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::{parse_document, print_document};

    #[test]
    fn commands_shrink_to_commands_of_the_same_kind() {
        let command = parse_document(
            "{update: 't', updates: [{q: {_id: 1, a: {$in: [1, 2]}}, u: {$set: {b: {c: 1}}}, upsert: true}]}",
        );
        let smaller: Vec<String> =
            smaller_commands(&command.unwrap()).iter().map(|it| print_document(it.as_raw())).collect();
        for expected in [
            "{update: \"t\", updates: [{q: {_id: 1}, u: {$set: {b: {c: 1}}}, upsert: true}]}",
            "{update: \"t\", updates: [{q: {_id: 1, a: {$in: [2]}}, u: {$set: {b: {c: 1}}}, upsert: true}]}",
            "{update: \"t\", updates: [{q: {_id: 1, a: {$in: [1, 2]}}, u: {$set: {b: {}}}, upsert: true}]}",
            "{update: \"t\", updates: [{q: {_id: 1, a: {$in: [1, 2]}}, u: {$set: {b: {c: 1}}}}]}",
        ] {
            assert!(smaller.iter().any(|it| it == expected), "{expected} not in {smaller:#?}");
        }
        assert!(smaller.iter().all(|it| it.starts_with("{update: \"t\", updates: [{q: ")));
    }
}
