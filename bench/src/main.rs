//! Kilim and mongod side by side: the same load at the same write concern, in turns, as ratios.
//!
//! Figures of one server alone say more about the machine than about the server, so none is printed
//! without the other's: both run at once on the same disk, rounds alternate, and a ratio is Kilim over
//! mongod. See `bench/README.md`.

mod aggregation;
mod attributes;
mod data;
mod ground;
mod indexes;
mod listeners;
mod lives;
mod load;
mod measurements;
mod outliers;
mod patterns;
mod places;
mod queues;
mod report;
mod streams;
mod texts;
mod transfer;
mod trees;
mod users;
mod versions;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kilim_testkit::oracle::find_or_install;
use kilim_testkit::subject::{Kind, Running, Subject, disk_bytes};

use crate::load::{Measure, measure};
use crate::patterns::Contest;
use crate::report::Row;
use crate::workload::Workload;

const USAGE: &str = "kilim-bench [options]
  --only NAME,NAME  these workloads only; name or name@connections
  --rounds N        rounds a workload (default 5)
  --quick           a tenth of the operations, two rounds: proves the benchmark, not the server
  --long            also: 1 M documents on disk, and the start on them after kill -9
  --minutes N       how long documents are overwritten, where that is named (default 10)
  --kilim PATH      default: KILIM_BINARY or target/release/kilim; a second mongod is accepted, to see what noise is
  --mongod PATH     default: KILIM_MONGOD, or fetched into target/tools; another Kilim if its name begins with kilim
  --data DIR        where the servers keep their data (default: the temporary directory)
  --markdown        a table for notes";

pub struct Options {
    only: Vec<String>,
    rounds: usize,
    quick: bool,
    long: bool,
    minutes: u32,
    kilim: PathBuf,
    mongod: Option<PathBuf>,
    data: PathBuf,
    markdown: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options {
            only: Vec::new(),
            rounds: 5,
            quick: false,
            long: false,
            minutes: 10,
            kilim: std::env::var_os("KILIM_BINARY")
                .map_or_else(|| "target/release/kilim".into(), PathBuf::from),
            mongod: None,
            data: std::env::temp_dir(),
            markdown: false,
        };
        let mut rounds = None;
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{name} needs a value\n{USAGE}"));
            match &*name {
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--rounds" => rounds = Some(value()?.parse()?),
                "--quick" => options.quick = true,
                "--long" => options.long = true,
                "--minutes" => options.minutes = value()?.parse()?,
                "--kilim" => options.kilim = value()?.into(),
                "--mongod" => options.mongod = Some(value()?.into()),
                "--data" => options.data = value()?.into(),
                "--markdown" => options.markdown = true,
                _ => bail!("unknown option {name}\n{USAGE}"),
            }
        }
        options.rounds = rounds.unwrap_or(if options.quick { 2 } else { options.rounds });
        ensure!(options.rounds > 0, "at least one round");
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        let plain = name.split('@').next().unwrap_or(name);
        self.only.is_empty() || self.only.iter().any(|only| only == name || only == plain)
    }
}

/// The two servers' binaries, Kilim first.
pub struct Sides {
    binaries: [(Kind, PathBuf); 2],
}

impl Sides {
    fn find(options: &Options) -> Result<Sides> {
        let mongod = match &options.mongod {
            Some(path) => path.clone(),
            None => find_or_install(Path::new("target/tools"))?,
        };
        let first = match options.kilim.file_name().is_some_and(|name| name == "mongod") {
            true => Kind::Mongod,
            false => Kind::Kilim,
        };
        ensure!(options.kilim.is_file(), "no {}: build it, or name it by --kilim", options.kilim.display());
        // An earlier Kilim, to compare with the commit before.
        let second = match mongod.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kilim"))
        {
            true => Kind::Kilim,
            false => Kind::Mongod,
        };
        Ok(Sides { binaries: [(first, options.kilim.clone()), (second, mongod)] })
    }

    pub fn names(&self) -> [&'static str; 2] {
        self.binaries.each_ref().map(|(kind, _)| match kind {
            Kind::Kilim => "kilim",
            Kind::Mongod => "mongod",
        })
    }

    pub fn kind(&self, side: usize) -> Kind {
        self.binaries[side].0
    }

    pub fn binary(&self, side: usize) -> &Path {
        &self.binaries[side].1
    }

    /// A server of one side on a directory below `place`.
    pub fn subject(&self, side: usize, place: &Path) -> Result<Subject> {
        let (kind, binary) = &self.binaries[side];
        Subject::new(*kind, binary, &place.join(["first", "second"][side]))
    }
}

fn main() -> Result<()> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let options = Options::parse(command.iter().cloned())?;
    let sides = Sides::find(&options)?;
    let mut rows = Vec::new();
    // A thousand streams take their time, so they are measured only where they are named.
    let streams = streams::all().into_iter().filter(|_| !options.only.is_empty());
    let workloads = workload::all().into_iter().chain(streams);
    let workloads: Vec<Workload> = workloads.filter(|w| options.wants(&full_name(w))).collect();
    let contests = [
        patterns::all(),
        attributes::all(),
        trees::all(),
        outliers::all(),
        versions::all(),
        texts::all(),
        places::all(),
        measurements::contests(),
    ];
    let long = [outliers::long(), versions::long()];
    let long = long.into_iter().flatten().filter(|_| !options.only.is_empty());
    let contests = contests.into_iter().flatten().chain(long);
    let contests: Vec<Contest> = contests.filter(|contest| options.wants(&contest_name(contest))).collect();
    let mut after = Vec::new();
    if !workloads.is_empty() || !contests.is_empty() {
        let place = tempfile::Builder::new().prefix("kilim-bench-").tempdir_in(&options.data)?;
        let subjects = [sides.subject(0, place.path())?, sides.subject(1, place.path())?];
        let running = [subjects[0].start()?, subjects[1].start()?];
        for workload in &workloads {
            rows.push(run_workload(workload, &running, &options)?);
        }
        for contest in &contests {
            rows.extend(run_contest(contest, &running, &options)?);
        }
        let [a, b] = [running[0].resident_bytes()?, running[1].resident_bytes()?];
        after.push(report::figure("resident memory", [a, b].map(report::bytes), "", None));
        let [a, b] = [disk_bytes(&subjects[0].data)?, disk_bytes(&subjects[1].data)?];
        after.push(report::figure("disk after the load", [a, b].map(report::bytes), "", None));
    }
    rows.extend(after);
    rows.extend(lives::run(&sides, &options)?);
    rows.extend(transfer::run(&sides, &options)?);
    rows.extend(ground::run(&sides, &options)?);
    rows.extend(users::run(&sides, &options)?);
    rows.extend(listeners::run(&sides, &options)?);
    rows.extend(measurements::run(&sides, &options)?);

    let [first, second] = sides.names();
    println!(
        "{first} / {second}, {} rounds: cargo run --release -p kilim-bench -- {}",
        options.rounds,
        command.join(" ")
    );
    println!("{}", machine());
    println!();
    report::print(&rows, options.markdown);
    Ok(())
}

fn full_name(workload: &Workload) -> String {
    format!("{}@{}", workload.name, workload.connections)
}

fn run_workload(workload: &Workload, running: &[Running; 2], options: &Options) -> Result<Row> {
    let name = full_name(workload);
    eprintln!("{name}");
    let operations = if options.quick { (workload.operations / 10).max(1) } else { workload.operations };
    // Turns are numbers of their own per workload and connections, since inserts derive ids from them.
    let base = workload::all().iter().position(|w| full_name(w) == name).unwrap_or(0) * 16;
    ensure!(options.rounds < 16, "at most 15 rounds, so that ids stay apart");
    for side in running {
        (workload.prepare)(&mut side.connect()?).with_context(|| name.clone())?;
        measure(side, workload, base, (operations / 3).max(1)).with_context(|| name.clone())?;
    }
    let mut sums = [Measure::default(), Measure::default()];
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let mut cpu = [0.0; 2];
        // A/B, B/A: what drifts hits both.
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let measured = measure(&running[side], workload, base + round + 1, operations)?;
            cpu[side] = measured.cpu_per_operation();
            sums[side].add(&measured);
        }
        rounds.push(cpu);
    }
    Ok(report::compare(name, &sums, &rounds, workload.target))
}

fn contest_name(contest: &Contest) -> String {
    format!("{}@{}", contest.name, contest.entrants[0].workload.connections)
}

/// Measures all entrants in turns; a row for each that the first is set against.
fn run_contest(contest: &Contest, running: &[Running; 2], options: &Options) -> Result<Vec<Row>> {
    let name = contest_name(contest);
    eprintln!("{name}");
    let scale = |operations: usize| if options.quick { (operations / 10).max(1) } else { operations };
    ensure!(options.rounds < 16, "at most 15 rounds, so that ids stay apart");
    // Contests in one database stay apart by their connections.
    let base = if contest.entrants[0].workload.connections > 1 { 16 } else { 0 };
    for entrant in &contest.entrants {
        let (server, workload) = (&running[entrant.server], &entrant.workload);
        let failed = || format!("{name} {}", entrant.name);
        (workload.prepare)(&mut server.connect()?).with_context(failed)?;
        measure(server, workload, base, (scale(workload.operations) / 3).max(1)).with_context(failed)?;
    }
    let count = contest.entrants.len();
    let mut sums = vec![Measure::default(); count];
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let mut cpu = vec![0.0; count];
        for turn in 0..count {
            let place = (round + turn) % count;
            let entrant = &contest.entrants[place];
            let operations = scale(entrant.workload.operations);
            let measured = measure(&running[entrant.server], &entrant.workload, base + round + 1, operations)
                .with_context(|| format!("{name} {}", entrant.name))?;
            cpu[place] = measured.cpu_per_operation();
            sums[place].add(&measured);
        }
        rounds.push(cpu);
    }
    let row = |&(other, target): &(usize, workload::Target)| {
        let pairs: Vec<[f64; 2]> = rounds.iter().map(|cpu| [cpu[0], cpu[other]]).collect();
        let [first, second] = [&contest.entrants[0], &contest.entrants[other]];
        let title = format!("{name}: {} / {}", first.name, second.name);
        report::compare(title, &[sums[0].clone(), sums[other].clone()], &pairs, target)
    };
    Ok(contest.claims.iter().map(row).collect())
}

/// A figure without its machine is none.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let memory = read("/proc/meminfo");
    let kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    // Others at work make latencies worthless and CPU figures doubtful.
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?");
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!("{cores} cores of {model}, {} GB; load average at the end {load}", kib / 1_000_000)
}
