//! Clients under pressure: a server that is killed and restarted while they work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kilim_bson::{Document, RawValue, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::link::{Fault, Link, Transaction};
use crate::subject::{Running, Subject};

/// A server that does not come back within this is a finding.
const ABSENCE_MAX: Duration = Duration::from_secs(180);

#[derive(Debug, Clone)]
pub struct Plan {
    pub clients: usize,
    /// Attempts by all clients together.
    pub transactions: usize,
    /// How often the server is killed, spread over the attempts: by their number, not by time, so that a
    /// fast server is killed as often as a slow one.
    pub kills: usize,
    pub seed: u64,
}

/// What a history run saw.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    pub committed: usize,
    pub aborted: usize,
    pub unknown: usize,
    pub reads: usize,
    pub kills: usize,
}

/// How a transaction ended, with what it did and saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// It has certainly not taken effect.
    Aborted,
    /// The connection broke during the commit.
    Unknown,
}

/// One client of a run.
pub struct Client<'r> {
    pub id: usize,
    pub rng: StdRng,
    subject: &'r Subject,
    link: Option<Link>,
    session: [u8; 16],
    number: i64,
    began: Instant,
    left: &'r AtomicUsize,
    total: usize,
}

impl Client<'_> {
    /// Takes the next attempt; its number grows over all clients.
    pub fn take(&mut self) -> Option<usize> {
        let left =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        Some(self.total - left)
    }

    /// Nanoseconds since the run began, on one clock for all clients.
    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn link(&mut self) -> Result<&mut Link> {
        let began = Instant::now();
        while self.link.is_none() {
            self.link = connect_to_primary(self.subject);
            if self.link.is_none() {
                ensure!(began.elapsed() < ABSENCE_MAX, "the server has been away for {ABSENCE_MAX:?}");
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(self.link.as_mut().expect("just connected"))
    }

    /// Runs one command outside of transactions; the inner error is the server's answer or its death.
    pub fn run(&mut self, database: &str, command: Document) -> Result<Result<Document, Fault>> {
        let reply = self.link()?.run(database, command);
        if matches!(reply, Err(Fault::Lost(_))) {
            self.link = None;
        }
        Ok(reply)
    }

    /// Repeats a read until a living server answers it.
    pub fn read(&mut self, database: &str, command: Document) -> Result<Vec<Document>> {
        let began = Instant::now();
        loop {
            match self.link()?.all(database, command.clone()) {
                Ok(documents) => return Ok(documents),
                Err(fault) if fault.is_unknown() && began.elapsed() < ABSENCE_MAX => {
                    self.link = None;
                    thread::sleep(Duration::from_millis(20));
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Runs `body` in a transaction. `Ok(false)` from it, or a conflict, aborts.
    pub fn transact(
        &mut self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<bool, Fault>,
    ) -> Result<Outcome> {
        self.number += 1;
        let (session, number) = (self.session, self.number);
        let mut transaction = Transaction::new(self.link()?, session, number);
        let (outcome, lost) = match body(&mut transaction) {
            Ok(true) => match transaction.commit() {
                Ok(()) => (Outcome::Committed, false),
                Err(Fault::Lost(_)) => (Outcome::Unknown, true),
                Err(fault) if fault.has_label("TransientTransactionError") => (Outcome::Aborted, false),
                Err(fault) if fault.is_unknown() => (Outcome::Unknown, true),
                Err(fault) => bail!("commit: {fault}"),
            },
            Ok(false) => (Outcome::Aborted, transaction.abort().is_err()),
            // The commit was never asked for.
            Err(Fault::Lost(_)) => (Outcome::Aborted, true),
            Err(fault) if fault.has_label("TransientTransactionError") || fault.is_unknown() => {
                // The server has aborted it already; saying so again may be an error.
                (Outcome::Aborted, matches!(transaction.abort(), Err(Fault::Lost(_))))
            }
            Err(fault) => bail!("in a transaction: {fault}"),
        };
        if lost {
            self.link = None;
        }
        Ok(outcome)
    }
}

/// A connection, once the server takes writes: mongod takes connections some time before.
fn connect_to_primary(subject: &Subject) -> Option<Link> {
    let mut link = Link::connect(subject.address()).ok()?;
    let hello = link.run("admin", doc! {"hello": 1}).ok()?;
    hello.get("isWritablePrimary").and_then(RawValue::as_bool).filter(|&writable| writable).map(|_| link)
}

/// Runs `work` in all clients while the server is killed again and again. Returns what they return, the
/// number of kills, and the server, alive.
pub fn press<T: Send>(
    subject: &Subject,
    plan: &Plan,
    prepare: impl FnOnce(&mut Link) -> Result<()>,
    work: impl Fn(&mut Client<'_>) -> Result<T> + Sync,
) -> Result<(Vec<T>, usize, Running)> {
    let mut running = subject.start()?;
    prepare(&mut running.connect()?)?;
    let left = AtomicUsize::new(plan.transactions);
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let began = Instant::now();
    let mut kills = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.clients)
            .map(|id| {
                let mut rng = StdRng::seed_from_u64(plan.seed ^ (id as u64 + 1) << 32);
                let session = rng.random();
                let (left, total) = (&left, plan.transactions);
                let mut client =
                    Client { id, rng, subject, link: None, session, number: 0, began, left, total };
                let work = &work;
                scope.spawn(move || work(&mut client))
            })
            .collect();
        let finished = || workers.iter().all(|worker| worker.is_finished());
        let share = plan.transactions / plan.kills.max(1);
        for kill in 0..plan.kills {
            let at = kill * share + rng.random_range(0..share.max(1));
            while !finished() && plan.transactions - left.load(Ordering::Relaxed) <= at {
                thread::sleep(Duration::from_millis(1));
            }
            if finished() {
                break;
            }
            running.kill();
            kills += 1;
            running = match subject.start() {
                Ok(running) => running,
                Err(error) => {
                    // Nobody needs to wait for a server that does not come.
                    left.store(0, Ordering::Relaxed);
                    return Err(error.context(format!("restart after kill {kills}")));
                }
            };
        }
        let results: Result<Vec<T>> =
            workers.into_iter().map(|worker| worker.join().expect("a client does not panic")).collect();
        Ok((results?, kills, running))
    })
}
