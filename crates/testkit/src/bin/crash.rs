//! Crash and history runs from the command line: `crash kill --kilim target/release/kilim --rounds 100`.
//!
//! `--mongod PATH` instead of `--kilim` runs the same against mongod, which proves the run itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kilim_testkit::crash::rebuild::Names;
use kilim_testkit::crash::{self, KillPlan, PowerPlan, Shim};
use kilim_testkit::history::{Plan, Report, bank, list_append, maintained, unique_key};
use kilim_testkit::subject::{Kind, Subject};

const USAGE: &str =
    "crash kill|power|full-disk|full-disk-by-surprise|failed-sync|bank|list-append|maintained|unique-key (--kilim PATH | --mongod PATH)
  --seed N          replays a run (default: from the clock)
  --clients N       concurrent writers (default 8, 4 for power)
  --rounds N        kill: lives of one run (default 20)
  --count N         kill, power: runs with one seed after the other until there were so many crashes (default: one run)
  --life-ms N       kill: the longest life (default 1500)
  --pad N           kill, power: the least size of a document, large ones fill journals (default 0)
  --transactions N  histories: attempts by all clients (default 2000)
  --kills N         histories: kills in between (default 5)
  --operations N    power: writes under the shim (default 1000)
  --stride N        power: look at every Nth sync (default 1)
  --checkpoint N    kill, power: checkpoints after so many bytes of rows, so that crashes meet them (default: the server's)
  --from WHEN       power: start (default for Kilim) or ready, the first sync that is looked at
  --names HOW       power: strict (default) or journalled, when names are durable
  --data DIR        keep the data here instead of in a temporary directory";

struct Options {
    run: String,
    kind: Kind,
    binary: PathBuf,
    seed: u64,
    clients: Option<usize>,
    rounds: usize,
    count: usize,
    checkpoint_bytes: Option<u64>,
    life: Duration,
    pad_bytes: usize,
    operations: usize,
    stride: usize,
    names: Names,
    from_ready: Option<bool>,
    transactions: usize,
    kills: usize,
    data: Option<PathBuf>,
}

fn parse_options() -> Result<Options> {
    let mut arguments = std::env::args().skip(1);
    let run = arguments.next().context(USAGE)?;
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as u64;
    let mut options = Options {
        run,
        kind: Kind::Kilim,
        binary: PathBuf::new(),
        seed,
        clients: None,
        rounds: 20,
        count: 1,
        checkpoint_bytes: None,
        life: Duration::from_millis(1500),
        pad_bytes: 0,
        operations: 1000,
        stride: 1,
        names: Names::Strict,
        from_ready: None,
        transactions: 2000,
        kills: 5,
        data: None,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        match &*name {
            "--kilim" => (options.kind, options.binary) = (Kind::Kilim, value.into()),
            "--mongod" => (options.kind, options.binary) = (Kind::Mongod, value.into()),
            "--seed" => options.seed = value.parse()?,
            "--clients" => options.clients = Some(value.parse()?),
            "--rounds" => options.rounds = value.parse()?,
            "--count" => options.count = value.parse()?,
            "--checkpoint" => options.checkpoint_bytes = Some(value.parse()?),
            "--life-ms" => options.life = Duration::from_millis(value.parse()?),
            "--pad" => options.pad_bytes = value.parse()?,
            "--operations" => options.operations = value.parse()?,
            "--stride" => options.stride = value.parse()?,
            "--transactions" => options.transactions = value.parse()?,
            "--from" => options.from_ready = Some(value == "ready"),
            "--names" => {
                options.names = match &*value {
                    "strict" => Names::Strict,
                    "journalled" => Names::Journalled,
                    _ => bail!("--names is strict or journalled"),
                }
            }
            "--kills" => options.kills = value.parse()?,
            "--data" => options.data = Some(value.into()),
            _ => bail!("unknown option {name}\n{USAGE}"),
        }
    }
    if options.binary.as_os_str().is_empty() {
        bail!("which server?\n{USAGE}");
    }
    Ok(options)
}

fn main() -> Result<()> {
    let options = parse_options()?;
    let temporary = tempfile::tempdir()?;
    let place: &Path = options.data.as_deref().unwrap_or(temporary.path());
    let mut subject = Subject::new(options.kind, &options.binary, &place.join("data"))?;
    if let Some(bytes) = options.checkpoint_bytes {
        subject.arguments = vec!["--checkpoint-bytes".to_owned(), bytes.to_string()];
    }
    let began = Instant::now();
    println!("{} with seed {}", options.run, options.seed);
    let outcome = run(&options, &subject, place);
    if outcome.is_err() {
        // The data of a failed run is evidence.
        println!("kept in {}", temporary.keep().display());
    }
    println!("{} in {:.1} s", outcome?, began.elapsed().as_secs_f64());
    Ok(())
}

fn run(options: &Options, subject: &Subject, place: &Path) -> Result<String> {
    let shim = || Shim::build(&place.join("shim"));
    match &*options.run {
        "kill" => kill(options, subject, place),
        "power" => power(options, subject, place),
        "full-disk" => {
            crash::full_disk(subject, &shim()?).map(|()| "full disk: refused, read, resumed".to_owned())
        }
        "full-disk-by-surprise" => {
            let refused = crash::full_disk_by_surprise(subject, &shim()?);
            refused.map(|()| "full disk by surprise: refused, read, reopened".to_owned())
        }
        "failed-sync" => crash::failed_sync(subject, &shim()?)
            .map(|()| "failed sync: refused until restart, read".to_owned()),
        "bank" => history(options, subject, bank::run),
        "list-append" => history(options, subject, list_append::run),
        "maintained" => history(options, subject, maintained::run),
        "unique-key" => history(options, subject, unique_key::run),
        other => bail!("unknown run {other}\n{USAGE}"),
    }
}

/// Runs until there were as many kills as were asked for; each run has a directory of its own.
fn kill(options: &Options, subject: &Subject, place: &Path) -> Result<String> {
    let mut total = crash::Summary::default();
    let mut runs = 0;
    while runs == 0 || total.crashes < options.count {
        let plan = KillPlan {
            rounds: options.rounds,
            clients: options.clients.unwrap_or(8),
            life_max: options.life,
            pad_bytes: options.pad_bytes,
            seed: options.seed + runs,
        };
        let place = place.join(format!("run{runs}"));
        std::fs::create_dir_all(&place)?;
        let summary = crash::kill_rounds(&subject.clone().moved_to(&place.join("data")), &plan)?;
        total.crashes += summary.crashes;
        total.acknowledged += summary.acknowledged;
        runs += 1;
        if options.count > 1 {
            println!("seed {}: {} kills of {}", plan.seed, total.crashes, options.count);
            std::fs::remove_dir_all(&place)?;
        }
    }
    Ok(format!("{} kills, {} acknowledged writes, all there", total.crashes, total.acknowledged))
}

/// Runs until there were as many cuts as were asked for; each run has a directory of its own.
fn power(options: &Options, subject: &Subject, place: &Path) -> Result<String> {
    let mut total = crash::Summary::default();
    let mut runs = 0;
    while total.crashes < options.count {
        let mut plan = PowerPlan::new(options.seed + runs);
        plan.operations = options.operations;
        plan.stride = options.stride;
        plan.names = options.names;
        plan.pad_bytes = options.pad_bytes;
        plan.clients = options.clients.unwrap_or(plan.clients);
        // mongod does not promise to open what an interrupted first start left.
        plan.from_ready = options.from_ready.unwrap_or(options.kind == Kind::Mongod);
        let place = place.join(format!("run{runs}"));
        let shim = Shim::build(&place.join("shim"))?;
        let summary = crash::power_loss(&subject.clone().moved_to(&place.join("data")), &shim, &plan)?;
        total.crashes += summary.crashes;
        total.syncs += summary.syncs;
        total.acknowledged += summary.acknowledged;
        runs += 1;
        if options.count > 1 {
            println!("seed {}: {} cuts of {}", plan.seed, total.crashes, options.count);
            std::fs::remove_dir_all(&place)?;
        }
    }
    Ok(format!(
        "{} rebuilt directories over {} syncs, {} acknowledged writes, all there",
        total.crashes, total.syncs, total.acknowledged
    ))
}

fn history(
    options: &Options,
    subject: &Subject,
    run: fn(&Subject, &Plan) -> Result<Report>,
) -> Result<String> {
    let plan = Plan {
        clients: options.clients.unwrap_or(8),
        transactions: options.transactions,
        kills: options.kills,
        seed: options.seed,
    };
    let report = run(subject, &plan)?;
    Ok(format!("no anomaly in {report:?}"))
}
