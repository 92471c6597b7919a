//! `kilim salvage`: all that can be read of a damaged directory, in a new one.
//!
//! Exit code 0 says that nothing is missing, 1 that something is, 2 that nothing could be done.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kilim_bson::{Document, JsonFormat, Value, doc, to_extended_json};
use kilim_engine::jobs::{Salvaged, check_directory, salvage_directory};

use crate::check::Format;
use crate::data_directory;
use crate::output::{complain, say};
use crate::table::Table;
use crate::text::grouped;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Salvage {
    /// Directory of the damaged data. No server may use it; nothing in it is changed.
    #[arg(value_name = "DIR")]
    data: PathBuf,

    /// Directory of the new data: it must not exist, or be empty.
    #[arg(long, value_name = "NEW")]
    out: PathBuf,

    /// How the answer looks.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = "\
Exit codes:
  0  everything was copied
  1  something could not be read; all else was copied
  2  nothing was copied

Example:
  kilim salvage /var/lib/kilim --out /var/lib/kilim-new";

/// Something is missing.
const LOSSES: u8 = 1;
/// Nothing was copied.
const NOT_SALVAGED: u8 = 2;

impl Salvage {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Err(error) = data_directory::check_outside(&self.out, "--out") {
            complain!("kilim: {error}");
            return Ok(ExitCode::from(NOT_SALVAGED));
        }
        let salvaged = match salvage_directory(&self.data, &self.out) {
            Ok(salvaged) => salvaged,
            Err(error) => {
                complain!("kilim: cannot salvage {}\n  {error}", self.data.display());
                return Ok(ExitCode::from(NOT_SALVAGED));
            }
        };
        let checked = check_directory(&self.out, None);
        let is_sound = checked.as_ref().is_ok_and(|checked| checked.is_clean());
        match self.format {
            Format::Json => {
                let mut document = to_document(&salvaged);
                if let Ok(checked) = &checked {
                    document.push("check", crate::check::to_document(checked));
                }
                say!("{}", to_extended_json(document.as_raw(), JsonFormat::Relaxed))?;
            }
            Format::Text => {
                print(&salvaged)?;
                match &checked {
                    Ok(checked) if checked.is_clean() => {
                        say!("The new directory was checked: nothing is wrong with it.")?
                    }
                    Ok(_) => say!(
                        "The new directory was checked: 'kilim check {}' says what is not right; repairPattern \
                         puts patterns right.",
                        self.out.display()
                    )?,
                    Err(error) => say!("The new directory could not be checked: {error}")?,
                }
            }
        }
        Ok(if salvaged.is_whole() && is_sound { ExitCode::SUCCESS } else { ExitCode::from(LOSSES) })
    }
}

fn print(salvaged: &Salvaged) -> Result<()> {
    let mut table = Table::new(&["COLLECTION", "#RECORDS", "#LOSSES"]);
    for each in &salvaged.collections {
        let (records, losses) = (grouped(each.records as i64), grouped(each.losses.len() as i64));
        table.row([each.namespace.clone(), records, losses]);
    }
    if !salvaged.collections.is_empty() {
        table.print()?;
        say!()?;
    }
    for loss in &salvaged.losses {
        say!("lost: {loss}")?;
    }
    for note in &salvaged.notes {
        say!("note: {note}")?;
    }
    for each in &salvaged.collections {
        for loss in &each.losses {
            say!("lost: {}: {loss}", each.namespace)?;
        }
        for note in &each.notes {
            say!("note: {}: {note}", each.namespace)?;
        }
    }
    match salvaged.is_whole() {
        true => say!("Everything was copied; indexes were made anew.")?,
        false => say!("What could be read was copied; indexes were made anew.")?,
    }
    Ok(())
}

fn to_document(salvaged: &Salvaged) -> Document {
    let texts = |list: &[String]| list.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>();
    let collections: Vec<Value> = (salvaged.collections.iter())
        .map(|each| {
            Value::Document(doc! {
                "ns": each.namespace.as_str(),
                "records": each.records as i64,
                "losses": texts(&each.losses),
                "notes": texts(&each.notes),
            })
        })
        .collect();
    doc! {
        "whole": salvaged.is_whole(),
        "collections": collections,
        "losses": texts(&salvaged.losses),
        "notes": texts(&salvaged.notes),
    }
}
