//! `cargo xtask test`: everything that CI runs, in order, cheap things first; stops at the first failure.
//!
//! A part is a line of one table. `--only` names some of them, which brings along what they need.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::arguments::Arguments;
use crate::workspace::{self, captured};
use crate::{
    arrows, check, clients, compat, crash, diff, layers, links, packages, records, soak, spec, transfer,
    trust,
};

struct Part {
    name: &'static str,
    title: &'static str,
    /// Parts whose results this one uses.
    needs: &'static [&'static str],
    /// Gives a note on what was done, perhaps empty.
    run: fn(&mut Made) -> Result<String>,
}

/// What earlier parts made for later ones.
#[derive(Default)]
struct Made {
    binary: PathBuf,
}

/// In the order in which they run.
const PARTS: &[Part] = &[
    Part { name: "format", title: "formatting", needs: &[], run: |_| silent(check::formatting()) },
    Part { name: "arrows", title: "arrows between crates", needs: &[], run: |_| silent(arrows::check()) },
    Part { name: "layers", title: "arrows between modules", needs: &[], run: |_| silent(layers::check()) },
    Part { name: "records", title: "records in one module", needs: &[], run: |_| silent(records::check()) },
    Part { name: "links", title: "links in the docs", needs: &[], run: |_| silent(links::check()) },
    Part { name: "compat", title: "COMPAT.md is current", needs: &[], run: |_| silent(compat::check()) },
    Part { name: "clippy", title: "clippy", needs: &[], run: |_| silent(check::clippy()) },
    Part { name: "unit", title: "unit and property tests", needs: &[], run: |_| unit() },
    Part { name: "model", title: "schedules of commits", needs: &[], run: |_| trust::check_schedules() },
    Part { name: "build", title: "build kilim", needs: &[], run: build },
    Part { name: "fetch", title: "fetch clients", needs: &[], run: |_| fetch() },
    Part { name: "specs", title: "specs", needs: &["build"], run: |made| spec::check_on_kilim(&made.binary) },
    Part {
        name: "kill",
        title: "insert, kill -9, recover, find",
        needs: &["build", "fetch"],
        run: |made| clients::kill_slice(&made.binary),
    },
    Part {
        name: "clients",
        title: "real clients",
        needs: &["build", "fetch"],
        run: |made| clients::check(&made.binary),
    },
    Part {
        name: "transfer",
        title: "dumps to mongod and back",
        needs: &["build"],
        run: |made| transfer::check(&made.binary),
    },
    Part {
        name: "diff",
        title: "random commands beside mongod",
        needs: &["build"],
        run: |made| diff::check(&made.binary),
    },
    Part {
        name: "soak",
        title: "mixed load and hostile clients",
        needs: &["build"],
        run: |made| soak::check(&made.binary),
    },
    Part {
        name: "crash",
        title: "crashes and histories",
        needs: &["build"],
        run: |made| crash::check(&made.binary),
    },
];

pub fn run(mut arguments: Arguments) -> Result<()> {
    let only: Option<String> = arguments.value("--only")?;
    arguments.finish()?;
    let chosen = chosen(only.as_deref())?;
    let started = Instant::now();
    let mut made = Made::default();
    for part in PARTS.iter().filter(|part| chosen.contains(&part.name)) {
        run_part(part, &mut made)?;
    }
    println!("all passed in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The names of the parts to run: those named, with commas between, and those they need.
fn chosen(only: Option<&str>) -> Result<Vec<&'static str>> {
    let Some(only) = only else { return Ok(PARTS.iter().map(|part| part.name).collect()) };
    let mut chosen = Vec::new();
    for name in only.split(',') {
        let Some(part) = PARTS.iter().find(|part| part.name == name) else {
            let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
            bail!("no part is called {name:?}; the parts are {}", known.join(", "));
        };
        chosen.extend_from_slice(part.needs);
        chosen.push(part.name);
    }
    Ok(chosen)
}

/// Runs one part and prints how long it took.
fn run_part(part: &Part, made: &mut Made) -> Result<()> {
    print!("{:<10}{:<32}", part.name, part.title);
    std::io::stdout().flush()?;
    let started = Instant::now();
    let outcome = (part.run)(made);
    let seconds = started.elapsed().as_secs_f64();
    match outcome {
        Ok(note) => {
            println!("{}", format!("{seconds:>7.1} s   {note}").trim_end());
            Ok(())
        }
        Err(error) => {
            println!("{seconds:>7.1} s   FAILED");
            let again = format!("cargo xtask test --only {}", part.name);
            Err(anyhow!("{error:#}\n\ncargo xtask test stopped at: {}; `{again}` repeats it", part.title))
        }
    }
}

fn silent(outcome: Result<()>) -> Result<String> {
    outcome.map(|()| String::new())
}

fn build(made: &mut Made) -> Result<String> {
    made.binary = workspace::build_kilim()?;
    Ok(String::new())
}

fn fetch() -> Result<String> {
    packages::python()?;
    packages::node()?;
    Ok(String::new())
}

/// nextest where it is installed, because it is quicker and its reports are shorter.
fn unit() -> Result<String> {
    let nextest =
        workspace::cargo().args(["nextest", "--version"]).output().is_ok_and(|it| it.status.success());
    let mut command = workspace::cargo();
    if nextest {
        command.args(["nextest", "run", "--workspace", "--cargo-quiet", "--status-level", "fail"]);
        command.args(["--final-status-level", "fail", "--no-fail-fast"]);
    } else {
        command.args(["test", "--quiet", "--workspace"]);
    }
    captured(&mut command).context("tests failed")?;
    Ok(if nextest { "nextest".to_owned() } else { "cargo test".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_brings_what_it_needs_before_itself() {
        assert_eq!(chosen(Some("specs,links")).unwrap(), ["build", "specs", "links"]);
        for (at, part) in PARTS.iter().enumerate() {
            let earlier = |name: &&str| PARTS[..at].iter().any(|other| other.name == *name);
            assert!(part.needs.iter().all(earlier), "{} runs before what it needs", part.name);
        }
    }

    #[test]
    fn an_unknown_part_is_answered_with_the_known_ones() {
        let error = chosen(Some("spec")).unwrap_err().to_string();
        assert!(PARTS.iter().all(|part| error.contains(part.name)), "{error}");
    }
}
