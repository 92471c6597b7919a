//! `kilim pattern drop`, `pause`, `resume`, `wait`, `complete` and `rollback`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use kilim_bson::{Document, doc};
use kilim_client::whole;

use super::{Named, waiting};
use crate::confirm::confirmed;
use crate::connect::{Session, explained, text};
use crate::output::say;
use crate::text::{grouped, json};

#[derive(Debug, Args)]
pub(crate) struct Drop {
    #[command(flatten)]
    named: Named,

    /// Remove the fields from the documents too.
    #[arg(long)]
    remove_fields: bool,

    /// Do not ask before fields are removed.
    #[arg(long, short)]
    yes: bool,
}

impl Drop {
    pub(super) fn run(&self, session: &mut Session, as_json: bool) -> Result<ExitCode> {
        let Named { collection, name } = &self.named;
        session.pattern(collection, name)?;
        if self.remove_fields && !self.yes {
            let question = format!("Remove what '{name}' maintains from all documents of {collection}?");
            if !confirmed(&question)? {
                bail!("nothing was changed");
            }
        }
        let command = doc! {"dropPattern": &**collection, "name": &**name, "keepFields": !self.remove_fields};
        let reply = session.run(command).map_err(explained)?;
        if as_json {
            say!("{}", json(&reply))?;
            return Ok(ExitCode::SUCCESS);
        }
        let place = format!("{}.{collection}", session.database());
        match whole(reply.get("cleared")) {
            Some(cleared) => say!(
                "{place}: '{name}' is dropped, its fields are gone from {} documents.",
                grouped(cleared)
            )?,
            None => say!("{place}: '{name}' is dropped. Its fields stay, as plain ones.")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn pause(named: &Named, session: &mut Session, as_json: bool) -> Result<ExitCode> {
    let Named { collection, name } = named;
    session.pattern(collection, name)?;
    let reply = session.run(doc! {"pausePattern": &**collection, "name": &**name}).map_err(explained)?;
    report(session, named, &reply, as_json)
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    named: Named,

    /// Do not wait until what was missed is filled.
    #[arg(long)]
    no_wait: bool,
}

impl Resume {
    pub(super) fn run(&self, session: &mut Session, as_json: bool) -> Result<ExitCode> {
        let Named { collection, name } = &self.named;
        session.pattern(collection, name)?;
        let mut reply =
            session.run(doc! {"resumePattern": &**collection, "name": &**name}).map_err(explained)?;
        if !self.no_wait {
            waiting::until_filled(session, collection, name, None)?;
            reply = session.pattern(collection, name)?;
        }
        report(session, &self.named, &reply, as_json)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(flatten)]
    named: Named,

    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

impl Wait {
    pub(super) fn run(&self, session: &mut Session, as_json: bool) -> Result<ExitCode> {
        let Named { collection, name } = &self.named;
        session.pattern(collection, name)?;
        let limit = match self.timeout.map(Duration::try_from_secs_f64) {
            None => None,
            Some(Ok(limit)) => Some(limit),
            Some(Err(_)) => bail!("--timeout is a number of seconds"),
        };
        waiting::until_filled(session, collection, name, limit)?;
        let pattern = session.pattern(collection, name)?;
        report(session, &self.named, &pattern, as_json)
    }
}

pub(super) fn complete(named: &Named, session: &mut Session, as_json: bool) -> Result<ExitCode> {
    let Named { collection, name } = named;
    session.pattern(collection, name)?;
    let reply = session.run(doc! {"completeVersion": &**collection, "name": &**name}).map_err(explained)?;
    match as_json {
        true => say!("{}", json(&reply))?,
        false => say!(
            "{}.{collection}: '{name}' is completed. All documents are stored in the newer version, {} were converted just now.",
            session.database(),
            grouped(whole(reply.get("converted")).unwrap_or(0)),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    named: Named,

    /// Give up what the older version cannot say.
    #[arg(long)]
    lossy: bool,

    /// Do not wait until all documents are stored in the older version.
    #[arg(long)]
    no_wait: bool,
}

impl Rollback {
    pub(super) fn run(&self, session: &mut Session, as_json: bool) -> Result<ExitCode> {
        let Named { collection, name } = &self.named;
        session.pattern(collection, name)?;
        let command = doc! {"rollbackVersion": &**collection, "name": &**name, "lossy": self.lossy};
        let mut reply = session.run(command).map_err(explained)?;
        if !self.no_wait {
            waiting::until_filled(session, collection, name, None)?;
            reply = session.pattern(collection, name)?;
        }
        report(session, &self.named, &reply, as_json)
    }
}

fn report(session: &Session, named: &Named, reply: &Document, as_json: bool) -> Result<ExitCode> {
    match as_json {
        true => say!("{}", json(reply))?,
        false => {
            say!(
                "{}.{}: '{}' is {}.",
                session.database(),
                named.collection,
                named.name,
                text(reply, "state")
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
