//! `cargo xtask compat`: COMPAT.md, made from the specs, so that it says what is tested and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use kilim_testkit::spec::{SpecFile, Target};

use crate::arguments::Arguments;
use crate::{manual, spec, workspace};

const HEAD: &str = "\
# Compatibility

What Kilim has of MongoDB, made from `specs/` by `cargo xtask compat`: do not edit. Every case counted here was
recorded from a real mongod, except those marked as Kilim's own, and is checked in every build. A difference that
is not listed is a bug.
";

pub fn run(mut arguments: Arguments) -> Result<()> {
    let checking = arguments.flag("--check");
    arguments.finish()?;
    if checking {
        return check();
    }
    std::fs::write(workspace::root().join("COMPAT.md"), page()?)?;
    Ok(())
}

pub fn check() -> Result<()> {
    let found = std::fs::read_to_string(workspace::root().join("COMPAT.md")).unwrap_or_default();
    ensure!(found == page()?, "COMPAT.md is stale: run `cargo xtask compat`");
    Ok(())
}

fn page() -> Result<String> {
    let differences = workspace::root().join("docs").join("differences.md");
    let differences = std::fs::read_to_string(&differences).context("docs/differences.md is missing")?;
    let mut page = HEAD.to_owned();
    // One level lower: it is a page of its own in docs/.
    page += "\n";
    page += &differences.lines().map(deepen).collect::<Vec<_>>().join("\n");
    page += "\n";
    let mut areas: BTreeMap<String, Vec<SpecFile>> = BTreeMap::new();
    for file in spec::read_all()? {
        let area = file.path.iter().nth(1).unwrap_or_default().to_string_lossy().into_owned();
        areas.entry(area).or_default().push(file);
    }
    page += &manual::section(&areas)?;
    for (area, files) in &areas {
        write!(page, "\n## {area}\n\n| Spec | Cases | About |\n| --- | ---: | --- |\n")?;
        for file in files {
            row(&mut page, file)?;
        }
        let notes: Vec<String> = files.iter().flat_map(notes).collect();
        if !notes.is_empty() {
            write!(page, "\n{}\n", notes.join("\n"))?;
        }
    }
    Ok(page)
}

fn deepen(line: &str) -> String {
    if line.starts_with('#') { format!("#{line}") } else { line.to_owned() }
}

fn row(page: &mut String, file: &SpecFile) -> Result<()> {
    let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
    let missing = file.cases.iter().filter(|case| !is_there(case)).count();
    let count = match missing {
        0 => file.cases.len().to_string(),
        missing => format!("{} of {}", file.cases.len() - missing, file.cases.len()),
    };
    // A bar would end the cell.
    let about = file.about.replace('|', "\\|");
    writeln!(page, "| [{name}]({}) | {count} | {about} |", file.path.display())?;
    Ok(())
}

fn is_there(case: &kilim_testkit::spec::Case) -> bool {
    case.fails.is_none() && !matches!(case.target, Target::Mongod(_))
}

/// What is missing or different, a line each; the same reason in one file is said once.
fn notes(file: &SpecFile) -> Vec<String> {
    let name = file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut notes: Vec<String> = Vec::new();
    for case in &file.cases {
        let note = match (&case.fails, &case.target) {
            (Some(reason), _) => format!("- Missing, `{name}`: {reason}."),
            (None, Target::Kilim(why)) => format!("- Kilim's own, `{name}`: {why}."),
            (None, Target::Mongod(why)) => format!("- Not followed, `{name}`: {why}."),
            (None, Target::Both) => continue,
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}
