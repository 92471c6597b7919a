//! Time, chance and threads come to the store and to the database as an argument, the environment, so that a seed replays a
//! run. Sources that ask the system directly are found here. Tests may ask it.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::workspace;

/// What asks the system.
const NAMES: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    ".elapsed()",
    "rand::random",
    "rand::rng(",
    "thread::spawn",
    "thread::Builder",
    "thread::sleep",
];

const CRATES: &[&str] = &["crates/storage/src/", "crates/patterns/src/", "crates/engine/src/"];

/// The system's own environment and disk; what only tests and simulations are made of.
const ALLOWED: &[&str] = &[
    "crates/storage/src/environment.rs",
    "crates/storage/src/disk/directory.rs",
    "crates/storage/src/backend/faulty.rs",
    "crates/storage/src/backend/tree/simulation/",
    "crates/storage/src/model.rs",
    "crates/storage/src/fuzzing.rs",
    "crates/storage/src/sync.rs",
];

/// Sources that still ask the clock how long something took or how old it is, to show it. They may only go from here.
const LEFT: &[&str] = &[
    "crates/engine/src/index/spec.rs",
    "crates/engine/src/pipeline/explain.rs",
    "crates/engine/src/plan/cache.rs",
    "crates/engine/src/planner/explain.rs",
    "crates/engine/src/planner/trial.rs",
];

pub fn check() -> Result<()> {
    let root = workspace::root();
    let mut faults = Vec::new();
    for sources in CRATES {
        for file in workspace::files(&root.join(sources), "rs")? {
            let path = file.strip_prefix(&root).unwrap_or(&file);
            let found = faults_in(path, &std::fs::read_to_string(&file)?);
            match LEFT.iter().any(|left| path == Path::new(left)) {
                true if found.is_empty() => {
                    faults.push(format!("{} asks nothing any more, take it off LEFT", path.display()));
                }
                true => {}
                false => faults.extend(found),
            }
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn faults_in(path: &Path, text: &str) -> Vec<String> {
    let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
    if is_test || ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let found = |line: &str| NAMES.iter().find(|name| code(line).contains(**name));
    let faults = text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, found(line)?)));
    faults
        .map(|(at, name)| format!("{}:{at} has {name}: the environment is to be asked", path.display()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_and_the_database_ask_their_environment() {
        check().unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_direct_question_is_found() {
        let path = Path::new("crates/engine/src/unit/locks.rs");
        assert_eq!(faults_in(path, "let now = Instant::now();\nthread::sleep(now.elapsed())\n").len(), 2);
        assert!(
            faults_in(path, "environment.now() // not Instant::now\n#[cfg(test)]\nInstant::now()").is_empty()
        );
    }
}
