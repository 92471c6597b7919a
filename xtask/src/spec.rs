//! `cargo xtask spec`: runs the specs against Kilim or a mongod, or records them from a mongod.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use kilim_testkit::oracle::Oracle;
use kilim_testkit::spec::{self, Against, CaseResult, Mismatch, Runner, SpecFile};
use kilim_testkit::subject::{self, Storage, Subject};

use crate::arguments::Arguments;
use crate::workspace;

pub fn run(mut arguments: Arguments) -> Result<()> {
    let recording = arguments.flag("--record");
    let filter: String = arguments.value("--filter")?.unwrap_or_default();
    let at: Option<String> = arguments.value("--at")?;
    let against = match arguments.value::<String>("--target")?.as_deref() {
        None | Some("kilim") if !recording => Against::Kilim,
        None | Some("mongod") => Against::Mongod,
        Some("kilim") => bail!("expectations come from mongod, never from Kilim"),
        Some(other) => bail!("a target is kilim or mongod, not {other:?}"),
    };
    let storage = arguments.value("--storage")?.unwrap_or(Storage::Memory);
    arguments.finish()?;

    let files = read_chosen(&filter)?;
    let started = Running::start(against, at, storage)?;
    let mut runner = Runner::new(started.address());
    if recording {
        return record(&mut runner, &files, &filter);
    }
    let began = Instant::now();
    let tally = check(&mut runner, &files, &filter, against)?;
    eprintln!("{:.1} s", began.elapsed().as_secs_f64());
    println!("{tally}");
    ensure!(tally.failed == 0, "specs failed");
    ensure!(tally.passed + tally.skipped > 0, "no case is called like {filter:?}");
    Ok(())
}

/// Every spec on every storage, as a part of `cargo xtask test`; gives the tally.
pub fn check_on_kilim(binary: &Path) -> Result<String> {
    let files = read_all()?;
    let tallies = std::thread::scope(|scope| {
        let on = |storage: Storage| {
            let files = &files;
            scope.spawn(move || -> Result<Tally> {
                let server = Subject::for_tests(binary, storage)?.start()?;
                let tally = check(&mut Runner::new(server.address.to_string()), files, "", Against::Kilim)?;
                ensure!(tally.failed == 0, "with storage {}: {tally}", storage.name());
                server.stop()?;
                Ok(tally)
            })
        };
        let runs = Storage::ALL.map(on);
        runs.map(|run| run.join().expect("a run of the specs does not panic"))
    });
    let [memory, disk] = tallies;
    let (memory, disk) = (memory?, disk?);
    ensure!(memory == disk, "in memory {memory}, on disk {disk}");
    Ok(format!("in memory and on disk: {memory}"))
}

/// All spec files, called by their path from the top of the repository.
pub fn read_all() -> Result<Vec<SpecFile>> {
    read_chosen("")
}

/// The same, but a fault in a file that the filter does not name is no fault of this run: somebody is
/// writing it.
fn read_chosen(filter: &str) -> Result<Vec<SpecFile>> {
    let mut files = Vec::new();
    for path in workspace::files(&workspace::root().join("specs"), "spec")? {
        let text = std::fs::read_to_string(&path)?;
        let name = path.strip_prefix(workspace::root()).unwrap_or(&path);
        match spec::parse(name, &text) {
            Ok(file) => files.push(file),
            Err(error) if filter.is_empty() || name.to_string_lossy().contains(filter) => return Err(error),
            Err(error) => eprintln!("left out: {error:#}"),
        }
    }
    Ok(files)
}

#[derive(Default, PartialEq)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The server asked for; ends with the value.
enum Running {
    Mongod(Oracle),
    Kilim(subject::Running),
    Elsewhere(String),
}

impl Running {
    fn start(against: Against, at: Option<String>, storage: Storage) -> Result<Running> {
        Ok(match (at, against) {
            (Some(address), _) => Running::Elsewhere(address),
            (None, Against::Mongod) => Running::Mongod(Oracle::start(&workspace::tools())?),
            (None, Against::Kilim) => {
                Running::Kilim(Subject::for_tests(&workspace::build_kilim()?, storage)?.start()?)
            }
        })
    }

    fn address(&self) -> String {
        match self {
            Running::Mongod(oracle) => oracle.address(),
            Running::Kilim(server) => server.address.to_string(),
            Running::Elsewhere(address) => address.clone(),
        }
    }
}

fn is_chosen(path: &Path, title: &str, filter: &str) -> bool {
    filter.is_empty() || format!("{}: {title}", path.display()).contains(filter)
}

fn check(runner: &mut Runner, files: &[SpecFile], filter: &str, against: Against) -> Result<Tally> {
    let mut tally = Tally::default();
    for file in files {
        for case in &file.cases {
            if !is_chosen(&file.path, &case.title, filter) {
                continue;
            }
            if !case.target.includes(against) {
                tally.skipped += 1;
                continue;
            }
            let gap = case.fails.as_deref().filter(|_| against == Against::Kilim);
            match (runner.check(case)?, gap) {
                (CaseResult::Passed, None) => tally.passed += 1,
                (CaseResult::Failed(_), Some(_)) => tally.skipped += 1,
                (CaseResult::Passed, Some(reason)) => {
                    tally.failed += 1;
                    println!("{}:{}: {}", file.path.display(), case.line, case.title);
                    println!("  passes now: remove `fails: kilim {reason:?}`\n");
                }
                (CaseResult::Failed(mismatch), None) => {
                    tally.failed += 1;
                    print_mismatch(&file.path, &case.title, &mismatch);
                }
            }
        }
    }
    Ok(tally)
}

/// Expected lines with a minus, actual ones with a plus, common ones plain.
fn print_mismatch(path: &Path, title: &str, mismatch: &Mismatch) {
    println!("{}:{}: {title}", path.display(), mismatch.line);
    let (expected, actual) = (&mismatch.expected, &mismatch.actual);
    let head = expected.iter().zip(actual).take_while(|(left, right)| left == right).count();
    let tail_max = expected.len().min(actual.len()) - head;
    let tail = expected.iter().rev().zip(actual.iter().rev()).take(tail_max);
    let tail = tail.take_while(|(left, right)| left == right).count();
    let plain = |lines: &[String]| lines.iter().for_each(|line| println!("    {line}"));
    plain(&expected[..head]);
    expected[head..expected.len() - tail].iter().for_each(|line| println!("  - {line}"));
    actual[head..actual.len() - tail].iter().for_each(|line| println!("  + {line}"));
    plain(&expected[expected.len() - tail..]);
    println!();
}

fn record(runner: &mut Runner, files: &[SpecFile], filter: &str) -> Result<()> {
    let (mut changed, mut problems) = (0, 0);
    for file in files {
        let recording = spec::record(runner, file, &|title| is_chosen(&file.path, title, filter))?;
        for (line, why) in &recording.problems {
            println!("{}:{line}: {why}", file.path.display());
        }
        problems += recording.problems.len();
        if recording.text != file.text {
            changed += 1;
            std::fs::write(workspace::root().join(&file.path), recording.text)
                .with_context(|| format!("cannot write {}", file.path.display()))?;
        }
    }
    println!("{changed} files changed, {problems} steps could not be recorded");
    ensure!(problems == 0, "some steps could not be recorded");
    Ok(())
}
