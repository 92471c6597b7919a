//! `kilim backup`: a copy of a running server's data, as of one moment, that can be served as it is.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kilim_bson::{Document, RawValue, doc};
use kilim_client::{Uri, whole};
use kilim_engine::backup::Receiver;
use kilim_engine::jobs::check_directory;

use crate::connect::{Encryption, Session, UriParser, explained};
use crate::data_directory;
use crate::output::say;
use crate::progress::Progress;
use crate::text::grouped;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Backup {
    /// The server.
    #[arg(
        env = "KILIM_URI",
        hide_env_values = true,
        value_parser = UriParser,
        value_name = "URI",
        default_value = "mongodb://127.0.0.1:27017"
    )]
    uri: Uri,

    #[command(flatten)]
    encryption: Encryption,

    /// Directory of the copy: it must not exist, or be empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Do not compare the copy's indexes and patterns with its records at the end.
    #[arg(long)]
    no_check: bool,
}

const EXAMPLES: &str = "\
Examples:
  kilim backup mongodb://127.0.0.1:27017 --out /backup/monday
  kilim serve --data /backup/monday --port 27018";

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode> {
        data_directory::check_outside(&self.out, "--out")?;
        let mut session = Session::open(&self.encryption.on(&self.uri), "admin")?;
        let begun = session.run(doc! {"kilimBackup": 1, "start": true}).map_err(explained)?;
        let id = whole(begun.get("id")).ok_or_else(nonsense)?;
        let copied = self.copy(&mut session, &begun, id);
        // Also after an error: the server holds space for it.
        let _ = session.run(doc! {"kilimBackup": 1, "end": id});
        let bytes = copied.with_context(|| format!("cannot copy to {}", self.out.display()))?;
        say!("{} bytes were copied to {}.", grouped(bytes), self.out.display())?;
        if self.no_check {
            return Ok(ExitCode::SUCCESS);
        }
        let checked = check_directory(&self.out, None).context("the copy cannot be checked")?;
        if !checked.is_clean() {
            bail!("something is wrong with the copy: 'kilim check {}' says what", self.out.display());
        }
        say!("The copy was checked: nothing is wrong with it.")?;
        Ok(ExitCode::SUCCESS)
    }

    fn copy(&self, session: &mut Session, begun: &Document, id: i64) -> Result<i64> {
        let superblock = binary(begun, "superblock").ok_or_else(nonsense)?;
        let receiver = Receiver::begin(&self.out, superblock)?;
        match self.receive(session, begun, id, &receiver) {
            Ok(bytes) => {
                receiver.finish()?;
                Ok(bytes)
            }
            Err(error) => {
                let _ = receiver.give_up();
                Err(error)
            }
        }
    }

    fn receive(&self, session: &mut Session, begun: &Document, id: i64, receiver: &Receiver) -> Result<i64> {
        let total = whole(begun.get("bytes")).ok_or_else(nonsense)?;
        let mut progress = Progress::new("copying");
        let (mut next, mut received) = (0, 0);
        loop {
            let reply =
                session.run(doc! {"kilimBackup": 1, "read": id, "offset": next}).map_err(explained)?;
            if matches!(reply.get("done"), Some(RawValue::Bool(true))) {
                break;
            }
            let offset = whole(reply.get("offset")).and_then(|offset| u64::try_from(offset).ok());
            let data = binary(&reply, "data").ok_or_else(nonsense)?;
            receiver.write(offset.ok_or_else(nonsense)?, data)?;
            received += data.len() as i64;
            next = whole(reply.get("next")).filter(|after| *after > next).ok_or_else(nonsense)?;
            progress.show(Some((received, total)));
        }
        progress.clear();
        if received != total {
            bail!("{received} of {total} bytes arrived");
        }
        Ok(received)
    }
}

fn binary<'d>(document: &'d Document, name: &str) -> Option<&'d [u8]> {
    match document.get(name)? {
        RawValue::Binary { bytes, .. } => Some(bytes),
        _ => None,
    }
}

fn nonsense() -> anyhow::Error {
    anyhow!("the server's answer makes no sense")
}
