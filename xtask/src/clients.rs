//! `cargo xtask clients`: the scripts of `tests/clients`, by real drivers, against one shared server.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kilim_testkit::oracle::Oracle;
use kilim_testkit::subject::{Storage, Subject};

use crate::arguments::Arguments;
use crate::packages;
use crate::workspace::{self, captured};

/// Those about declared patterns, `_pattern_`, are for Kilim alone; those about users, `_access_`, have a server of their own,
/// with `--auth`, and so have those about encryption, `_tls_`.
const SCRIPTS: [&str; 20] = [
    "pymongo_access_test.py",
    "pymongo_tls_test.py",
    "node_tls_test.mjs",
    "mongoose_tls_test.mjs",
    "mongosh_tls_test.js",
    "pymongo_test.py",
    "pymongo_aggregation_test.py",
    "pymongo_change_streams_test.py",
    "pymongo_geo_test.py",
    "pymongo_pattern_test.py",
    "node_driver_test.mjs",
    "node_aggregation_test.mjs",
    "node_change_streams_test.mjs",
    "mongoose_test.mjs",
    "mongoose_aggregation_test.mjs",
    "mongoose_change_streams_test.mjs",
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
        let is_for_kilim =
            |script: &str| ["_pattern_", "_access_", "_tls_"].iter().any(|part| script.contains(part));
        chosen.retain(|script| !is_for_kilim(script));
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
    let (encrypted, scripts): (Vec<&str>, Vec<&str>) =
        scripts.iter().copied().partition(|script| script.contains("_tls_"));
    let (about_users, others): (Vec<&str>, Vec<&str>) =
        scripts.into_iter().partition(|script| script.contains("_access_"));
    let mut notes = Vec::new();
    if !encrypted.is_empty() {
        notes.push(over_tls(binary, storage, &encrypted)?);
    }
    for (scripts, with_users) in [(others, false), (about_users, true)] {
        if scripts.is_empty() {
            continue;
        }
        let mut subject = Subject::for_tests(binary, storage)?;
        subject.arguments.extend(with_users.then(|| "--auth".to_owned()));
        let server = subject.start()?;
        let ran = run_all(&server.uri(), &scripts);
        let note = ran.with_context(|| format!("with storage {}", storage.name()))?;
        notes.push(if with_users { format!("{note} of users") } else { note });
        server.stop()?;
    }
    Ok(notes.join(", "))
}

/// The scripts about encryption, on a server that is set up as docs/security.md has it.
fn over_tls(binary: &Path, storage: Storage, scripts: &[&str]) -> Result<String> {
    const PASSWORD: &str = "p@ss:/ wörd";
    let scratch = tempfile::tempdir()?;
    let certificates = scratch.path().join("certs");
    captured(Command::new(binary).args(["tls", "init", "--client", "ann"]).arg(&certificates))?;
    let file = |name: &str| certificates.join(name).display().to_string();
    let mut subject = Subject::for_tests(binary, storage)?;
    let options = ["--auth", "--tls", "require", "--tls-clients", "allow", "--tls-cert"];
    subject.arguments.extend(options.map(str::to_owned));
    subject.arguments.extend([file("server.pem"), "--tls-ca".to_owned(), file("ca.pem")]);
    let server = subject.start()?;
    let secret = scratch.path().join("password");
    std::fs::write(&secret, PASSWORD)?;
    let mut add = Command::new(binary);
    add.args(["user", "add", "root", "--role", "root", "--tls-ca", &file("ca.pem"), "--uri", &server.uri()]);
    captured(add.arg("--password-file").arg(&secret))?;
    let mut output = String::new();
    for script in scripts {
        let uri = match script.ends_with(".js") {
            // The shell is connected when the script begins.
            true => format!("{}?tls=true&tlsCAFile={}", server.uri(), file("ca.pem")),
            false => server.uri(),
        };
        let mut command = command_for(script, &uri)?;
        if script.ends_with(".js") {
            command.args(["--username", "root", "--password", PASSWORD]).env("MONGODB_URI", server.uri());
        }
        command.env("KILIM_CERTS", &certificates).env("KILIM_PASSWORD", PASSWORD);
        output += &captured(&mut command).with_context(|| format!("{script} failed"))?;
    }
    server.stop()?;
    Ok(format!("{} over TLS", summary(&output)?))
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
