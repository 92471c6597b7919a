//! `kilim check`: whether the data of a server that is not running is whole.
//!
//! Exit code 0 says that it is, 1 that something is wrong with it, 2 that it could not be checked.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use kilim_bson::{Document, JsonFormat, Value, doc, to_extended_json};
use kilim_engine::jobs::{Checked, check_directory};

use crate::output::{complain, one_line, say};
use crate::table::Table;
use crate::text::grouped;

/// Something is wrong with the data.
const PROBLEMS: u8 = 1;
/// Nothing can be said of it.
const NOT_CHECKED: u8 = 2;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// Directory of the data. No server may use it; nothing in it is changed.
    #[arg(value_name = "DIR")]
    data: PathBuf,

    /// How the answer looks.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How an answer looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One document of extended JSON, for programs.
    Json,
}

const EXAMPLES: &str = "\
Exit codes:
  0  the data is whole
  1  something is wrong with it: 'kilim salvage' copies what can be read
  2  it could not be checked: it is in use, or no data of Kilim

Examples:
  kilim check /var/lib/kilim
  kilim check /backup/kilim --format json";

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let checked = match check_directory(&self.data, None) {
            Ok(checked) => checked,
            Err(error) => {
                complain!("kilim: cannot check {}\n  {error}", self.data.display());
                return Ok(ExitCode::from(NOT_CHECKED));
            }
        };
        match self.format {
            Format::Text => print(&checked)?,
            Format::Json => {
                say!("{}", to_extended_json(to_document(&checked).as_raw(), JsonFormat::Relaxed))?
            }
        }
        Ok(if checked.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(PROBLEMS) })
    }
}

fn print(checked: &Checked) -> Result<()> {
    let mut table = Table::new(&["COLLECTION", "#RECORDS", "#INDEXES", "#PATTERNS", "#PROBLEMS"]);
    for collection in &checked.collections {
        table.row([
            collection.namespace.clone(),
            grouped(collection.records as i64),
            grouped(collection.indexes as i64),
            grouped(collection.patterns as i64),
            grouped(collection.problems.len() as i64),
        ]);
    }
    if !checked.collections.is_empty() {
        table.print()?;
        say!()?;
    }
    let store = &checked.store;
    let pages: u64 = store.trees.iter().map(|tree| tree.pages).sum();
    say!(
        "{} pages in {} bytes of kilim.db, {} of them free; {} commits in the journal.",
        grouped(pages as i64),
        grouped(store.file_bytes as i64),
        grouped(store.free_bytes as i64),
        grouped(store.journal_batches as i64)
    )?;
    let of_store = checked.problems.iter().map(|problem| ("kilim.db", problem));
    let of_collections = checked
        .collections
        .iter()
        .flat_map(|each| each.problems.iter().map(move |problem| (each.namespace.as_str(), problem)));
    for (owner, problem) in of_store.chain(of_collections) {
        say!("problem: {}: {}", one_line(owner), one_line(problem))?;
    }
    for note in &checked.notes {
        say!("note: {}", one_line(note))?;
    }
    for collection in &checked.collections {
        for note in &collection.notes {
            say!("note: {}: {}", one_line(&collection.namespace), one_line(note))?;
        }
    }
    match checked.is_clean() {
        true => say!("\nNothing is wrong.")?,
        false => say!("\nSomething is wrong; 'kilim salvage' copies what can be read to a new directory.")?,
    }
    Ok(())
}

/// The words of this document are an interface: programs read them.
pub(crate) fn to_document(checked: &Checked) -> Document {
    let store = &checked.store;
    let collections: Vec<Value> = (checked.collections.iter())
        .map(|each| {
            Value::Document(doc! {
                "ns": each.namespace.as_str(),
                "records": each.records as i64,
                "indexes": each.indexes as i64,
                "patterns": each.patterns as i64,
                "problems": texts(&each.problems),
                "notes": texts(&each.notes),
            })
        })
        .collect();
    doc! {
        "clean": checked.is_clean(),
        "collections": collections,
        "problems": texts(&checked.problems),
        "notes": texts(&checked.notes),
        "store": {
            "fileBytes": store.file_bytes as i64,
            "freeBytes": store.free_bytes as i64,
            "leakedBytes": store.leaked_bytes as i64,
            "trees": store.trees.len() as i64,
            "pages": store.trees.iter().map(|tree| tree.pages as i64).sum::<i64>(),
            "journalCommits": store.journal_batches as i64,
        },
    }
}

fn texts(list: &[String]) -> Vec<Value> {
    list.iter().map(|text| Value::from(text.as_str())).collect()
}
