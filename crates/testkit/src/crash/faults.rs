//! Faults while the server lives: a full disk and a failed sync.
//!
//! Both must give a clear error, and reads must go on. Room that returns lets writes go on; a failed sync
//! does not, since nobody knows what the disk holds: writes stay refused until the server is restarted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{Document, doc};

use super::shim::Shim;
use crate::link::{Fault, Link, whole};
use crate::subject::{Running, Subject};

/// How long a server may take to notice that room has gone or has returned.
const NOTICE_MAX: Duration = Duration::from_secs(15);
const OUT_OF_DISK_SPACE: i32 = 14031;

/// The room below the reserve goes and returns, while the server runs.
pub fn full_disk(subject: &Subject, shim: &Shim) -> Result<()> {
    let mut trial = Trial::start(subject, shim)?;
    trial.insert_some(20)?;

    shim.set_faults("free:1048576")?;
    let fault = trial.insert_until_refused()?;
    ensure!(fault.code() == Some(OUT_OF_DISK_SPACE), "a full disk is reported as: {fault}");
    trial.check_reads()?;

    shim.set_faults("")?;
    trial.insert_until_accepted().context("room has returned")?;
    trial.insert_some(20)?;
    trial.check_reads()?;
    trial.check_after_kill()
}

/// Writes themselves fail for lack of room, reserve or not.
pub fn full_disk_by_surprise(subject: &Subject, shim: &Shim) -> Result<()> {
    let mut trial = Trial::start(subject, shim)?;
    trial.insert_some(20)?;
    shim.set_faults("write:0+:ENOSPC,create:0+:ENOSPC")?;
    trial.insert_until_refused()?;
    trial.check_reads()?;
    shim.set_faults("")?;
    trial.check_after_kill()
}

/// One sync fails; later ones would succeed.
pub fn failed_sync(subject: &Subject, shim: &Shim) -> Result<()> {
    let mut trial = Trial::start(subject, shim)?;
    trial.insert_some(20)?;

    shim.set_faults("fsync:0+:EIO")?;
    trial.insert_until_refused()?;
    trial.check_reads()?;

    shim.set_faults("")?;
    match trial.insert() {
        Err(Fault::Refused { .. }) => {}
        Err(fault) => return Err(fault).context("after a failed sync"),
        Ok(()) => bail!("a write was accepted after a failed sync, before a restart"),
    }
    trial.check_reads()?;
    trial.check_after_kill()
}

struct Trial<'s> {
    subject: Subject,
    shim: &'s Shim,
    running: Running,
    link: Link,
    sent: i32,
    acknowledged: Vec<i32>,
}

impl<'s> Trial<'s> {
    fn start(subject: &Subject, shim: &'s Shim) -> Result<Trial<'s>> {
        shim.set_faults("")?;
        std::fs::create_dir_all(&subject.data)?;
        let subject = subject.clone().with_environment(shim.environment_for_faults(&subject.data));
        let running = subject.start()?;
        let link = running.connect()?;
        Ok(Trial { subject, shim, running, link, sent: 0, acknowledged: Vec::new() })
    }

    fn insert(&mut self) -> Result<(), Fault> {
        self.sent += 1;
        let document = doc! {"_id": self.sent, "text": "x".repeat(500)};
        let concern = doc! {"w": "majority", "j": true};
        self.link.run("fault", doc! {"insert": "c", "documents": [document], "writeConcern": concern})?;
        self.acknowledged.push(self.sent);
        Ok(())
    }

    fn insert_some(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.insert()).context("writes without a fault")
    }

    fn insert_until_refused(&mut self) -> Result<Fault> {
        let began = Instant::now();
        while began.elapsed() < NOTICE_MAX {
            match self.insert() {
                Ok(()) => {}
                Err(fault @ Fault::Refused { .. }) => {
                    ensure!(
                        fault.code() != Some(0) && !fault.to_string().is_empty(),
                        "no clear error: {fault}"
                    );
                    return Ok(fault);
                }
                Err(fault) => return Err(fault).context("the fault broke the connection"),
            }
        }
        bail!("writes were accepted for {NOTICE_MAX:?} in spite of the fault")
    }

    fn insert_until_accepted(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.insert() {
                Ok(()) => return Ok(()),
                Err(fault) if began.elapsed() > NOTICE_MAX => return Err(fault.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// On the old connection and on a new one, by scan and by key.
    fn check_reads(&mut self) -> Result<()> {
        self.check_documents().context("reads during the fault")?;
        self.link = self.running.connect()?;
        self.check_documents().context("reads on a new connection during the fault")
    }

    fn check_documents(&mut self) -> Result<()> {
        let documents = self.link.all("fault", doc! {"find": "c"})?;
        let ids: Vec<i32> =
            documents.iter().filter_map(|d| whole(d.get("_id"))).map(|id| id as i32).collect();
        for id in &self.acknowledged {
            ensure!(ids.contains(id), "document {id} was acknowledged and is gone");
        }
        let one = self.link.all("fault", doc! {"find": "c", "filter": {"_id": 1}})?;
        ensure!(one.len() == 1, "document 1 is not found by its key");
        Ok(())
    }

    fn check_after_kill(mut self) -> Result<()> {
        self.shim.set_faults("")?;
        self.running.kill();
        self.running = self.subject.start().context("restart after the fault")?;
        self.link = self.running.connect()?;
        self.check_documents().context("after the restart")?;
        self.insert_some(5).context("after the restart")?;
        let report: Document = self.link.run("fault", doc! {"validate": "c", "full": true})?;
        ensure!(report.get("valid").and_then(|v| v.as_bool()) == Some(true), "{report:?}");
        self.running.kill();
        Ok(())
    }
}
