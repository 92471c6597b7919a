//! Histories under a collation: the same commands, and texts that a language takes for alike.
//!
//! A history gets one collation, which its commands name, or a collection has by default. Texts of its documents
//! vary in case and accents, so that they often meet under it and seldom without it.
//!
//! Of texts that are equal under a collation, which one stands for all may depend on the order of a plan.
//! So where case does not count, answers are compared without it ([`folded`]).

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::spec::{Action, Case, Step};

/// Puts a history under a collation.
pub(super) fn collate(random: &mut StdRng, case: &mut Case) {
    let collation = collation(random);
    let by_default = random.random_bool(0.3);
    let mut steps: Vec<Step> = Vec::new();
    for mut step in case.steps.drain(..) {
        match &mut step.action {
            Action::Given { collection, documents } => {
                for document in &mut *documents {
                    *document = varied_document(random, document.as_raw());
                }
                if by_default && !documents.is_empty() {
                    let create = doc! {"create": collection.as_str(), "collation": collation.clone()};
                    steps.push(Step {
                        line: 0,
                        action: Action::Do(create),
                        session: None,
                        expectation: None,
                        end_line: 0,
                    });
                }
            }
            Action::Run(command) | Action::Docs { command, .. } | Action::Error { command, .. } => {
                // Some say nothing, or that they want none.
                let own = match random.random_range(0..20) {
                    0 => None,
                    1 => Some(doc! {"locale": "simple"}),
                    _ if by_default && random.random_bool(0.7) => None,
                    _ => Some(collation.clone()),
                };
                // All that reads a view must agree with it.
                let own = if command.get("viewOn").is_some() { Some(collation.clone()) } else { own };
                if let Some(own) = own {
                    *command = under(command.as_raw(), &own);
                }
            }
            _ => {}
        }
        steps.push(step);
    }
    case.steps = steps;
}

fn collation(random: &mut StdRng) -> Document {
    let locale = *["en", "en", "de", "sv", "fr", "es"].choose(random).expect("not empty");
    let mut collation = doc! {"locale": locale};
    let strength = if random.random_bool(0.8) { random.random_range(1..4) } else { 3 };
    if strength < 3 {
        collation.push("strength", strength);
    }
    let case_level = random.random_bool(0.15);
    if case_level {
        collation.push("caseLevel", true);
    }
    // Where case does not count, neither of its two sides can come first.
    if (case_level || strength > 2) && random.random_bool(0.3) {
        collation.push("caseFirst", *["upper", "lower"].choose(random).expect("two"));
    }
    if random.random_bool(0.2) {
        collation.push("numericOrdering", true);
    }
    if random.random_bool(0.15) {
        collation.push("alternate", "shifted");
    }
    collation
}

/// The command with a collation, which writes name in each statement.
fn under(command: RawDocument<'_>, collation: &Document) -> Document {
    let name = command.iter().next().map_or("", |(name, _)| name);
    let statements = match name {
        "update" => "updates",
        "delete" => "deletes",
        "find" | "count" | "distinct" | "aggregate" | "findAndModify" => "",
        "create" if command.get("viewOn").is_some() => "",
        // Of an index it says which queries it serves, and of the others nothing.
        "createIndexes" => "indexes",
        _ => return command.to_document(),
    };
    let mut collated = Document::new();
    for (field, value) in command {
        let list = value.as_array().filter(|_| field == statements);
        match list {
            None => collated.push(field, value.to_value()),
            Some(list) => {
                let each = list.iter().map(|one| match one {
                    RawValue::Document(one) => Value::Document(with(one, collation)),
                    other => other.to_value(),
                });
                collated.push(field, Value::Array(each.collect()));
            }
        }
    }
    if statements.is_empty() { with(collated.as_raw(), collation) } else { collated }
}

fn with(document: RawDocument<'_>, collation: &Document) -> Document {
    let mut document = document.to_document();
    if document.get("collation").is_none() {
        document.push("collation", collation.clone());
    }
    document
}

fn varied_document(random: &mut StdRng, document: RawDocument<'_>) -> Document {
    document
        .iter()
        .map(|(name, value)| (name, if name == "_id" { value.to_value() } else { varied(random, value) }))
        .collect()
}

/// The value with its texts in other letters.
fn varied(random: &mut StdRng, value: RawValue<'_>) -> Value {
    match value {
        RawValue::String(text) => Value::String(match random.random_range(0..6) {
            0 | 1 => text.to_uppercase(),
            2 => text.to_lowercase(),
            3 => text.replace('a', "á").replace('e', "É").replace('o', "ö"),
            _ => text.to_owned(),
        }),
        RawValue::Document(document) => Value::Document(varied_document(random, document)),
        RawValue::Array(array) => Value::Array(array.iter().map(|one| varied(random, one)).collect()),
        other => other.to_value(),
    }
}

/// Whether a history has a collation under which different texts are equal.
pub(super) fn is_weak(case: &Case) -> bool {
    let weak = |command: &Document| {
        let text = crate::shell::print_document(command.as_raw());
        text.contains("strength: 1")
            || text.contains("strength: 2")
            || text.contains("alternate:")
            || text.contains("numericOrdering:")
    };
    case.steps.iter().any(|step| match &step.action {
        Action::Do(command)
        | Action::Run(command)
        | Action::Docs { command, .. }
        | Action::Error { command, .. } => weak(command),
        _ => false,
    })
}

/// A line of an answer without case and accents.
pub(super) fn folded(line: &str) -> String {
    let plain = |letter: char| match letter {
        'á' => 'a',
        'é' => 'e',
        'ö' => 'o',
        other => other,
    };
    line.to_lowercase().chars().map(plain).collect()
}
