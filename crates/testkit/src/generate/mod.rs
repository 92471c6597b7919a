//! Differential search: random histories go to mongod and to Kilim until an answer differs.
//!
//! A history is a spec case: documents, indexes, then writes and questions, and at the end the whole
//! collection. What differs is shrunk and printed as a spec with mongod's answers, ready to be kept.
//!
//! Histories leave nothing to the choice of a plan: sorts end in `_id`, single updates name their
//! document, rows without a sort are compared in any order. So every difference is one, but for those
//! that `permitted` lists, each with its reason, and those that mongod explains itself (`experiment`).

mod collations;
mod experiment;
mod filters;
mod geometry;
mod history;
mod measurements;
pub mod options;
mod permitted;
mod pipeline;
mod shrink;
mod texts;
mod updates;
mod values;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use kilim_bson::{Document, RawValue, Value, Writer};
use kilim_client::Client;
use rand::SeedableRng;
use rand::rngs::StdRng;

use self::experiment::Differing;
use crate::shell::print_document;
use crate::spec::{Action, Answer, Case, Runner, Step, Target};

/// What histories are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Filters, updates and indexes.
    Commands,
    /// The aggregation language.
    Pipelines,
    /// Windows, `$densify` and `$fill`.
    Windows,
    /// Both under a collation.
    Collations,
    /// Text indexes, and searches by them.
    Texts,
    /// Places on the sphere and in the plane.
    Geometry,
    /// Time series.
    Measurements,
}

/// What to search, and how long.
pub struct Task<'a> {
    pub mongod: &'a str,
    pub kilim: &'a str,
    /// Seeds count up from here, one a history.
    pub seed: u64,
    pub time: Duration,
    /// Ends after so many histories.
    pub histories_max: usize,
    /// Ends after so many different differences.
    pub count_max: usize,
    /// Takes turns among these.
    pub about: &'a [About],
}

#[derive(Default)]
pub struct Search {
    pub histories: usize,
    pub commands: usize,
    pub found: Vec<Found>,
    /// Differences met that are permitted, by their reason.
    pub permitted: BTreeMap<&'static str, usize>,
    /// How often each operator was asked about, and how often mongod had an answer that is no error. Under no
    /// name, all questions.
    pub operators: BTreeMap<String, Asked>,
    /// Histories that mongod would not begin, by its reason.
    pub refused: BTreeMap<String, usize>,
    /// The seed at which mongod itself ended, which ends the search.
    pub mongod_lost: Option<u64>,
}

#[derive(Default, Clone, Copy)]
pub struct Asked {
    pub questions: usize,
    pub answered: usize,
}

/// The shortest history found, as a spec, and the seed that leads to it.
pub struct Found {
    pub seed: u64,
    pub spec: String,
}

/// A difference that was found already: its kind, and all operators of the shortest command that shows it.
struct Known {
    kind: (String, String),
    command: String,
    operators: Vec<String>,
}

/// Searches until the time is up or enough is found.
pub fn search(task: &Task<'_>) -> Result<Search> {
    let mut pair = Pair::new(task)?;
    let deadline = Instant::now() + task.time;
    let mut search = Search::default();
    // Most differences come again and again; each is worth shrinking once.
    let mut known: Vec<Known> = Vec::new();
    while Instant::now() < deadline
        && search.histories < task.histories_max
        && search.found.len() < task.count_max
    {
        let seed = task.seed + search.histories as u64;
        let about = task.about[search.histories % task.about.len()];
        let mut random = StdRng::seed_from_u64(seed);
        let case = match about {
            About::Commands => history::generate(&mut random),
            About::Pipelines => pipeline::generate(&mut random),
            About::Windows => pipeline::generate_windows(&mut random),
            About::Collations => {
                let mut case = match seed % 2 {
                    0 => history::generate(&mut random),
                    _ => pipeline::generate(&mut random),
                };
                collations::collate(&mut random, &mut case);
                case
            }
            About::Texts => texts::generate(&mut random),
            About::Geometry => geometry::generate(&mut random),
            About::Measurements => measurements::generate(&mut random),
        };
        search.histories += 1;
        search.commands += case.steps.len();
        let differences = pair.compare(&case, Some(&mut search))?;
        if Client::connect(task.mongod).is_err() {
            search.mongod_lost = Some(seed);
            break;
        }
        let new = differences.into_iter().find(|difference| !is_known(&known, &case, difference));
        let Some(difference) = new else { continue };
        // A server that died answers nothing more, so there is nothing to shrink with.
        let alive = Client::connect(task.kilim).is_ok();
        let (case, difference) =
            if alive { shrink::shrink(&mut pair, case, difference)? } else { (case, difference) };
        known.push(Known {
            kind: difference.kind.clone(),
            command: command_name(&case, difference.step),
            operators: operators(&case, difference.step),
        });
        search.found.push(Found { seed, spec: pair.print(&case, &difference)? });
        if !alive {
            break;
        }
    }
    Ok(search)
}

/// Whether a command differs as a shorter one did that holds no operator more.
fn is_known(known: &[Known], case: &Case, difference: &Difference) -> bool {
    let operators = operators(case, difference.step);
    let command = command_name(case, difference.step);
    known.iter().any(|known| {
        known.kind == difference.kind
            && known.command == command
            && known.operators.iter().all(|operator| operators.contains(operator))
    })
}

/// A history of these steps.
fn one_case(actions: Vec<Action>) -> Case {
    let step = |action| Step { line: 0, action, session: None, expectation: None, end_line: 0 };
    let steps = actions.into_iter().map(step).collect();
    Case { title: "generated".to_owned(), line: 0, target: Target::Both, fails: None, steps }
}

fn command(case: &Case, step: usize) -> Option<&Document> {
    match case.steps.get(step).map(|step| &step.action) {
        Some(Action::Run(command) | Action::Docs { command, .. } | Action::Error { command, .. }) => {
            Some(command)
        }
        _ => None,
    }
}

fn command_name(case: &Case, step: usize) -> String {
    let name = command(case, step).and_then(|command| command.iter().next()).map(|(name, _)| name.to_owned());
    name.unwrap_or_default()
}

fn operators(case: &Case, step: usize) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(command) = command(case, step) {
        pipeline::operators(&Value::Document(command.clone()), &mut found);
    }
    found
}

/// The two servers.
struct Pair {
    mongod: Runner,
    kilim: Runner,
    /// Switches mongod between its two engines.
    control: Client,
}

/// Where two answers part.
struct Difference {
    step: usize,
    kilim: Vec<String>,
    /// What stays the same while the history shrinks, so that it does not end as another difference.
    kind: (String, String),
}

impl Pair {
    fn new(task: &Task<'_>) -> Result<Pair> {
        let control = Client::connect(task.mongod)?;
        Ok(Pair { mongod: Runner::new(task.mongod), kilim: Runner::new(task.kilim), control })
    }

    /// All differences that are not permitted, up to the first that makes later steps meaningless.
    fn compare(&mut self, case: &Case, mut search: Option<&mut Search>) -> Result<Vec<Difference>> {
        let expected = answers(&mut self.mongod, case);
        // mongod itself may refuse a given document or an index: then there is nothing to compare.
        let expected = match expected {
            Ok(expected) => expected,
            Err((_, error)) => {
                if let Some(search) = search {
                    *search.refused.entry(format!("{error:#}")).or_default() += 1;
                }
                return Ok(Vec::new());
            }
        };
        let actual = answers(&mut self.kilim, case);
        let actual = match actual {
            Ok(actual) => actual,
            Err((line, error)) => {
                let kilim = vec![format!("! {error:#}")];
                let kind = ("answer".to_owned(), "broken".to_owned());
                return Ok(vec![Difference { step: line, kilim, kind }]);
            }
        };
        let mut differences = Vec::new();
        // Set behind a `$merge` that failed midway, for the look at what it wrote.
        let mut unknown_target = false;
        // Set behind an update that may have left fields in another order.
        let mut ghosts = false;
        let created = case.steps.iter().filter_map(|step| match &step.action {
            Action::Run(command) => Some(command),
            _ => None,
        });
        let view = created.into_iter().find(|command| command.get("viewOn").is_some());
        let weak = collations::is_weak(case);
        let comparable = |answer: &Answer| {
            let mut lines = comparable(answer);
            if weak {
                lines.iter_mut().for_each(|line| *line = collations::folded(line));
                if let Answer::Set(_) = answer {
                    lines.sort();
                }
            }
            lines
        };
        for (step, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
            let (Some(expected), Some(actual)) = (expected, actual) else { continue };
            let question = command(case, step);
            if std::mem::take(&mut unknown_target) {
                continue;
            }
            // Whether a `$merge` that failed left an empty collection behind is nobody's business.
            if question.is_some_and(|command| command.get("drop").is_some()) {
                continue;
            }
            if let (Some(search), Some(question)) = (&mut search, question) {
                count(search, question, expected);
            }
            let (mongod, kilim) = (comparable(expected), comparable(actual));
            if mongod != kilim && !geometry::alike(expected, actual) {
                let permitted =
                    question.and_then(|it| permitted::permitted(it, view, expected, actual, ghosts));
                let reason = match permitted {
                    Some(reason) => Some(reason),
                    None => self.explained(&Differing {
                        case,
                        step,
                        view,
                        mongod: expected,
                        kilim: actual,
                        comparable: &comparable,
                    })?,
                };
                match (reason, &mut search) {
                    (Some(reason), Some(search)) => *search.permitted.entry(reason).or_default() += 1,
                    (Some(_), None) => {}
                    (None, _) => differences.push(Difference {
                        step,
                        kind: (kind(&mongod), kind(&kilim)),
                        kilim: actual.lines(),
                    }),
                }
            }
            // A statement for many that failed midway has done a part that depends on the plan, and what
            // follows on different writes differs too.
            match question.map_or(Writes::Nothing, writes) {
                Writes::Nothing => {}
                Writes::Target => {
                    unknown_target = mongod != kilim || is_partial(expected);
                    ghosts |= question.is_some_and(permitted::assigns_twice);
                }
                Writes::Data if mongod != kilim || is_partial(expected) => break,
                Writes::Data => ghosts |= question.is_some_and(permitted::assigns_twice),
            }
        }
        Ok(differences)
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
                (
                    Action::Run(command) | Action::Docs { command, .. } | Action::Error { command, .. },
                    Some(answer),
                ) => {
                    let (keyword, lines) = match answer {
                        Answer::Text(_) => ("error", answer.lines()),
                        Answer::Succeeded => ("do", answer.lines()),
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

/// Whether a command failed, perhaps midway.
fn is_partial(answer: &Answer) -> bool {
    match answer {
        Answer::Reply(reply) => reply.get("writeErrors").is_some(),
        other => matches!(other, Answer::Failed(_)),
    }
}

/// The code of a refusal.
fn fault(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Failed(failure) => Some(format!("{} {}", failure.code, failure.name)),
        Answer::Text(lines) => lines.first().cloned(),
        Answer::Reply(reply) => {
            let errors = reply.get("writeErrors").and_then(RawValue::as_array)?;
            let first = errors.get(0).and_then(RawValue::as_document)?;
            first.get("code").map(crate::shell::print)
        }
        _ => None,
    }
}

/// What later steps see of a command.
enum Writes {
    Nothing,
    /// Only the next step looks at it.
    Target,
    Data,
}

fn writes(command: &Document) -> Writes {
    let name = command.iter().next().map_or("", |(name, _)| name);
    match name {
        "find" | "count" | "distinct" | "drop" => Writes::Nothing,
        "aggregate" => {
            let stages = command.get("pipeline").and_then(RawValue::as_array);
            let last = stages.and_then(|stages| stages.iter().last()).and_then(RawValue::as_document);
            match last.is_some_and(|stage| stage.get("$merge").is_some() || stage.get("$out").is_some()) {
                true => Writes::Target,
                false => Writes::Nothing,
            }
        }
        _ => Writes::Data,
    }
}

fn count(search: &mut Search, command: &Document, answer: &Answer) {
    if !["aggregate", "find", "update", "findAndModify"].iter().any(|name| command.get(name).is_some()) {
        return;
    }
    let mut operators = vec![String::new()];
    pipeline::operators(&Value::Document(command.clone()), &mut operators);
    for operator in operators {
        let asked = search.operators.entry(operator).or_default();
        asked.questions += 1;
        asked.answered += usize::from(!is_partial(answer));
    }
}
