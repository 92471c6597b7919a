//! `cargo xtask clients`: the scripts of `tests/clients`, by real drivers, against one shared server.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kilim_testkit::oracle::Oracle;
use kilim_testkit::subject::{Storage, Subject};

use crate::arguments::Arguments;
use crate::packages;
use crate::workspace::{self, captured};

/// Those about declared patterns, `_pattern_`, are for Kilim alone.
const SCRIPTS: [&str; 11] = [
    "pymongo_test.py",
    "pymongo_aggregation_test.py",
    "pymongo_pattern_test.py",
    "node_driver_test.mjs",
    "node_aggregation_test.mjs",
    "mongoose_test.mjs",
    "mongoose_aggregation_test.mjs",
    "mongoose_pattern_test.mjs",
    "mongosh_test.js",
    "mongosh_aggregation_test.js",
    "mongosh_pattern_test.js",
];

pub fn run(mut arguments: Arguments) -> Result<()> {
    let filter: String = arguments.value("--filter")?.unwrap_or_default();
    let target: Option<String> = arguments.value("--target")?;
    let storage = arguments.value("--storage")?.unwrap_or(Storage::Memory);
    arguments.finish()?;
    let mut chosen: Vec<&str> = SCRIPTS.into_iter().filter(|script| script.contains(&filter)).collect();
    if target.as_deref() == Some("mongod") {
        chosen.retain(|script| !script.contains("_pattern_"));
    }
    ensure!(!chosen.is_empty(), "no script is called like {filter:?}");
    match target.as_deref() {
        Some("mongod") => {
            let oracle = Oracle::start(&workspace::tools())?;
            run_all(&oracle.uri(), &chosen)
        }
        None | Some("kilim") => on_kilim(&workspace::build_kilim()?, storage, &chosen),
        Some(other) => bail!("a target is kilim or mongod, not {other:?}"),
    }
    .map(|note| println!("{note}"))
}

/// All scripts on every storage; gives a note on what was done.
pub fn check(binary: &Path) -> Result<String> {
    let [memory, disk] = std::thread::scope(|scope| {
        let on = |storage: Storage| scope.spawn(move || on_kilim(binary, storage, &SCRIPTS));
        Storage::ALL.map(on).map(|run| run.join().expect("a run of the scripts does not panic"))
    });
    Ok(format!("in memory {}, on disk {}", memory?, disk?))
}

fn on_kilim(binary: &Path, storage: Storage, scripts: &[&str]) -> Result<String> {
    let server = Subject::for_tests(binary, storage)?.start()?;
    let note = run_all(&server.uri(), scripts).with_context(|| format!("with storage {}", storage.name()))?;
    server.stop()?;
    Ok(note)
}

/// hello, insert, find, kill -9, recover, find.
pub fn kill_slice(binary: &Path) -> Result<String> {
    let mut command = Command::new(packages::python()?);
    command.arg(folder().join("kill_slice.py")).env("KILIM_BINARY", binary);
    summary(&captured(&mut command)?)
}

fn run_all(uri: &str, scripts: &[&str]) -> Result<String> {
    let mut output = String::new();
    for script in scripts {
        let mut command = command_for(script, uri)?;
        output += &captured(&mut command).with_context(|| format!("{script} failed"))?;
    }
    summary(&output)
}

fn command_for(script: &str, uri: &str) -> Result<Command> {
    let path = folder().join(script);
    let mut command = match script {
        python if python.ends_with(".py") => Command::new(packages::python()?),
        shell if shell.ends_with(".js") => {
            // mongosh keeps its settings in the home directory: not in the user's.
            let home = workspace::tools().join("home");
            std::fs::create_dir_all(&home)?;
            let mut command = Command::new(packages::node()?.join("node_modules/.bin/mongosh"));
            command.env("HOME", home).args(["--quiet", "--norc", uri, "--file"]);
            command
        }
        _ => Command::new("node"),
    };
    command.arg(path).env("MONGODB_URI", uri).env("NODE_NO_WARNINGS", "1");
    if !script.ends_with(".py") {
        command.env("KILIM_NODE_MODULES", packages::node()?);
    }
    Ok(command)
}

fn folder() -> std::path::PathBuf {
    workspace::root().join("tests").join("clients")
}

/// Scripts print a line per check; one that printed none checked nothing.
fn summary(output: &str) -> Result<String> {
    let checks = output.lines().filter(|line| line.starts_with("ok ")).count();
    ensure!(checks > 0, "no check ran:\n{output}");
    Ok(format!("{checks} checks"))
}
