//! The runs: kill at random and look; cut at every sync and look.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::log::{Event, decode_log};
use super::rebuild::{Names, Replay, Survival};
use super::shim::Shim;
use super::workload::{Client, prepare, read_states};
use crate::link::Link;
use crate::subject::Subject;

/// What a run did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Summary {
    /// Crashes looked at: kills, or rebuilt directories.
    pub crashes: usize,
    pub acknowledged: usize,
    pub syncs: usize,
}

#[derive(Debug, Clone)]
pub struct KillPlan {
    pub rounds: usize,
    pub clients: usize,
    /// A life lasts a random time up to this.
    pub life_max: Duration,
    /// The least size of a document.
    pub pad_bytes: usize,
    pub seed: u64,
}

/// `kill -9` at random times during concurrent writes, life after life on the same directory. Each life begins with a
/// look at what the one before has left; every fourth is stopped cleanly after that and started again, so that both ways
/// lead into the writes.
pub fn kill_rounds(subject: &Subject, plan: &KillPlan) -> Result<Summary> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut clients: Vec<Client> =
        (0..plan.clients).map(|id| Client::new(id as i32, plan.seed, plan.pad_bytes)).collect();
    let mut summary = Summary::default();
    let mut running = subject.start()?;
    prepare(&mut running.connect()?)?;
    for round in 0..plan.rounds {
        let context = || format!("round {round}, seed {}", plan.seed);
        let life = rng.random_range(Duration::ZERO..plan.life_max);
        let address = running.address;
        // Positions of the clock: 0 while the server lives, 1 at the look afterwards.
        let outcomes = thread::scope(|scope| {
            let writers: Vec<_> = clients
                .iter_mut()
                .map(|client| {
                    scope.spawn(move || -> Result<()> {
                        let mut link = Link::connect(address)?;
                        while client.step(&mut link, || 0)? {}
                        Ok(())
                    })
                })
                .collect();
            thread::sleep(life);
            let early = running.has_ended();
            running.kill();
            let outcomes: Vec<Result<()>> =
                writers.into_iter().map(|w| w.join().expect("a writer does not panic")).collect();
            ensure!(!early, "the server ended by itself");
            Ok(outcomes)
        });
        for outcome in outcomes.with_context(context)? {
            // A connection that was refused because the kill came first has sent nothing.
            if let Err(error) = outcome
                && error.downcast_ref::<std::io::Error>().is_none()
            {
                return Err(error.context(context()));
            }
        }
        summary.acknowledged += clients.iter().map(Client::acknowledged).sum::<usize>();

        running = subject.start().with_context(context)?;
        let states =
            read_states(&mut running.connect()?, subject.kind, plan.clients, true).with_context(context)?;
        for (client, state) in clients.iter_mut().zip(&states) {
            client.check(state, 1).with_context(context)?;
            client.settle(state);
        }
        if round % 4 == 3 {
            running.stop().with_context(context)?;
            running = subject.start().with_context(context)?;
        }
        summary.crashes += 1;
    }
    running.stop()?;
    Ok(summary)
}

#[derive(Debug, Clone)]
pub struct PowerPlan {
    pub operations: usize,
    pub clients: usize,
    /// Look at every sync (1), every second (2), …
    pub stride: usize,
    /// Also look at states in which some unsynced writes survived.
    pub survivors: bool,
    /// Syncs before the server was first ready need not open: for servers that promise less.
    pub from_ready: bool,
    pub names: Names,
    /// The least size of a document.
    pub pad_bytes: usize,
    pub seed: u64,
    /// Where rebuilt directories are laid out; memory is fast and they need no durability.
    pub scratch: PathBuf,
}

impl PowerPlan {
    pub fn new(seed: u64) -> PowerPlan {
        let memory = Path::new("/dev/shm");
        let scratch = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        PowerPlan {
            operations: 1000,
            clients: 4,
            stride: 1,
            survivors: true,
            from_ready: false,
            names: Names::Strict,
            pad_bytes: 0,
            seed,
            scratch,
        }
    }
}

/// Runs a workload under the shim, then opens the directory as power loss at every sync would leave it.
pub fn power_loss(subject: &Subject, shim: &Shim, plan: &PowerPlan) -> Result<Summary> {
    fs::create_dir_all(&subject.data)?;
    let recorded = subject.clone().with_environment(shim.environment(&subject.data));
    let running = recorded.start()?;
    let ready_at = shim.log_bytes();
    ensure!(ready_at > 0, "the shim has recorded nothing: is the server linked statically?");
    prepare(&mut running.connect()?)?;
    let prepared_at = shim.log_bytes();

    let mut clients: Vec<Client> =
        (0..plan.clients).map(|id| Client::new(id as i32, plan.seed, plan.pad_bytes)).collect();
    let left = AtomicU64::new(plan.operations as u64);
    thread::scope(|scope| -> Result<()> {
        let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
        let writers: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let (running, shim) = (&running, &shim);
                scope.spawn(move || -> Result<()> {
                    let mut link = running.connect()?;
                    while take() {
                        ensure!(client.step(&mut link, || shim.log_bytes())?, "the connection broke");
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
    })?;
    running.kill();

    let records = decode_log(&fs::read(&shim.log)?)?;
    let scratch = tempfile::tempdir_in(&plan.scratch)?;
    let rebuilt = subject.clone().moved_to(&scratch.path().join("data"));
    let mut replay = Replay::new(plan.names);
    let mut summary =
        Summary { acknowledged: clients.iter().map(Client::acknowledged).sum(), ..Summary::default() };
    let look = |replay: &Replay, cut: u64, survival: Survival| -> Result<()> {
        replay.lay_out(&rebuilt.data, survival)?;
        let running = rebuilt.start()?;
        let mut link = running.connect()?;
        let states = read_states(&mut link, subject.kind, plan.clients, cut >= prepared_at)?;
        clients.iter().zip(&states).try_for_each(|(client, state)| client.check(state, cut))?;
        running.kill();
        Ok(())
    };
    for record in &records {
        let is_sync = matches!(record.event, Event::SyncEnd { succeeded: true, .. });
        let skip = plan.from_ready && record.start < ready_at;
        if is_sync && !skip && replay.syncs.is_multiple_of(plan.stride.max(1)) {
            // Just before the sync takes effect: the latest moment for which the earlier ones must do.
            let mut ways = vec![Survival::Strict];
            if plan.survivors {
                ways.push(Survival::Some { seed: plan.seed ^ record.start });
            }
            for survival in ways {
                let sync = replay.syncs;
                look(&replay, record.start, survival).with_context(|| {
                    // Kept for whoever looks for the reason.
                    let kept = subject.data.with_extension("failed");
                    let _ = replay.lay_out(&kept, survival);
                    format!(
                        "before sync {sync} ({survival:?}), seed {}, kept in {}",
                        plan.seed,
                        kept.display()
                    )
                })?;
                summary.crashes += 1;
            }
        }
        replay.apply(record)?;
    }
    summary.syncs = replay.syncs;
    let end = records.last().map_or(0, |record| record.end);
    look(&replay, end, Survival::Strict).context("at the end of the log")?;
    summary.crashes += 1;
    Ok(summary)
}
