//! `kilim migrate`: a directory of an earlier format becomes one of today's.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::data_directory;
use crate::output::say;
use crate::text::grouped;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Migrate {
    /// Directory of the data in the earlier format. No server may use it; it keeps its data.
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// Directory of the new data: it must not exist, or be empty.
    #[arg(long, value_name = "NEW")]
    out: PathBuf,
}

const EXAMPLES: &str = "\
Example:
  kilim migrate /var/lib/kilim --out /var/lib/kilim-2
  kilim check /var/lib/kilim-2
  kilim serve --data /var/lib/kilim-2";

impl Migrate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        data_directory::check_outside(&self.out, "--out")?;
        let migrated = kilim_migrate::migrate(&self.old, &self.out)
            .with_context(|| format!("cannot migrate {}", self.old.display()))?;
        let [meta, records, index] = migrated.rows.map(|rows| grouped(rows as i64));
        say!(
            "{} holds {records} records, {index} index entries and {meta} entries of the catalog. 'kilim check' compares \
             them; {} is no longer needed.",
            self.out.display(),
            self.old.display()
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
