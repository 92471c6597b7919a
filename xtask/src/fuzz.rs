//! `cargo xtask fuzz`: the fuzz targets, built with coverage instrumentation, each for a while.
//!
//! What the specs ask becomes the seeds. What a run learns stays in `.tools/fuzz`; what it finds is a file there, to be
//! made a named test. Needs the stable compiler and what cargo fetches, nothing else.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kilim_testkit::seeds::Seeds;

use crate::arguments::Arguments;
use crate::workspace::{captured, cargo, files, root, target_directory as target_folder, tools};

/// The workspace of the instrumented binaries.
const HOME: &str = "fuzz/instrumented";

/// Targets that need more than the others, and the feature that brings it. All of the database takes long to build with
/// instrumentation.
const FEATURES: [(&str, &str); 2] = [("command", "database"), ("recovery", "storage")];

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

/// The address sanitizer. Its runtime comes with the compiler, but the flag is one of nightly compilers: a variable that
/// the compiler knows for such cases lets a stable one take it.
const SANITIZER: &str = "-Zsanitizer=address";
const TAKE_NIGHTLY_FLAGS: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");
/// Not the C code: decNumber's addition copies by fours and reads up to two bytes behind a buffer, which it then does not use.
const NOT_C: (&str, &str) = ("CFLAGS", "-fno-sanitize=address");
/// What lives until the end of the process is no leak here.
const SANITIZER_OPTIONS: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=0");

struct Limits {
    seconds: Option<u64>,
    executions: Option<u64>,
    seed: u32,
}

/// What a run of one target tells.
struct Figures {
    executions: u64,
    per_second: u64,
    /// Edges and comparisons with their counts, as libFuzzer counts them.
    coverage: u64,
    slowest_seconds: u64,
    memory_mb: u64,
}

pub fn run(mut arguments: Arguments) -> Result<()> {
    let seconds = arguments.value("--seconds")?;
    let executions = arguments.value("--executions")?;
    let seed = arguments.value("--seed")?.unwrap_or(1);
    let only: Option<String> = arguments.value("--target")?;
    let sanitize = arguments.flag("--sanitize");
    arguments.finish()?;
    let seconds = if executions.is_none() { seconds.or(Some(60)) } else { seconds };
    let limits = Limits { seconds, executions, seed };
    let known = targets()?;
    let chosen: Vec<&str> = match &only {
        Some(only) => only.split(',').collect(),
        None => known.iter().map(String::as_str).collect(),
    };
    let unknown = chosen.iter().find(|target| !known.iter().any(|known| known == *target));
    ensure!(unknown.is_none(), "targets are {}", known.join(", "));
    let binaries = build(&chosen, sanitize)?;
    let home = tools().join("fuzz");
    write_seeds(&home.join("seeds"), &chosen)?;
    println!("| target | executions | a second | coverage | slowest input | memory |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let mut total = 0;
    for target in chosen {
        let figures = run_target(&binaries.join(target), target, &home, &limits)?;
        let Figures { executions, per_second, coverage, slowest_seconds, memory_mb } = figures;
        let slowest = if slowest_seconds == 0 { "< 1 s".to_owned() } else { format!("{slowest_seconds} s") };
        println!("| {target} | {executions} | {per_second} | {coverage} | {slowest} | {memory_mb} MB |");
        total += executions;
    }
    println!("\n{total} executions, nothing found");
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let sources = files(&root().join(HOME).join("targets"), "rs")?;
    Ok(sources.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

fn build(targets: &[&str], sanitize: bool) -> Result<PathBuf> {
    let host = captured(Command::new("rustc").arg("-vV"))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let target_directory = target_folder()?.join(if sanitize { "fuzz-sanitized" } else { "fuzz" });
    let mut command = cargo();
    command.args(["build", "--quiet", "--release", "--manifest-path"]).arg(format!("{HOME}/Cargo.toml"));
    // A target that is named keeps the flags from build scripts and macros.
    command.args(["--target", host]).arg("--target-dir").arg(&target_directory);
    command.arg("--no-default-features");
    for (_, feature) in FEATURES.iter().filter(|(target, _)| targets.contains(target)) {
        command.args(["--features", feature]);
    }
    for target in targets {
        command.args(["--bin", target]);
    }
    let mut flags = INSTRUMENTATION.join(" ");
    if sanitize {
        flags = format!("{flags} {SANITIZER}");
        command.env(TAKE_NIGHTLY_FLAGS.0, TAKE_NIGHTLY_FLAGS.1).env(NOT_C.0, NOT_C.1);
    }
    command.env("RUSTFLAGS", flags);
    captured(&mut command).context("the fuzz targets do not build")?;
    Ok(target_directory.join(host).join("release"))
}

fn run_target(binary: &Path, target: &str, home: &Path, limits: &Limits) -> Result<Figures> {
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
    command.env(SANITIZER_OPTIONS.0, SANITIZER_OPTIONS.1);
    command.arg(format!("-seed={}", limits.seed));
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
    let last_number = |name: &str| {
        let line = said.lines().rev().find(|line| line.contains(name))?;
        line.rsplit(name).next()?.split_whitespace().next()?.parse::<u64>().ok()
    };
    let figure = |name: &str| last_number(name).with_context(|| format!("the fuzzer does not tell {name}"));
    Ok(Figures {
        executions: figure("stat::number_of_executed_units:")?,
        per_second: figure("stat::average_exec_per_sec:")?,
        coverage: figure(" cov: ")?,
        slowest_seconds: figure("stat::slowest_unit_time_sec:")?,
        memory_mb: figure("stat::peak_rss_mb:")?,
    })
}

/// What the specs ask, a file each, named by its contents.
fn write_seeds(folder: &Path, targets: &[&str]) -> Result<()> {
    let seeds = Seeds::read(&root().join("specs"))?;
    for target in targets {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for seed in seeds.of(target) {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            fs::write(folder.join(format!("{:016x}", hasher.finish())), seed)?;
        }
    }
    Ok(())
}
