//! `cargo xtask fuzz`: the fuzz targets, built with coverage instrumentation, each for a while.
//!
//! What the specs ask becomes the seeds. What a run learns stays in `.tools/fuzz`; what it finds is a file there, to be
//! made a named test.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{Document, JsonFormat, RawDocument, RawValue, to_extended_json};
use kilim_testkit::spec::{Action, parse};

use crate::arguments::Arguments;
use crate::workspace::{captured, cargo, files, root, target_directory as target_folder, tools};

const TARGETS: [&str; 8] =
    ["wire", "bson", "extended_json", "filter", "update", "key_order", "command", "recovery"];

/// As cargo-fuzz does without a sanitizer: counters for every edge, and comparisons to learn from.
const INSTRUMENTATION: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=16",
    "-Clto=off",
];

struct Limits {
    seconds: Option<u64>,
    executions: Option<u64>,
}

pub fn run(mut arguments: Arguments) -> Result<()> {
    let limits =
        Limits { seconds: arguments.value("--seconds")?, executions: arguments.value("--executions")? };
    let only: Option<String> = arguments.value("--target")?;
    arguments.finish()?;
    let limits = match limits {
        Limits { seconds: None, executions: None } => Limits { seconds: Some(60), executions: None },
        given => given,
    };
    let chosen: Vec<&str> =
        TARGETS.into_iter().filter(|target| only.as_deref().is_none_or(|only| only == *target)).collect();
    ensure!(!chosen.is_empty(), "targets are {}", TARGETS.join(", "));
    perform(&chosen, &limits, |target, executions, seconds| {
        println!("{target:<14} {executions:>12} executions in {seconds} s");
    })
    .map(|total| println!("{total} executions, nothing found"))
}

fn perform(targets: &[&str], limits: &Limits, report: impl Fn(&str, u64, u64)) -> Result<u64> {
    let binaries = build()?;
    let home = tools().join("fuzz");
    write_seeds(&home.join("seeds"))?;
    let mut total = 0;
    for target in targets {
        let (executions, seconds) = run_target(&binaries.join(target), target, &home, limits)?;
        report(target, executions, seconds);
        total += executions;
    }
    Ok(total)
}

fn build() -> Result<PathBuf> {
    let host = captured(Command::new("rustc").arg("-vV"))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let target_directory = target_folder()?.join("fuzz");
    let mut command = cargo();
    // A target that is named keeps the flags from build scripts and macros.
    command.args(["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    command.arg("--target-dir").arg(&target_directory);
    command.env("RUSTFLAGS", INSTRUMENTATION.join(" "));
    captured(&mut command).context("the fuzz targets do not build")?;
    Ok(target_directory.join(host).join("release"))
}

/// How many inputs were run, in how many seconds.
fn run_target(binary: &Path, target: &str, home: &Path, limits: &Limits) -> Result<(u64, u64)> {
    let (corpus, findings) = (home.join("corpus").join(target), home.join("findings").join(target));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&findings)?;
    let mut command = Command::new(binary);
    command.arg(&corpus).arg(home.join("seeds").join(target));
    command.args([
        "-print_final_stats=1",
        "-max_len=4096",
        "-timeout=20",
        "-rss_limit_mb=4096",
        "-close_fd_mask=1",
    ]);
    command.arg(format!("-artifact_prefix={}/", findings.display()));
    command.arg(format!("-dict={}", root().join("fuzz/words.dict").display()));
    if let Some(seconds) = limits.seconds {
        command.arg(format!("-max_total_time={seconds}"));
    }
    if let Some(executions) = limits.executions {
        command.arg(format!("-runs={executions}"));
    }
    let output = command.output().with_context(|| format!("cannot run {}", binary.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let start = said.len().saturating_sub(4000);
        let tail = said.get(start..).unwrap_or(&said);
        bail!("{target} found something (inputs are in {}):\n{tail}", findings.display());
    }
    let figure = |name: &str| {
        let line = said.lines().rev().find(|line| line.contains(name))?;
        line.split_whitespace().rev().find_map(|word| word.parse::<u64>().ok())
    };
    let executions = figure("stat::number_of_executed_units:").context("the fuzzer told no figures")?;
    let rate = figure("stat::average_exec_per_sec:").unwrap_or(0).max(1);
    Ok((executions, executions / rate))
}

/// What the specs ask, for each target in its form.
fn write_seeds(folder: &Path) -> Result<()> {
    for target in TARGETS {
        fs::create_dir_all(folder.join(target))?;
    }
    for path in files(&root().join("specs"), "spec")? {
        let file = parse(&path, &fs::read_to_string(&path)?)?;
        for case in &file.cases {
            for step in &case.steps {
                match &step.action {
                    Action::Do(command)
                    | Action::Run(command)
                    | Action::Docs { command, .. }
                    | Action::Error { command, .. }
                    | Action::WriteError(command)
                    | Action::Plan(command) => seed(folder, command)?,
                    Action::Given { .. } | Action::Index { .. } | Action::Begin => {}
                }
            }
        }
    }
    Ok(())
}

fn seed(folder: &Path, command: &Document) -> Result<()> {
    let text = |document: RawDocument<'_>| to_extended_json(document, JsonFormat::Relaxed).into_bytes();
    put(folder, "command", &text(command.as_raw()))?;
    put(folder, "extended_json", &text(command.as_raw()))?;
    put(folder, "bson", command.as_bytes())?;
    put(folder, "key_order", &text(command.as_raw()))?;
    put(folder, "wire", &kilim_client::message(command))?;
    for name in ["filter", "query"] {
        if let Some(filter) = command.get(name).and_then(RawValue::as_document) {
            put(folder, "filter", &text(filter))?;
        }
    }
    let updates = command.get("updates").and_then(RawValue::as_array);
    for update in updates.into_iter().flat_map(|list| list.iter().filter_map(RawValue::as_document)) {
        put(folder, "update", &text(update))?;
    }
    Ok(())
}

/// By its contents: the same seed comes once.
fn put(folder: &Path, target: &str, bytes: &[u8]) -> Result<()> {
    /// Large inputs make a fuzzer slow and teach it little.
    const BYTES_MAX: usize = 2048;
    if bytes.len() > BYTES_MAX {
        return Ok(());
    }
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    fs::write(folder.join(target).join(format!("{:016x}", hasher.finish())), bytes)?;
    Ok(())
}
