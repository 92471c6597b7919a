//! Differential search: random histories go to mongod and to Kilim until an answer differs.
//!
//! A history is a spec case: documents, indexes, then writes and questions, and at the end the whole
//! collection. What differs is shrunk and printed as a spec with mongod's answers, ready to be kept.
//!
//! Histories leave nothing to the choice of a plan: sorts end in `_id`, single updates name their
//! document, rows without a sort are compared in any order. So every difference is one.

mod filters;
mod history;
mod shrink;
mod updates;
mod values;

use std::time::{Duration, Instant};

use anyhow::Result;
use kilim_bson::{Document, RawValue, Value, Writer};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::client::Client;
use crate::shell::print_document;
use crate::spec::{Action, Answer, Case, Runner};

pub struct Search {
    pub histories: usize,
    pub commands: usize,
    pub found: Vec<Found>,
}

/// The shortest history found, as a spec, and the seed that leads to it.
pub struct Found {
    pub seed: u64,
    pub spec: String,
}

/// Searches until the time is up or `count_max` different differences are found. Seeds count up from
/// `seed`, one a history.
pub fn search(mongod: &str, kilim: &str, seed: u64, time: Duration, count_max: usize) -> Result<Search> {
    let mut pair = Pair { mongod: Runner::new(mongod), kilim: Runner::new(kilim) };
    let deadline = Instant::now() + time;
    let mut search = Search { histories: 0, commands: 0, found: Vec::new() };
    // Most differences come again and again; each is worth shrinking once.
    let mut known: Vec<(String, String, String)> = Vec::new();
    while Instant::now() < deadline && search.found.len() < count_max {
        let seed = seed + search.histories as u64;
        let case = history::generate(&mut StdRng::seed_from_u64(seed));
        search.histories += 1;
        search.commands += case.steps.len();
        let Some(difference) = pair.compare(&case)? else { continue };
        let (expected, actual) = difference.kind.clone();
        let symptom = (command_name(&case, difference.step), expected, actual);
        if known.contains(&symptom) {
            continue;
        }
        known.push(symptom);
        // A server that died answers nothing more, so there is nothing to shrink with.
        let alive = Client::connect(kilim).is_ok();
        let (case, difference) =
            if alive { shrink::shrink(&mut pair, case, difference)? } else { (case, difference) };
        search.found.push(Found { seed, spec: pair.print(&case, &difference)? });
        if !alive {
            break;
        }
    }
    Ok(search)
}

fn command_name(case: &Case, step: usize) -> String {
    match case.steps.get(step).map(|step| &step.action) {
        Some(Action::Run(command) | Action::Docs { command, .. }) => {
            command.iter().next().map_or_else(String::new, |(name, _)| name.to_owned())
        }
        _ => String::new(),
    }
}

/// The two servers.
struct Pair {
    mongod: Runner,
    kilim: Runner,
}

/// Where two answers part.
struct Difference {
    step: usize,
    kilim: Vec<String>,
    /// What stays the same while the history shrinks, so that it does not end as another difference.
    kind: (String, String),
}

impl Pair {
    fn compare(&mut self, case: &Case) -> Result<Option<Difference>> {
        let expected = answers(&mut self.mongod, case);
        // mongod itself may refuse a given document or an index: then there is nothing to compare.
        let Ok(expected) = expected else { return Ok(None) };
        let actual = answers(&mut self.kilim, case);
        let actual = match actual {
            Ok(actual) => actual,
            Err((line, error)) => {
                let kilim = vec![format!("! {error:#}")];
                let kind = ("answer".to_owned(), "broken".to_owned());
                return Ok(Some(Difference { step: line, kilim, kind }));
            }
        };
        for (step, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
            let (Some(expected), Some(actual)) = (expected, actual) else { continue };
            let (mongod, kilim) = (comparable(expected), comparable(actual));
            if mongod != kilim {
                return Ok(Some(Difference {
                    step,
                    kind: (kind(&mongod), kind(&kilim)),
                    kilim: actual.lines(),
                }));
            }
            // A statement for many that failed midway has done a part that depends on the plan.
            if is_partial(expected) {
                break;
            }
        }
        Ok(None)
    }

    /// The history as a spec, with mongod's answers.
    fn print(&mut self, case: &Case, difference: &Difference) -> Result<String> {
        let expected = answers(&mut self.mongod, case).unwrap_or_default();
        let mut spec = String::from("=== \n");
        for (number, step) in case.steps.iter().enumerate() {
            let answer = expected.get(number).and_then(Option::as_ref);
            match (&step.action, answer) {
                (Action::Given { collection, documents }, _) => {
                    spec += &format!("given {collection}\n");
                    documents.iter().for_each(|it| spec += &format!("{}\n", print_document(it.as_raw())));
                    spec += "\n";
                }
                (Action::Index { collection, key, options }, _) => {
                    let (key, options) = (print_document(key.as_raw()), print_document(options.as_raw()));
                    spec += &format!("index {collection} {key} {options}\n");
                }
                (Action::Run(command) | Action::Docs { command, .. }, Some(answer)) => {
                    let (keyword, lines) = match answer {
                        Answer::Failed(failure) => {
                            ("error", vec![format!("{} {}", failure.code, failure.name)])
                        }
                        Answer::Set(_) => ("docs unordered", answer.lines()),
                        Answer::Rows(_) => ("docs", answer.lines()),
                        other => ("run", other.lines()),
                    };
                    let command = print_document(command.as_raw());
                    spec += &format!("{keyword} {command}\n----\n{}\n", lines.join("\n"));
                    if number == difference.step {
                        difference.kilim.iter().for_each(|line| spec += &format!("# Kilim: {line}\n"));
                        if difference.kilim.is_empty() {
                            spec += "# Kilim: nothing\n";
                        }
                    }
                    spec += "\n";
                }
                _ => {}
            }
        }
        if difference.kind.1 == "broken" {
            spec += &format!("# Kilim: {}\n", difference.kilim.join("\n"));
        }
        Ok(spec)
    }
}

type Answers = Vec<Option<Answer>>;

/// Every step's answer, with what the server made itself hidden.
fn answers(runner: &mut Runner, case: &Case) -> Result<Answers, (usize, anyhow::Error)> {
    let mut answers = Vec::new();
    runner.run(case, &mut |_, answer| {
        answers.push(answer.map(Answer::with_volatile_values_hidden));
        true
    })?;
    Ok(answers)
}

/// Lines that must be equal: messages are not compared, and rows without an order are sorted.
fn comparable(answer: &Answer) -> Vec<String> {
    match answer {
        Answer::Failed(failure) => vec![format!("{} {}", failure.code, failure.name)],
        Answer::Reply(reply) => {
            let mut fields: Vec<String> = without_messages(reply)
                .iter()
                .map(|(name, value)| format!("{name}: {}", crate::shell::print(value)))
                .collect();
            fields.sort();
            fields
        }
        Answer::Set(_) => {
            let mut lines = answer.lines();
            lines.sort();
            lines
        }
        other => other.lines(),
    }
}

fn without_messages(reply: &Document) -> Document {
    let mut kept = Writer::new();
    for (name, value) in reply.iter() {
        let errors = value.as_array().filter(|_| name == "writeErrors");
        match errors {
            None => kept.append(name, value),
            Some(errors) => {
                let errors = errors.iter().filter_map(RawValue::as_document).map(|error| {
                    let mut fields: Vec<_> = error.iter().filter(|(name, _)| *name != "errmsg").collect();
                    // In mongod's replies their order varies.
                    fields.sort_by_key(|(name, _)| *name);
                    Value::Document(
                        fields.into_iter().map(|(name, value)| (name, value.to_value())).collect(),
                    )
                });
                kept.append(name, Value::Array(errors.collect()).as_raw());
            }
        }
    }
    kept.finish()
}

/// The code of an error or of the first write error, or just that there is an answer.
fn kind(lines: &[String]) -> String {
    if let [line] = lines
        && line.starts_with(|first: char| first.is_ascii_digit())
    {
        return line.clone();
    }
    let errors = lines.iter().find(|line| line.starts_with("writeErrors"));
    let code = errors.and_then(|line| line.split_once("code: ")).map(|(_, rest)| rest);
    match code.and_then(|rest| rest.split([',', '}']).next()) {
        Some(code) => format!("write error {code}"),
        None => "answer".to_owned(),
    }
}

fn is_partial(answer: &Answer) -> bool {
    matches!(answer, Answer::Reply(reply) if reply.get("writeErrors").is_some())
}
