//! Soak: one server under mixed load for as long as one likes, which must not grow.
//!
//! Every load of [`loads`] runs in a thread of its own, and [`hostile`] clients beside them; all of them keep a bounded
//! amount of data, so that a server which gives back what it took stays as it is. [`samples`] looks at memory, disk,
//! descriptors, threads and response times, and says whether they grew. At a wish the server is killed again and again, and
//! its disk counts as full for some seconds, by the preload shim of the crash runs.
//! In the end every collection is valid, counts agree, no pattern is wrong and no money was made; and all of it once
//! more after a stop and a start.

mod hostile;
mod loads;
mod samples;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{RawValue, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::crash::Shim;
use crate::link::{Fault, Link, whole};
use crate::look_for;
use crate::subject::{Running, Subject};
pub use samples::Samples;

pub const DATABASE: &str = "soak";

/// A server that does not answer for so long is gone.
const ABSENCE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Plan {
    pub time: Duration,
    pub seed: u64,
    /// Kill -9 about this often.
    pub kill_every: Option<Duration>,
    /// The disk is full about this often, for [`FULL_FOR`].
    pub full_every: Option<Duration>,
}

/// What a disk that is full has left: less than the server is to keep free, and enough that deletions go on.
const RESERVE: &str = "16MB";
const FREE_WHEN_FULL: u64 = 8 << 20;
const FULL_FOR: Duration = Duration::from_millis(1500);

pub struct Report {
    pub operations: u64,
    pub kills: u64,
    /// Writes that were refused for want of room.
    pub refused: u64,
    pub samples: Samples,
}

/// What all threads of a soak share.
struct Soak<'a> {
    subject: &'a Subject,
    plan: &'a Plan,
    running: Mutex<Option<Running>>,
    operations: AtomicU64,
    refused: AtomicU64,
    /// The shim that says how much room there is.
    shim: Option<Shim>,
    over: AtomicBool,
}

pub fn run(subject: &Subject, plan: &Plan) -> Result<Report> {
    let mut subject = subject.clone();
    let shim = plan.full_every.map(|_| Shim::build(&subject.data.with_extension("shim"))).transpose()?;
    if let Some(shim) = &shim {
        shim.set_faults("")?;
        std::fs::create_dir_all(&subject.data)?;
        subject.arguments.extend(["--reserve-bytes", RESERVE].map(str::to_owned));
        subject = subject.clone().with_environment(shim.environment_for_faults(&subject.data));
    }
    let subject = &subject;
    let running = subject.start()?;
    loads::prepare(&mut running.connect()?).context("cannot prepare")?;
    let soak = Soak {
        subject,
        plan,
        running: Mutex::new(Some(running)),
        operations: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        shim,
        over: AtomicBool::new(false),
    };
    let deadline = Instant::now() + plan.time;
    let mut samples = Samples::default();
    let kills = std::thread::scope(|scope| {
        let soak = &soak;
        let loads: Vec<_> = (loads::ALL.iter().chain(hostile::ALL).enumerate())
            .map(|(number, (name, step))| {
                scope.spawn(move || {
                    let ended = soak.repeat(number, *step).with_context(|| format!("load {name}"));
                    // One that fails ends the others.
                    soak.over.fetch_or(ended.is_err(), Ordering::SeqCst);
                    ended
                })
            })
            .collect();
        let watched = soak.watch(deadline, &mut samples);
        soak.over.store(true, Ordering::SeqCst);
        for load in loads {
            load.join().expect("a load does not panic")?;
        }
        watched
    })?;
    let lock =
        |soak: &Soak<'_>| soak.running.lock().expect("no thread panics while it holds the server").take();
    let running = lock(&soak).context("the server is running")?;
    verify(&mut running.connect()?).context("after the load")?;
    running.stop()?;
    let running = subject.start().context("after a stop")?;
    verify(&mut running.connect()?).context("after a stop and a start")?;
    running.stop()?;
    let refused = soak.refused.into_inner();
    ensure!(plan.full_every.is_none() || refused > 0, "no write met a full disk");
    Ok(Report { operations: soak.operations.into_inner(), kills, refused, samples })
}

/// One step of a load: given its link, its dice, and how many steps it has made.
type Step = fn(&mut Link, &mut StdRng, u64) -> Result<(), Fault>;

impl Soak<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Makes steps until the soak is over; a lost connection is made anew.
    fn repeat(&self, number: usize, step: Step) -> Result<()> {
        let mut rng = StdRng::seed_from_u64(self.plan.seed ^ (number as u64 + 1) << 32);
        let mut link: Option<Link> = None;
        let mut steps = 0;
        while !self.is_over() {
            let connected = match &mut link {
                Some(connected) => connected,
                None => {
                    let found = look_for(ABSENCE_MAX, || {
                        if self.is_over() {
                            Some(None)
                        } else {
                            Link::connect(self.subject.address()).ok().map(Some)
                        }
                    });
                    match found {
                        Some(Some(new)) => link.insert(new),
                        Some(None) => return Ok(()),
                        None => bail!("the server was away for {ABSENCE_MAX:?}"),
                    }
                }
            };
            match step(connected, &mut rng, steps) {
                Ok(()) => drop(self.operations.fetch_add(1, Ordering::Relaxed)),
                Err(Fault::Lost(_)) if self.plan.kill_every.is_some() => link = None,
                Err(fault) if self.plan.full_every.is_some() && fault.code() == Some(OUT_OF_DISK_SPACE) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(fault) if is_passing(&fault) => {}
                Err(fault) => return Err(fault.into()),
            }
            steps += 1;
        }
        Ok(())
    }

    /// Samples, kills and fills the disk where that is wished, until the end; how many kills there were.
    fn watch(&self, deadline: Instant, samples: &mut Samples) -> Result<u64> {
        let mut rng = StdRng::seed_from_u64(self.plan.seed);
        let mut some_time = |around: Duration| around.mul_f64(rng.random_range(0.5..1.5));
        let pause = (self.plan.time / 100).clamp(Duration::from_millis(200), Duration::from_secs(5));
        let mut kills = 0;
        let mut kill_at = self.plan.kill_every.map(|every| Instant::now() + some_time(every));
        let mut full_at = self.plan.full_every.map(|every| Instant::now() + some_time(every));
        while Instant::now() < deadline && !self.is_over() {
            std::thread::sleep(pause);
            if let (Some(at), Some(every), Some(shim)) = (full_at, self.plan.full_every, &self.shim)
                && Instant::now() >= at
            {
                shim.set_faults(&format!("free:{FREE_WHEN_FULL}"))?;
                std::thread::sleep(FULL_FOR);
                shim.set_faults("")?;
                full_at = Some(Instant::now() + some_time(every));
            }
            let mut running = self.running.lock().expect("no thread panics while it holds the server");
            if let (Some(at), Some(every)) = (kill_at, self.plan.kill_every)
                && Instant::now() >= at
                && let Some(killed) = running.take()
            {
                killed.kill();
                *running = Some(self.subject.start().context("a restart after a kill")?);
                kills += 1;
                kill_at = Some(Instant::now() + some_time(every));
            }
            let alive = running.as_mut().context("the server is running")?;
            ensure!(!alive.has_ended(), "the server ended by itself");
            samples.take(alive, &self.subject.data)?;
        }
        Ok(kills)
    }
}

const OUT_OF_DISK_SPACE: i32 = 14031;

/// What a client has to expect where many write: conflicts, duplicates, names that are dropped meanwhile, cursors and
/// transactions that were ended for others' sake.
fn is_passing(fault: &Fault) -> bool {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    const INDEX_NOT_FOUND: i32 = 27;
    const CURSOR_NOT_FOUND: i32 = 43;
    const NAMESPACE_EXISTS: i32 = 48;
    const WRITE_CONFLICT: i32 = 112;
    const QUERY_PLAN_KILLED: i32 = 175;
    const NO_SUCH_TRANSACTION: i32 = 251;
    const INDEX_BUILD_ABORTED: i32 = 276;
    const CHANGE_STREAM_HISTORY_LOST: i32 = 286;
    const DUPLICATE_KEY: i32 = 11000;
    let passing = [
        NAMESPACE_NOT_FOUND,
        INDEX_NOT_FOUND,
        CURSOR_NOT_FOUND,
        NAMESPACE_EXISTS,
        WRITE_CONFLICT,
        QUERY_PLAN_KILLED,
        NO_SUCH_TRANSACTION,
        INDEX_BUILD_ABORTED,
        CHANGE_STREAM_HISTORY_LOST,
        DUPLICATE_KEY,
    ];
    fault.has_label("TransientTransactionError") || fault.code().is_some_and(|code| passing.contains(&code))
}

/// Whether everything that is stored agrees with itself.
fn verify(link: &mut Link) -> Result<()> {
    let is_idle = || {
        link.all(DATABASE, doc! {"patternJobs": 1})
            .map_or(Some(false), |jobs| jobs.is_empty().then_some(true))
    };
    ensure!(look_for(ABSENCE_MAX, is_idle) == Some(true), "the jobs of patterns do not end");
    for pattern in link.all(DATABASE, doc! {"listPatterns": 1})? {
        let text = |name: &str| pattern.get(name).and_then(RawValue::as_str).unwrap_or_default();
        let target = text("ns").split_once('.').map_or("", |(_, target)| target);
        let wait =
            doc! {"waitPattern": target, "name": text("name"), "timeoutMS": ABSENCE_MAX.as_millis() as i64};
        link.run(DATABASE, wait)?;
        let found = link.run(DATABASE, doc! {"verifyPattern": target, "name": text("name")})?;
        ensure!(whole(found.get("wrong")) == Some(0), "{found:?}");
    }
    for collection in link.all(DATABASE, doc! {"listCollections": 1})? {
        let Some(name) = collection.get("name").and_then(RawValue::as_str) else { continue };
        let report = link.run(DATABASE, doc! {"validate": name, "full": true})?;
        ensure!(report.get("valid").and_then(RawValue::as_bool) == Some(true), "{report:?}");
        let counted = whole(link.run(DATABASE, doc! {"count": name})?.get("n"));
        let read = link.all(DATABASE, doc! {"find": name, "projection": {"_id": 1}})?.len() as i64;
        ensure!(counted == Some(read), "{name}: count says {counted:?}, a scan reads {read}");
    }
    let by_index =
        link.all(DATABASE, doc! {"find": loads::DOCS, "filter": {"k": {"$gte": 0}}, "hint": {"k": 1}})?;
    let scanned = link
        .all(DATABASE, doc! {"find": loads::DOCS, "filter": {"k": {"$gte": 0}}, "hint": {"$natural": 1}})?;
    ensure!(
        by_index.len() == scanned.len(),
        "an index has {} of {} documents",
        by_index.len(),
        scanned.len()
    );
    loads::check_accounts(&link.all(DATABASE, doc! {"find": loads::ACCOUNTS})?)
}
