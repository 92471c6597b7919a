//! `cargo xtask diff`: generated commands to Kilim and mongod until they differ.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kilim_testkit::generate::{self, About, Search, Task, options};
use kilim_testkit::oracle::Oracle;
use kilim_testkit::subject::{Storage, Subject};

use crate::arguments::Arguments;
use crate::workspace;

const ABOUT: &[About] = &[
    About::Commands,
    About::Pipelines,
    About::Collations,
    About::Texts,
    About::Geometry,
    About::Measurements,
];

/// Histories on each storage in every test run: the same ones each time, so that what differs comes from the change at
/// hand.
const SHORT_HISTORIES: usize = 400;
/// On a slow machine the histories of a test run end here.
const SHORT_TIME: Duration = Duration::from_secs(60);
/// Where the seeds of a test run begin. Each storage has histories of its own.
const SHORT_SEED: u64 = 1_000_000;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds: u64 = arguments.value("--seconds")?.unwrap_or(60);
    let seed: Option<u64> = arguments.value("--seed")?;
    let count_max: usize = arguments.value("--count")?.unwrap_or(1);
    let at: Option<String> = arguments.value("--at")?;
    let only: Option<String> = arguments.value("--only")?;
    let storage = arguments.value("--storage")?.unwrap_or(Storage::Memory);
    let statistics = arguments.flag("--statistics");
    let step: usize = arguments.value("--step")?.unwrap_or(1);
    let command: Option<String> = arguments.value("--command")?;
    arguments.finish()?;
    let about: &[About] = match only.as_deref() {
        None => ABOUT,
        Some("commands") => &[About::Commands],
        Some("pipelines") => &[About::Pipelines],
        Some("windows") => &[About::Windows],
        Some("collations") => &[About::Collations],
        Some("texts") => &[About::Texts],
        Some("geo") => &[About::Geometry],
        Some("series") => &[About::Measurements],
        Some("options") => &[],
        Some(other) => {
            bail!(
                "histories are about commands, pipelines, windows, collations, texts, geo, series or options, not {other:?}"
            )
        }
    };
    let server = match &at {
        Some(_) => None,
        None => Some(Subject::for_tests(&workspace::build_kilim()?, storage)?.start()?),
    };
    let kilim = at.or(server.as_ref().map(|server| server.address.to_string())).unwrap_or_default();
    if about.is_empty() {
        return ask_options(&kilim, seed.unwrap_or(0) as usize, step, command.as_deref());
    }
    let seed = match seed {
        Some(seed) => seed,
        None => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs(),
    };
    let time = Duration::from_secs(seconds);
    let compared =
        Comparison { kilim: &kilim, seed, time, histories_max: usize::MAX, count_max, about, statistics }
            .run(|said| println!("{said}"))?;
    ensure!(
        compared.found == 0,
        "they differ; above are the shortest histories found, with mongod's answers"
    );
    Ok(())
}

/// Every command with every option and every type of value: `--step 10` asks every tenth question, `--command` those of one
/// command.
fn ask_options(kilim: &str, first: usize, step: usize, command: Option<&str>) -> Result<()> {
    let oracle = Oracle::start(&workspace::tools())?;
    let comparison = options::compare(&oracle.address(), kilim, first, step.max(1), command)?;
    print!("{}", differences(&comparison));
    for (reason, count) in &comparison.permitted {
        println!("{count:6} permitted: {reason}");
    }
    println!("{} questions, {} kinds of differences", comparison.questions, comparison.differences.len());
    ensure!(comparison.differences.is_empty(), "they differ");
    Ok(())
}

fn differences(comparison: &options::Comparison) -> String {
    let mut text = String::new();
    for ((command, place, mongod, kilim), values) in &comparison.differences {
        text += &format!(
            "{command} {place}\n  mongod: {mongod}\n  Kilim:  {kilim}\n  for {}\n",
            values.join(" ")
        );
    }
    text
}

/// Some histories on every storage, as a part of `cargo xtask test`; gives a note on what was done.
pub fn check(binary: &Path) -> Result<String> {
    let mut notes = Vec::new();
    for (storage, seed) in Storage::ALL.into_iter().zip((SHORT_SEED..).step_by(SHORT_HISTORIES)) {
        let server = Subject::for_tests(binary, storage)?.start()?;
        let comparison = Comparison {
            kilim: &server.address.to_string(),
            seed,
            time: SHORT_TIME / Storage::ALL.len() as u32,
            histories_max: SHORT_HISTORIES,
            count_max: 1,
            about: ABOUT,
            statistics: false,
        };
        let mut said = String::new();
        let compared = comparison.run(|line| said += &format!("{line}\n"))?;
        ensure!(compared.found == 0, "with storage {}, Kilim and mongod differ:\n{said}", storage.name());
        server.stop()?;
        notes.push(format!("{} histories with storage {}", compared.histories, storage.name()));
    }
    Ok(notes.join(", "))
}

struct Comparison<'a> {
    kilim: &'a str,
    seed: u64,
    time: Duration,
    histories_max: usize,
    count_max: usize,
    about: &'a [About],
    statistics: bool,
}

struct Compared {
    histories: usize,
    /// Differences.
    found: usize,
}

impl Comparison<'_> {
    fn run(&self, mut say: impl FnMut(&str)) -> Result<Compared> {
        let deadline = Instant::now() + self.time;
        let mut compared = Compared { histories: 0, found: 0 };
        loop {
            let oracle = Oracle::start(&workspace::tools())?;
            let task = Task {
                mongod: &oracle.address(),
                kilim: self.kilim,
                seed: self.seed + compared.histories as u64,
                time: deadline.saturating_duration_since(Instant::now()),
                histories_max: self.histories_max - compared.histories,
                count_max: self.count_max - compared.found,
                about: self.about,
            };
            let search = generate::search(&task)?;
            report(&search, task.seed, self.statistics, &mut say);
            compared.histories += search.histories;
            compared.found += search.found.len();
            // Some pipelines end mongod 6.0: then another one takes over behind them.
            match search.mongod_lost {
                Some(lost) => say(&format!("mongod ended at seed {lost}")),
                None => return Ok(compared),
            }
        }
    }
}

fn report(search: &Search, seed: u64, statistics: bool, say: &mut impl FnMut(&str)) {
    for found in &search.found {
        say(&format!("# seed {}\n{}", found.seed, found.spec));
    }
    let share = |asked: &generate::Asked| asked.answered * 100 / asked.questions.max(1);
    if statistics {
        for (name, asked) in &search.operators {
            say(&format!("{:6} questions, {:3} % answered {name}", asked.questions, share(asked)));
        }
    }
    for (reason, count) in &search.refused {
        say(&format!("{count:6} refused: {reason}"));
    }
    for (reason, count) in &search.permitted {
        say(&format!("{count:6} permitted: {reason}"));
    }
    let all = search.operators.get("").copied().unwrap_or_default();
    say(&format!(
        "seed {seed}: {} histories, {} commands, {} questions ({} % answered), {} differences",
        search.histories,
        search.commands,
        all.questions,
        share(&all),
        search.found.len()
    ));
}
